"""Texts that name columns, transforms and tables, where they cannot be read."""


class NotationError(ValueError):
    """A text that does not follow its notation.

    Args:
        expected: What would have been right.
        found: What was there.
        nearest: What was probably meant; None: nothing is near.
    """

    def __init__(self, expected: str, found: str, nearest: str | None = None) -> None:
        """Keep the parts beside the message."""
        super().__init__(f"expected {expected}, found {found}")
        self.expected = expected
        self.found = found
        self.nearest = nearest
