"""How long the package waits, for what, and how often it looks. All of them are in seconds."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Final, TypeVar

# A catalog or a store, for reads without a JVM and for the looks of a write
CONNECT_TIMEOUT_SECONDS: Final = 5.0
"""Until a server accepts a connection."""
ANSWER_TIMEOUT_SECONDS: Final = 60.0
"""Until a catalog answers."""

# A catalog's own clients, in Spark and in pyiceberg
CLIENT_CONNECT_TIMEOUT_SECONDS: Final = 10
"""Until a database or a REST catalog accepts a connection."""
CLIENT_ANSWER_TIMEOUT_SECONDS: Final = 60
"""Until a REST catalog or a metastore answers."""
SQLITE_BUSY_TIMEOUT_SECONDS: Final = 60
"""Until another process has written to the SQLite database of a catalog."""

# A mirror
MIRROR_LOCK_SECONDS: Final = 30.0
"""Until another process has written to the database of a DuckLake."""

# A Spark session
JAVA_VERSION_SECONDS: Final = 60
"""Until `java -version` answers."""
IDLE_SECONDS: Final = 300.0
"""After which a session is asked whether its server still knows it."""
HANDED_OUT_IDLE_SECONDS: Final = 10.0
"""The same for a session whose address a service hands out."""
REFRESH_SECONDS: Final = 60.0
"""Between two looks for credentials that are about to expire."""

# A write
FIRST_WAIT_SECONDS: Final = 0.1
"""Before the second attempt; the waits grow from here, with jitter."""
LONGEST_WAIT_SECONDS: Final = 5.0
"""The longest wait before an attempt."""
SETTLING_SECONDS: Final = (0.0, 0.5, 1.5, 4.0)
"""Before each look for a commit whose answer was lost: a catalog may still be working on it."""
REPORT_INTERVAL_SECONDS: Final = 10.0
"""Between two lines of progress in the run's log."""
POLL_SECONDS: Final = 1.0
"""Between two questions for Spark's progress."""

# An interrupted write
WAIT_SECONDS: Final = 1.0
"""How long one wait for a write lasts, so that an interruption is noticed."""
CANCEL_SECONDS: Final = 0.05
"""Between two requests to cancel."""
STOP_SECONDS: Final = 30.0
"""Until an interrupted write has ended."""
INTERRUPT_ANSWER_SECONDS: Final = 10.0
"""Until a Spark Connect server answers a request to interrupt."""
END_SECONDS: Final = 60.0
"""Until an interrupted operation of an earlier attempt has ended on a Spark Connect server."""

# The check
STEP_SECONDS: Final = 300.0
"""For one step of the check: a first session downloads its libraries."""

_AnswerT = TypeVar("_AnswerT")


class SilenceError(FutureTimeoutError):
    """There is no response within the time limit. A timeout that the request itself raises is a different error."""


def answer_within(seconds: float, request: Callable[[], _AnswerT], *, thread_name: str) -> _AnswerT:
    """Send a request in a separate thread and return the response. After the time limit, the request continues."""
    answer: Future[_AnswerT] = Future()

    def ask() -> None:
        try:
            answer.set_result(request())
        except BaseException as error:  # noqa: BLE001 - raised in the calling thread
            answer.set_exception(error)

    # A daemon thread, so that a silent request does not keep the process from ending.
    threading.Thread(target=ask, name=thread_name, daemon=True).start()
    try:
        return answer.result(timeout=seconds)
    except FutureTimeoutError:
        if answer.done():
            raise
        raise SilenceError from None
