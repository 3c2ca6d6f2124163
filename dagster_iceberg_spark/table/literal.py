"""Literals of Spark SQL."""


def text_literal(value: str) -> str:
    """Return a string literal with Spark's default escaping."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return "'" + escaped.replace("${", "\\u0024{") + "'"  # Spark would substitute a variable
