"""The steps of a check, which run in order, each with a time limit."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from dagster_iceberg_spark.catalog.first_line import first_line
from dagster_iceberg_spark.catalog.waiting import SilenceError, answer_within
from dagster_iceberg_spark.check.findings import Finding, Outcome
from dagster_iceberg_spark.errors import CatalogUnavailableError, IcebergSparkError
from dagster_iceberg_spark.timeouts import STEP_SECONDS

THREAD_NAME: Final = "iceberg-check"
"""Prefix of the names of the threads that run the steps."""

Redact = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a step found, and whether the step may succeed if it is tried again."""

    found: str
    outcome: Outcome = "ok"
    is_transient: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a check: its name, its request, which returns or raises, and the settings to check if it fails."""

    name: str
    ask: Callable[[], Answer | str]
    setting: str


def findings(
    subject: str, steps: Sequence[Step], *, seconds: float = STEP_SECONDS, redact: Redact = str
) -> Iterator[Finding]:
    """Run the steps until one fails, and yield the finding of each.

    A step that exceeds its time limit has failed, but keeps running.
    """
    for position, step in enumerate(steps):
        finding = finding_of(subject, step, seconds=seconds, redact=redact)
        yield finding
        if finding.outcome == "failed":
            yield from (Finding(subject, later.name, "not tried") for later in steps[position + 1 :])
            return


def finding_of(subject: str, step: Step, *, seconds: float = STEP_SECONDS, redact: Redact = str) -> Finding:
    """Run one step."""
    started = time.monotonic()
    try:
        answer = _in_time(step, seconds)
    except IcebergSparkError as error:
        answer = Answer(str(error), "failed", is_transient=error.allows_retries)
    except Exception as error:  # noqa: BLE001 - a check reports any failure
        answer = Answer(f"{type(error).__name__}: {first_line(error)}", "failed")
    taken = round(time.monotonic() - started, 3)
    setting = step.setting if answer.outcome == "failed" else ""
    found = redact(answer.found)
    return Finding(subject, step.name, answer.outcome, found, setting, taken, is_transient=answer.is_transient)


def _in_time(step: Step, seconds: float) -> Answer:
    try:
        answer = answer_within(seconds, step.ask, thread_name=f"{THREAD_NAME} {step.name}")
    except SilenceError:
        raise CatalogUnavailableError.refusing(
            "check", step.name, expected=f"an answer within {seconds:.0f} s", found="none"
        ) from None
    return Answer(answer) if isinstance(answer, str) else answer
