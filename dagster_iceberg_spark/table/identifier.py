"""Names of tables in a catalog."""

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import Final
from urllib.parse import urlsplit


class NotationError(ValueError):
    """A text that does not follow its notation, with a similar valid text if there is one."""

    def __init__(self, expected: str, found: str, nearest: str | None = None) -> None:
        super().__init__(f"expected {expected}, found {found}")
        self.expected = expected
        self.found = found
        self.nearest = nearest

    @property
    def hint(self) -> str | None:
        """The similar valid text, as a question."""
        return f"did you mean {self.nearest!r}?" if self.nearest else None


def nearest_of(word: str, known: Sequence[str]) -> str | None:
    """Return the known word that is most similar to the given word, if any is similar."""
    matches = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return matches[0] if matches else None


_PART = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")


@dataclass(frozen=True, slots=True)
class TableIdentifier:
    """The namespace (outermost level first; at least one) and the name of a table, without the catalog."""

    namespace: tuple[str, ...]
    name: str

    def __str__(self) -> str:
        return ".".join(quote_part(part) for part in self.parts)

    @property
    def parts(self) -> tuple[str, ...]:
        """The levels of the namespace, then the name."""
        return (*self.namespace, self.name)

    @classmethod
    def parse(cls, text: str) -> "TableIdentifier":
        """Parse `namespace.table`. A part that contains a dot must be in backticks."""
        parts = split_parts(text)
        minimum_parts = 2
        if len(parts) < minimum_parts:
            raise NotationError("`namespace.table`", f"{text!r}")
        return cls(namespace=parts[:-1], name=parts[-1])


def quote_part(part: str) -> str:
    """Return the name as a part of a dotted name: in backticks unless it is a plain word."""
    return part if re.fullmatch(r"\w+", part) else "`" + part.replace("`", "``") + "`"


def split_parts(text: str) -> tuple[str, ...]:
    """Split a dotted name into its parts, respecting backticks."""
    parts: list[str] = []
    position = 0
    while position <= len(text):
        match = _PART.match(text, position)
        if match is None:
            raise NotationError("names separated by dots", f"{text!r}")
        quoted, plain = match.groups()
        parts.append(quoted.replace("``", "`") if quoted is not None else plain)
        position = match.end()
        if position == len(text):
            return tuple(parts)
        if text[position] != ".":
            raise NotationError(f"a dot after {match.group()!r}", f"{text!r}")
        position += 1
    raise NotationError("a name after the last dot", f"{text!r}")


def free_name(name: str, taken: Collection[str | None]) -> str:
    """Return a name that is not in use: this one, or this one with a number."""
    numbered = (f"{name}_{number}" for number in count(2))
    return next(free for free in chain([name], numbered) if free not in taken)


_PATHS: Final = ("write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path")
"""The properties with directories of a table besides its location (Iceberg, "Table properties"; the last are old)."""


def places_of(location: str, properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return the directories that a table may write to: its location, and those that its properties name."""
    return (location, *(properties[key] for key in _PATHS if properties.get(key)))


def directory_place(location: str) -> str:
    """Return a directory without its scheme, which may be written in several ways, with a slash at its end.

    One directory contains another if its place is the beginning of the other's.
    """
    parts = urlsplit(location)
    path = f"{parts.netloc}{parts.path}" if parts.scheme else location
    return f"{path.rstrip('/')}/"
