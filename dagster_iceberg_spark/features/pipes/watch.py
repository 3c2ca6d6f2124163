"""Looks for the snapshot of a job while the job runs, because a job may hang after its commit."""

import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

import dagster as dg

from dagster_iceberg_spark.errors import IcebergSparkError

_INTERRUPTS: Final = (dg.DagsterExecutionInterruptedError, KeyboardInterrupt)
_DELIVERY_SECONDS: Final = 5.0
_EndedT = TypeVar("_EndedT")


class CommitWatch:
    """Looks for the snapshot at intervals while a job runs, in a thread.

    It ends the job by the interrupt by which Dagster ends a run, so any client ends its job in its own way. Only the
    main thread can be interrupted. In another thread, the watch only reports.

    Args:
        has_committed: Whether the snapshot is there.
        report: Receives a line when it is found.
        interval_seconds: The seconds between two looks.
        ends_after_seconds: The seconds that the job may go on after its commit, or None for as long as it takes.
    """

    def __init__(
        self,
        has_committed: Callable[[], bool],
        report: Callable[[str], None],
        *,
        interval_seconds: float,
        ends_after_seconds: float | None,
    ) -> None:
        self._has_committed = has_committed
        self._report = report
        self._interval = interval_seconds
        self._ends_after = ends_after_seconds
        self._main = threading.main_thread() if threading.current_thread() is threading.main_thread() else None
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._has_interrupted = False

    def run(self, job: Callable[[], _EndedT]) -> _EndedT | None:
        """Run the job, and return what it returns, or None if it was ended after its commit."""
        try:
            try:
                threading.Thread(target=self._look, name="commit watch", daemon=True).start()
                return job()
            finally:
                with self._lock:
                    self._ended.set()
                if self._has_interrupted and not isinstance(sys.exc_info()[1], _INTERRUPTS):
                    time.sleep(_DELIVERY_SECONDS)  # the interrupt is on its way, and must not reach what comes next
        except _INTERRUPTS:
            if not self._has_interrupted:
                raise
            return None

    def _look(self) -> None:
        found_at: float | None = None
        while not self._ended.wait(self._interval):
            if found_at is None and self._is_committed():
                found_at = time.monotonic()
                self._report("The job has committed its snapshot, and has not ended yet.")
            if found_at is None or self._ends_after is None or self._main is None:
                continue
            if time.monotonic() - found_at >= self._ends_after:
                self._report(f"The job still runs {self._ends_after:.0f} s after its commit, and is ended.")
                with self._lock:
                    if not self._ended.is_set():
                        self._has_interrupted = True
                        signal.pthread_kill(self._main.ident or 0, signal.SIGINT)
                return

    def _is_committed(self) -> bool:
        try:
            return self._has_committed()
        except IcebergSparkError:  # a catalog that does not answer: the next look may
            return False
