"""Reports the progress of a long write."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from dagster_iceberg_spark.plan.write_request import Report
from dagster_iceberg_spark.spark.connect import is_connect
from dagster_iceberg_spark.spark.engine_failure import ENGINE_ERRORS
from dagster_iceberg_spark.spark.versions import version_of
from dagster_iceberg_spark.timeouts import POLL_SECONDS, REPORT_INTERVAL_SECONDS


@contextmanager
def reported_progress(
    session: SparkSession, report: Report, *, subject: str, interval_seconds: float = REPORT_INTERVAL_SECONDS
) -> Iterator[None]:
    """Report the number of finished tasks at intervals while the block runs."""
    watch = _connect_watch if is_connect(session) else _classic_watch
    with watch(session, _Pace(report, subject, interval_seconds)):
        yield


class _Pace:
    """Reports at most one line per interval. It never raises: a handler's error would fail a committed write."""

    def __init__(self, report: Report, subject: str, interval_seconds: float) -> None:
        self._report = report
        self._subject = subject
        self._interval_seconds = interval_seconds
        self._started = self._last = time.monotonic()

    def tasks(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._last < self._interval_seconds:
            return
        self._last = now
        self._report(f"Writing {self._subject}: {done} of {total} known tasks done after {now - self._started:.0f} s.")


@contextmanager
def _connect_watch(session: SparkSession, pace: _Pace) -> Iterator[None]:
    def handler(*, stages: list[Any] | None = None, **_: object) -> None:
        known = stages or []
        pace.tasks(sum(stage.num_completed_tasks for stage in known), sum(stage.num_tasks for stage in known))

    with version_of(session).progress(session, handler):
        yield


@contextmanager
def _classic_watch(session: SparkSession, pace: _Pace) -> Iterator[None]:
    stopped = threading.Event()
    tracker = session.sparkContext.statusTracker()

    def poll() -> None:
        while not stopped.wait(POLL_SECONDS):
            try:
                stages = [tracker.getStageInfo(stage_id) for stage_id in tracker.getActiveStageIds()]
            except ENGINE_ERRORS:
                return
            known = [stage for stage in stages if stage is not None]
            if known:
                pace.tasks(sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known))

    thread = threading.Thread(target=poll, name="iceberg-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join(timeout=POLL_SECONDS)
