"""Requests with a time limit."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TypeVar

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
