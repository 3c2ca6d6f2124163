"""Engine work of a write that can be stopped. It runs in a separate thread, with a tag that identifies it.

If a thread leaves a call of Spark, the engine continues and commits. Here one thread calls Spark and another one waits.
If the waiting thread is interrupted, it cancels the operations with the tag, and waits for their end.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from pyspark.sql import DataFrame, SparkSession

from dagster_iceberg_spark.plan.partitions.binding import BoundScope
from dagster_iceberg_spark.plan.write.replaced_rows import rows_of_partitions
from dagster_iceberg_spark.plan.write.write_request import Announce, RemoteAttempt, Report, WriteRequest, operation_tag
from dagster_iceberg_spark.spark import expressions
from dagster_iceberg_spark.spark.failures import ENGINE_ERRORS, is_unanswered, translating
from dagster_iceberg_spark.spark.session.runtime import is_connect
from dagster_iceberg_spark.spark.session.session import IcebergSession, active
from dagster_iceberg_spark.spark.versions import version_of
from dagster_iceberg_spark.spark.write.earlier_operations import attempt_in
from dagster_iceberg_spark.table.partitioning import PartitionField
from dagster_iceberg_spark.table.schema import Field
from dagster_iceberg_spark.timeouts import (
    CANCEL_SECONDS,
    POLL_SECONDS,
    REPORT_INTERVAL_SECONDS,
    STOP_SECONDS,
    WAIT_SECONDS,
)

_ResultT = TypeVar("_ResultT")


class TaggedWork:
    """The operations of one attempt on the engine, in one or several sessions.

    Args:
        tag: The tag of its jobs, or of its operations on a Spark Connect server.
        announce: Records the session on a server before the attempt runs there.

    Attributes:
        attempts: The sessions on a server in which the attempt has run.
    """

    def __init__(self, tag: str, announce: Announce) -> None:
        """Start without sessions."""
        self._tag = tag
        self._announce = announce
        self._sessions: list[Any] = []
        self.attempts: list[RemoteAttempt] = []

    @contextmanager
    def within(self, session: SparkSession) -> Iterator[None]:
        """Tag the operations of this thread in the session while the block runs."""
        remote = is_connect(session)
        tags: Any = session if remote else session.sparkContext
        add, remove = (tags.addTag, tags.removeTag) if remote else (tags.addJobTag, tags.removeJobTag)
        if remote:
            self.attempts.append(attempt_in(session, self._tag))
            self._announce(self.attempts[-1])
        add(self._tag)
        self._sessions.append(session)
        try:
            yield
        finally:
            self._sessions.remove(session)
            remove(self._tag)

    def cancel(self) -> None:
        """Cancel the operations with the tag, except those that have not started or are already committing."""
        for session in tuple(self._sessions):
            if is_connect(session):
                with version_of(session).without_retries(session):
                    session.interruptTag(self._tag)
            else:
                session.sparkContext.cancelJobsWithTag(self._tag)


def run_stoppable(
    session: SparkSession, work: TaggedWork, call: Callable[[], _ResultT], *, report: Report, subject: str
) -> _ResultT:
    """Run the call in a separate thread, and stop it if this thread is interrupted.

    Args:
        session: The session of the call.
        work: The operations to stop.
        call: Calls the engine.
        report: Writes a line to the run's log.
        subject: The table.

    Raises:
        BaseException: The error of the call, or the interruption of this thread, after the engine has ended.
    """
    outcome: Future[_ResultT] = Future()
    hand_over = _inheritance(session)

    def run() -> None:
        try:
            hand_over()
            with work.within(session):
                result = call()
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits
            outcome.set_exception(error)
        else:
            outcome.set_result(result)

    threading.Thread(target=run, name="iceberg-write", daemon=True).start()
    try:
        while not outcome.done():
            wait([outcome], timeout=WAIT_SECONDS)
    except BaseException:
        report(_stop(outcome, work, subject))
        raise
    return outcome.result()


def _stop(outcome: "Future[Any]", work: TaggedWork, subject: str) -> str:
    """Stop the work and report the outcome."""
    deadline = time.monotonic() + STOP_SECONDS
    while not outcome.done() and time.monotonic() < deadline:
        with suppress(*ENGINE_ERRORS):  # a server that does not respond now may do so later
            work.cancel()
        wait([outcome], timeout=CANCEL_SECONDS)
    has_ended = outcome.done()
    error = outcome.exception() if has_ended else None
    if not has_ended or (isinstance(error, ENGINE_ERRORS) and is_unanswered(error)):
        return (
            f"Interrupted: the write of {subject} could not be stopped within {STOP_SECONDS:.0f} s; it may commit. A "
            "resumed run stops it, or takes its snapshot over."
        )
    if error is None:
        return f"Interrupted: the write of {subject} had committed already; a resumed run takes its snapshot over."
    return f"Interrupted: the write of {subject} is stopped, nothing is committed."


def _inheritance(session: Any) -> Callable[[], None]:
    """Return a function that copies this thread's scheduler pool, job group, description and tags to another."""
    if is_connect(session):
        tags = session.getTags()

        def add_tags() -> None:
            for tag in tags:
                session.addTag(tag)

        return add_tags
    context = session.sparkContext._jsc.sc()
    properties = context.getLocalProperties().clone()
    return lambda: context.setLocalProperties(properties)


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


_AnswerT = TypeVar("_AnswerT")


def compute_once(session: IcebergSession, request: WriteRequest, frame: DataFrame) -> DataFrame:
    """Return the DataFrame with its rows computed once, so that the write uses the same rows."""

    def compute() -> DataFrame:
        with active(session.spark):
            return version_of(session.spark).checkpoint(frame)

    return run_query(session, request, compute)


def touched_partitions(
    session: IcebergSession,
    request: WriteRequest,
    partition_columns: Sequence[tuple[PartitionField, Field]],
    frame: DataFrame,
) -> BoundScope:
    """Return the rows of the table's partitions that the DataFrame's rows fall in."""
    values = [
        f"{expressions.partition_value(field, column, session.catalog.name)} AS p{index}"
        for index, (field, column) in enumerate(partition_columns)
    ]

    def partitions() -> Sequence[Sequence[Any]]:
        if not values:  # without partition fields, all rows of the table are in one partition
            return [() for _ in frame.limit(1).collect()]
        return [tuple(row) for row in frame.selectExpr(*values).distinct().collect()]

    return rows_of_partitions(partition_columns, run_query(session, request, partitions), subject=request.subject)


def run_query(
    session: IcebergSession, request: WriteRequest, query: Callable[[], _AnswerT], *, action: str = "write"
) -> _AnswerT:
    """Run a query of a write, which a later attempt can stop. `action` names the work in error messages."""
    subject = request.subject
    work = TaggedWork(operation_tag(request.materialization.commit_token), request.announce)
    with (
        translating(session.catalog, action=action, subject=subject),
        reported_progress(session.spark, request.report, subject=subject),
    ):
        return run_stoppable(session.spark, work, query, report=request.report, subject=subject)
