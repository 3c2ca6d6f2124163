"""The error for a text that does not follow its notation, such as the name of a column or a table."""

import difflib
from collections.abc import Sequence


class NotationError(ValueError):
    """A text that does not follow its notation, with a similar valid text if there is one."""

    def __init__(self, expected: str, found: str, nearest: str | None = None) -> None:
        super().__init__(f"expected {expected}, found {found}")
        self.expected = expected
        self.found = found
        self.nearest = nearest


def nearest_of(word: str, known: Sequence[str]) -> str | None:
    """Return the known word that is most similar to the given word, if any is similar."""
    matches = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return matches[0] if matches else None
