"""Whether a session is a Spark Connect session."""

from typing import Any


def is_connect(session: Any) -> bool:
    """Return whether the session is a Spark Connect session."""
    return type(session).__module__.startswith("pyspark.sql.connect")
