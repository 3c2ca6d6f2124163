"""Progress messages at a readable rate."""

import pytest

from dagster_iceberg_spark.spark.write import execution


def test_progress_is_logged_once_per_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 1.0, 10.0, 12.0, 20.5])
    monkeypatch.setattr("time.monotonic", lambda: next(now))
    lines: list[str] = []
    pace = execution._Pace(lines.append, "db.t", 10.0)
    for done in range(4):
        pace.tasks(done, 8)
    assert lines == [
        "Writing db.t: 1 of 8 known tasks done after 10 s.",
        "Writing db.t: 3 of 8 known tasks done after 20 s.",
    ]
