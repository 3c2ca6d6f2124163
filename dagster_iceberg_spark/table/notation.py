"""Texts that name columns, transforms and tables, where they cannot be read."""


class NotationError(ValueError):
    """A text that does not follow its notation.

    Args:
        expected: What would have been right.
        found: What was there.
    """

    def __init__(self, expected: str, found: str) -> None:
        """Keep both parts beside the message."""
        super().__init__(f"expected {expected}, found {found}")
        self.expected = expected
        self.found = found
