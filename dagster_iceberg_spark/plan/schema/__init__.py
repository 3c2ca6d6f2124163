"""Decides how the columns of a table change. A change that could alter a value is refused."""
