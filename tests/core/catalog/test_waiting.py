"""Requests that do not answer, and what is shown of their errors."""

import threading

import pytest
from pydantic import BaseModel, ValidationError

from dagster_iceberg_spark.catalog.description import first_line
from dagster_iceberg_spark.timeouts import SilenceError, answer_within


def test_an_answer_is_returned() -> None:
    assert answer_within(5, lambda: threading.current_thread().name, thread_name="asks") == "asks"


def test_an_error_of_the_request_is_raised() -> None:
    def fail() -> None:
        raise KeyError("t")

    with pytest.raises(KeyError, match="t"):
        answer_within(5, fail, thread_name="asks")


def test_silence_is_an_error_and_the_request_goes_on() -> None:
    released, ended = threading.Event(), threading.Event()

    def wait() -> None:
        released.wait(30)
        ended.set()

    with pytest.raises(SilenceError):
        answer_within(0.01, wait, thread_name="asks")
    released.set()
    assert ended.wait(30)


def test_a_timeout_of_the_request_itself_is_not_silence() -> None:
    def fail() -> None:
        raise TimeoutError("the client's own")

    with pytest.raises(TimeoutError, match="the client's own") as caught:
        answer_within(5, fail, thread_name="asks")
    assert not isinstance(caught.value, SilenceError)


def test_the_first_line_of_an_error_is_shown() -> None:
    assert first_line(OSError("refused\nat line 7")) == "refused"
    assert first_line(OSError()) == "OSError"
    assert len(first_line(OSError("x" * 1000))) == 400


def test_values_of_a_malformed_answer_are_not_shown() -> None:
    class Answer(BaseModel):
        token: int

    with pytest.raises(ValidationError) as caught:
        Answer.model_validate({"token": "p4ssw0rd"})
    shown = first_line(caught.value)
    assert shown.startswith("Answer: token: ")
    assert "p4ssw0rd" not in shown
