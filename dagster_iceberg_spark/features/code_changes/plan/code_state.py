"""What the code of a revision says of assets, and what another revision says differently."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class AssetCode:
    """An asset as the code of a revision defines it.

    Args:
        key: Its key, with slashes between the parts.
        code: A digest of its function or query, and of what the function names in the repository.
        inputs: The assets that it depends on.
        query: The query of a SQL model for one partition, or None for another asset.
        tables: The asset of each table in the query, by the parts of the table's name.
        settings: Its code version, its partitions, and the metadata of the package, as text.
    """

    key: str
    code: str
    inputs: tuple[str, ...] = ()
    query: str | None = None
    tables: tuple[tuple[tuple[str, ...], str], ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> "AssetCode":
        """Return the asset that a document in JSON describes."""
        tables = tuple((tuple(parts), asset) for parts, asset in document["tables"])
        return cls(**{**document, "inputs": tuple(document["inputs"]), "tables": tables})


CodeState: TypeAlias = Mapping[str, AssetCode]
"""The assets of a revision by key."""


@dataclass(frozen=True, slots=True)
class CodeChange:
    """What two revisions say differently about an asset. One of them may lack it."""

    before: AssetCode | None
    after: AssetCode | None

    @property
    def key(self) -> str:
        """The asset."""
        known = self.after or self.before
        return "" if known is None else known.key

    @property
    def has_other_code(self) -> bool:
        """Whether another function, query or code version makes the rows."""
        return self.after is not None and (
            self.before is None
            or self.before.code != self.after.code
            or self.before.settings.get("code_version") != self.after.settings.get("code_version")
        )

    def words(self) -> list[str]:
        """Return what differs: `new`, `removed`, or the parts of the definition."""
        before, after = self.before, self.after
        if before is None or after is None:
            return ["new" if before is None else "removed"]
        own = "query" if after.query is not None else "code"
        settings = sorted(before.settings.keys() | after.settings.keys())
        inputs = ("inputs", sorted(before.inputs), sorted(after.inputs))
        parts: list[tuple[str, Any, Any]] = [(own, before.code, after.code), inputs]
        parts += [(name, before.settings.get(name), after.settings.get(name)) for name in settings]
        return [name for name, one, other in parts if one != other]


def compare_states(before: CodeState, after: CodeState) -> dict[str, CodeChange]:
    """Return the assets that two revisions define differently, by key."""
    changes = (CodeChange(before.get(key), after.get(key)) for key in sorted(before.keys() | after.keys()))
    return {change.key: change for change in changes if change.words()}


def in_order(inputs: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield assets, each after its inputs."""
    done, waiting = set[str](), [(key, False) for key in sorted(inputs, reverse=True)]
    while waiting:
        key, is_ready = waiting.pop()
        if key in done:
            continue
        if is_ready:
            done.add(key)
            yield key
        else:
            waiting.append((key, True))
            waiting += [(name, False) for name in inputs[key] if name in inputs and name != key]
