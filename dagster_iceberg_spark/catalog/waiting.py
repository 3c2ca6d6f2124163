"""Questions that somebody else answers, or does not."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TypeVar

_AnswerT = TypeVar("_AnswerT")


class SilenceError(FutureTimeoutError):
    """There is no answer yet; a timeout of the question's own is not this one."""


def answer_within(seconds: float, question: Callable[[], _AnswerT], *, thread_name: str) -> _AnswerT:
    """Ask in a thread of its own and return the answer.

    Args:
        seconds: How long to wait. What is asked goes on after that.
        question: What to ask.
        thread_name: The thread's name.

    Raises:
        SilenceError: There is no answer within that time; whatever else the question raises is raised here.
    """
    answer: Future[_AnswerT] = Future()

    def ask() -> None:
        try:
            answer.set_result(question())
        except BaseException as error:  # noqa: BLE001 - handed to the thread that asked
            answer.set_exception(error)

    # A daemon, so that what stays silent does not keep the process from ending.
    threading.Thread(target=ask, name=thread_name, daemon=True).start()
    try:
        return answer.result(timeout=seconds)
    except FutureTimeoutError:
        if answer.done():
            raise
        raise SilenceError from None
