"""Garbage collection of a Spark Connect session, which must not wait for the server."""

from pathlib import Path

from dagster_iceberg_spark.spark.session.session import _leave_to_its_stop


def test_garbage_collection_of_a_session_does_not_close_it() -> None:
    closed: list[str] = []

    class Session:
        def __del__(self) -> None:
            closed.append("by the garbage collector")

        def stop(self) -> None:
            closed.append("by its owner")

    for _ in range(2):  # the second call does nothing
        _leave_to_its_stop(Session)
    session = Session()
    session.stop()
    del session
    assert closed == ["by its owner"]


def test_spark_connect_sessions_still_have_a_finalizer() -> None:
    """If pyspark removes the finalizer, this package's workaround can be removed too."""
    from pyspark.sql.connect import session

    assert "def __del__(self)" in Path(session.__file__).read_text(encoding="utf-8")
