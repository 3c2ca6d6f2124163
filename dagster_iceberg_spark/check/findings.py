"""The findings of a check."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from dagster_iceberg_spark.errors import CatalogUnavailableError, ConfigurationError

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
