"""Steps of a check, run one after the other."""

import threading

import pytest

from dagster_iceberg_spark import CheckReport, ConfigurationError, Finding
from dagster_iceberg_spark.check.findings import Answer, Step, findings, report_of


def failing(error: Exception) -> Step:
    def ask() -> str:
        raise error

    return Step("second", ask, "the `uri`")


def taken(*steps: Step, seconds: float = 60) -> CheckReport:
    return report_of(findings("lake", steps, seconds=seconds, redact=lambda text: text.replace("hush", "***")))


FIRST = Step("first", lambda: "fine", "nothing")
THIRD = Step("third", lambda: "never", "nothing")


def test_a_failed_step_is_the_last_and_names_the_setting() -> None:
    report = taken(FIRST, failing(ConfigurationError("Cannot.")), THIRD)
    assert [(item.step, item.outcome) for item in report.findings] == [
        ("first", "ok"),
        ("second", "failed"),
        ("third", "not tried"),
    ]
    assert str(report.failures[0]) == "second of lake: failed. Cannot. To change: the `uri`."
    with pytest.raises(ConfigurationError, match="the `uri`"):
        report.require()


@pytest.mark.parametrize("error", [RuntimeError("hush"), ConfigurationError("hush")])
def test_errors_of_a_step_are_reported_without_secrets(error: Exception) -> None:
    [finding] = taken(failing(error)).findings
    assert finding.outcome == "failed"
    assert "***" in finding.found
    assert "hush" not in str(finding)


def test_a_hanging_step_fails_at_its_timeout() -> None:
    over = threading.Event()
    [finding] = taken(Step("first", lambda: "late" if over.wait() else "", "the `uri`"), seconds=0.2).findings
    over.set()
    assert finding.found == "Cannot check first: expected an answer within 0 s, found none."


def test_a_timeout_raised_by_a_step_is_reported_as_its_error() -> None:
    [finding] = taken(failing(TimeoutError("of the client"))).findings
    assert finding.found == "TimeoutError: of the client"


def test_a_difference_is_not_a_failure() -> None:
    report = taken(Step("table", lambda: Answer("another spec", "differs"), ""), FIRST)
    assert (report.is_fit, report.has_differences) == (True, True)
    report.require()


def test_a_report_consists_of_plain_values() -> None:
    assert CheckReport((Finding("lake", "first", "ok", "fine"),)).document() == {
        "is_fit": True,
        "findings": [
            {
                "subject": "lake",
                "step": "first",
                "outcome": "ok",
                "found": "fine",
                "setting": "",
                "seconds": 0.0,
                "is_transient": False,
            }
        ],
    }
