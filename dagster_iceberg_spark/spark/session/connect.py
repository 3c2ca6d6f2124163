"""What a session runs on: a Spark Connect server, a cluster."""

from typing import Any


def is_connect(session: Any) -> bool:
    """Return whether the session is a Spark Connect session."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def loses_executors(session: Any) -> bool:
    """Return whether the executors of the session are processes apart from its driver."""
    master = session.conf.get("spark.master", "local") if is_connect(session) else session.sparkContext.master
    return str(master).partition("[")[0] != "local"


def is_in_process(session: Any) -> bool:
    """Return whether this process's own JVM is the driver of the session and its only executor."""
    return not is_connect(session) and not loses_executors(session)
