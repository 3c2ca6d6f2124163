"""The error for a text that does not follow its notation, such as the name of a column or a table."""


class NotationError(ValueError):
    """A text that does not follow its notation, with a similar valid text if there is one."""

    def __init__(self, expected: str, found: str, nearest: str | None = None) -> None:
        super().__init__(f"expected {expected}, found {found}")
        self.expected = expected
        self.found = found
        self.nearest = nearest
