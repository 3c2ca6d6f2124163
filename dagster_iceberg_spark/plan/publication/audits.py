"""Parses the audits of an asset (`iceberg/audits`)."""

import re
from collections.abc import Mapping
from typing import Any, Final, get_args

from dagster_iceberg_spark.plan.options.values import names, one_of, text
from dagster_iceberg_spark.table.audit import Audit, AuditSeverity, Condition, NotNull, Unique
from dagster_iceberg_spark.table.identifier import NotationError, nearest_of

_NAME: Final = re.compile(r"[A-Za-z0-9_]+", re.ASCII)
_RULES: Final = ("condition", "unique", "not_null")
_SEVERITY: Final = "severity"


def parse_audits(value: Any) -> tuple[Audit, ...]:
    """Parse a dict of names to conditions, or to dicts with a rule and a severity."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{value!r}, which is not a dict")
    return tuple(_audit(name, rule) for name, rule in value.items())


def _audit(name: Any, value: Any) -> Audit:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"the name {name!r}: Dagster allows letters, digits and underscores in the name of a check")
    given = value if isinstance(value, Mapping) else {"condition": value}
    for key in given:
        if key not in (*_RULES, _SEVERITY):
            nearest = nearest_of(str(key), (*_RULES, _SEVERITY))
            raise NotationError(f"the keys {', '.join((*_RULES, _SEVERITY))} in {name!r}", repr(key), nearest)
    rules = [key for key in _RULES if key in given]
    if len(rules) != 1:
        raise NotationError(f"one of {', '.join(_RULES)} in {name!r}", " and ".join(rules) or "none")
    severity: AuditSeverity = one_of(get_args(AuditSeverity))(given.get(_SEVERITY, "error"))
    rule = given[rules[0]]
    match rules[0]:
        case "condition":
            return Audit(name, Condition(text(rule.strip() if isinstance(rule, str) else rule)), severity)
        case "unique":
            return Audit(name, Unique(_columns(rule, name)), severity)
        case _:
            return Audit(name, NotNull(_columns(rule, name)), severity)


def _columns(value: Any, name: str) -> tuple[str, ...]:
    columns = names(value)
    if not columns:
        raise ValueError(f"no columns in {name!r}")
    return tuple(dict.fromkeys(columns))
