"""The error for a text that does not follow its notation, such as the name of a column or a table."""


class NotationError(ValueError):
    """A text that does not follow its notation.

    Args:
        expected: The valid texts, in words.
        found: The text that was found.
        nearest: A similar valid text, or None if there is none.
    """

    def __init__(self, expected: str, found: str, nearest: str | None = None) -> None:
        """Store the parts of the message."""
        super().__init__(f"expected {expected}, found {found}")
        self.expected = expected
        self.found = found
        self.nearest = nearest
