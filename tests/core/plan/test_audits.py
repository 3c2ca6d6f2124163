"""Audits as values: what `iceberg/audits` means, and how a result reads."""

from typing import Any, Literal

import pytest

from dagster_iceberg_spark.plan.options.output_options import parse_audits
from dagster_iceberg_spark.table.audit import Audit, AuditResult, Condition, NotNull, Unique


@pytest.mark.parametrize(
    ("value", "audit"),
    [
        ("count(*) > 0", Audit("a", Condition("count(*) > 0"))),
        (" v > 0\n", Audit("a", Condition("v > 0"))),
        ({"condition": " v > 0 ", "severity": "warn"}, Audit("a", Condition("v > 0"), "warn")),
        ({"severity": "error", "condition": "v > 0"}, Audit("a", Condition("v > 0"), "error")),
        ({"unique": "id"}, Audit("a", Unique(("id",)))),
        ({"unique": ["id", "day", "id"], "severity": "warn"}, Audit("a", Unique(("id", "day")), "warn")),
        ({"not_null": ("id", "it's 1")}, Audit("a", NotNull(("id", "it's 1")))),
    ],
)
def test_an_audit_is_a_condition_or_a_rule(value: Any, audit: Audit) -> None:
    assert parse_audits({"a": value}) == (audit,)


def test_audits_keep_their_order() -> None:
    assert [audit.name for audit in parse_audits({"b": "x > 0", "_1": "y > 0", "A": {"unique": "x"}})] == [
        "b",
        "_1",
        "A",
    ]
    assert parse_audits({}) == ()


@pytest.mark.parametrize("value", [None, "v > 0", [("a", "v > 0")], 3])
def test_audits_are_a_dict(value: Any) -> None:
    with pytest.raises(TypeError, match="which is not a dict"):
        parse_audits(value)


@pytest.mark.parametrize("name", ["", "a b", "a.b", "größe", "a\n", "a-b", 3, None, ("a",)])
def test_a_name_is_one_of_a_check(name: Any) -> None:
    with pytest.raises(ValueError, match="Dagster allows letters, digits and underscores"):
        parse_audits({name: "v > 0"})


@pytest.mark.parametrize(
    "value",
    [
        None,
        3,
        ["v > 0"],
        {},
        {"severity": "warn"},
        {"condition": 3},
        {"condition": "v > 0", "unique": "v"},
        {"condition": "v > 0", "severity": "WARN"},
        {"unique": ()},
        {"unique": [""]},
        {"unique": None},
        {"not_null": ["v", 3]},
        {"not_null": {"v": 1}},
        {3: "v > 0"},
        {None: "v > 0", "condition": "v > 0"},
    ],
    ids=repr,
)
def test_anything_else_is_refused(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        parse_audits({"a": value})


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (Condition("min(v) > 0"), "min(v) > 0"),
        (Unique(("id", "day")), "unique id, day"),
        (NotNull(("id",)), "not null id"),
    ],
)
def test_a_rule_reads_as_text(rule: Condition | Unique | NotNull, text: str) -> None:
    assert str(rule) == text
    assert str(AuditResult(Audit("a", rule), passed=True)) == f"`a` ({text})"
    found = AuditResult(Audit("a", rule), passed=False, found={"rows": 0, "min(v)": -1.5})
    assert str(found) == f"`a` ({text}): rows = 0, min(v) = -1.5"


@pytest.mark.parametrize(
    ("severity", "passed", "forbids"),
    [("error", False, True), ("error", True, False), ("warn", False, False), ("warn", True, False)],
)
def test_only_a_failed_audit_that_is_an_error_forbids_the_publication(
    severity: Literal["error", "warn"], *, passed: bool, forbids: bool
) -> None:
    audit = Audit("a", Condition("v > 0"), severity)
    assert AuditResult(audit, passed=passed).forbids_publication is forbids
