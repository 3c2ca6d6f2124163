"""A session of Spark Connect that nobody holds any more is collected, and nothing waits for it."""

from pathlib import Path

from dagster_iceberg_spark.spark.session import _leave_to_its_stop


def test_garbage_is_collected_without_closing_what_other_sessions_share() -> None:
    closed: list[str] = []

    class Session:
        def __del__(self) -> None:
            closed.append("by the garbage collector")

        def stop(self) -> None:
            closed.append("by its owner")

    for _ in range(2):  # a second time nothing is done
        _leave_to_its_stop(Session)
    session = Session()
    session.stop()
    del session
    assert closed == ["by its owner"]


def test_spark_connect_has_the_finalizer_that_is_taken() -> None:
    """Where it has none any more, neither has this."""
    from pyspark.sql.connect import session

    assert "def __del__(self)" in Path(session.__file__).read_text(encoding="utf-8")
