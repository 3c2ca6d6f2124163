"""The findings of a check."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, TypeAlias

from dagster_iceberg_spark.catalog.description import first_line
from dagster_iceberg_spark.errors import CatalogUnavailableError, ConfigurationError, IcebergSparkError
from dagster_iceberg_spark.timeouts import STEP_SECONDS, SilenceError, answer_within

Outcome: TypeAlias = Literal["ok", "differs", "failed", "not tried"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The finding of one step.

    Args:
        subject: The catalog or the asset.
        step: The name of the step.
        outcome: `differs` if the next write changes the table; `not tried` if an earlier step failed.
        found: What the step found, or the error.
        setting: The settings to check if the step failed.
        seconds: How long the step took, in seconds.
        is_transient: Whether the step may succeed if it is tried again.
    """

    subject: str
    step: str
    outcome: Outcome
    found: str = ""
    setting: str = ""
    seconds: float = 0.0
    is_transient: bool = False

    def __str__(self) -> str:
        """Return the finding in one line."""
        change = f" To change: {self.setting}." if self.outcome == "failed" and self.setting else ""
        return f"{self.step} of {self.subject}: {self.outcome}. {self.found}{change}".strip()


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The findings of all steps.

    Args:
        findings: One finding for each step, in order.
    """

    findings: tuple[Finding, ...]

    @property
    def is_fit(self) -> bool:
        """Whether no step failed. Tables may still differ from their definitions."""
        return not self.failures

    @property
    def has_differences(self) -> bool:
        """Whether the next write changes a table."""
        return any(finding.outcome == "differs" for finding in self.findings)

    @property
    def failures(self) -> tuple[Finding, ...]:
        """The findings of the steps that failed."""
        return tuple(finding for finding in self.findings if finding.outcome == "failed")

    def require(self) -> None:
        """Raise if a step failed.

        Raises:
            ConfigurationError: A step failed. The message has all failures.
            CatalogUnavailableError: The same, if trying again may help.
        """
        if not self.is_fit:
            is_transient = all(finding.is_transient for finding in self.failures)
            error = CatalogUnavailableError if is_transient else ConfigurationError
            raise error("\n".join(map(str, self.failures)))

    def document(self) -> dict[str, Any]:
        """Return the report as plain values, for JSON."""
        return {"is_fit": self.is_fit, "findings": [asdict(finding) for finding in self.findings]}

    def __str__(self) -> str:
        """Return one line for each step."""
        return "\n".join(map(str, self.findings))


def report_of(findings: Iterable[Finding]) -> CheckReport:
    """Run all steps and return their findings."""
    return CheckReport(tuple(findings))


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
