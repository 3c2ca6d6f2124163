"""Checks of the rows that a table shows: audits, and what the summaries of its snapshots show."""

import datetime as dt
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from itertools import islice
from typing import Any, Final, TypeAlias

from dagster_iceberg_spark.plan.options.metadata_key import duration, duration_text, names
from dagster_iceberg_spark.table.audit import Audit, AuditSeverity, Condition, NotNull, Unique
from dagster_iceberg_spark.table.change import outdates_derived_rows
from dagster_iceberg_spark.table.identifier import NotationError, free_name, nearest_of, quote_part
from dagster_iceberg_spark.table.snapshot import Snapshot
from dagster_iceberg_spark.table.sql_text import text_literal

Bound: TypeAlias = int | float | Decimal | str | dt.date | dt.datetime | None
Bounds: TypeAlias = Sequence[Bound]
COMPARED_SNAPSHOTS: Final = 10
"""With how many earlier snapshots the newest is compared."""
_FIGURES: Final[Mapping[str, Callable[[Snapshot], int]]] = {
    "rows": lambda snapshot: snapshot.count("total-records") - snapshot.count("total-position-deletes"),
    "bytes": lambda snapshot: snapshot.count("total-files-size"),
    "added_rows": lambda snapshot: snapshot.count("added-records"),
}
"""Figures in the summary of a snapshot (Iceberg spec, "Metrics")."""


@dataclass(frozen=True, slots=True)
class SummaryResult:
    """The result of a check of summaries, and what was found by name."""

    passed: bool
    found: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Freshness:
    """The rows have changed within a time."""

    maximum_age: dt.timedelta

    @property
    def name(self) -> str:
        """The name of the check."""
        return "fresh"

    def __str__(self) -> str:
        return f"rows have changed within {duration_text(self.maximum_age)}"

    def result(self, snapshots: Iterable[Snapshot], now: dt.datetime) -> SummaryResult:
        """Return the result for a table with these snapshots, newest first."""
        newest = next(filter(outdates_derived_rows, snapshots), None)
        if newest is None:
            return SummaryResult(passed=False, found={"newest snapshot": "none"})
        hours = round((now - newest.committed_at).total_seconds() / 3600, 2)
        found = {"newest snapshot": str(newest.snapshot_id), "age in hours": hours}
        return SummaryResult(passed=now - newest.committed_at <= self.maximum_age, found=found)


@dataclass(frozen=True, slots=True)
class Change:
    """A figure of the newest snapshot differs from the median of earlier ones by at most a share of it."""

    figure: str
    share: float

    @property
    def name(self) -> str:
        """The name of the check."""
        return f"change_in_{self.figure}"

    def __str__(self) -> str:
        return f"{self.figure} within {self.share:.0%} of the median of {COMPARED_SNAPSHOTS} snapshots before"

    def result(self, snapshots: Iterable[Snapshot], now: dt.datetime) -> SummaryResult:  # noqa: ARG002 - as Freshness
        """Return the result for a table with these snapshots, newest first. The first snapshot passes."""
        figure_of = _FIGURES[self.figure]
        newest, *earlier = [
            figure_of(item) for item in islice(filter(outdates_derived_rows, snapshots), COMPARED_SNAPSHOTS + 1)
        ] or [0]
        if not earlier:
            return SummaryResult(passed=True, found={self.figure: newest, "earlier snapshots": 0})
        median = statistics.median(earlier)
        found = {self.figure: newest, "median": median, "earlier snapshots": len(earlier)}
        return SummaryResult(passed=abs(newest - median) <= self.share * median, found=found)


@dataclass(frozen=True, slots=True)
class DataChecks:
    """The checks of an asset's rows.

    Args:
        audits: Those that look at rows, or at the metadata of their files.
        summaries: Those that look at the summaries of snapshots.
    """

    audits: tuple[Audit, ...]
    summaries: tuple[Freshness | Change, ...]

    @property
    def rules(self) -> Mapping[str, str]:
        """What each check demands, by its name."""
        audits = {audit.name: str(audit.rule) for audit in self.audits}
        return audits | {check.name: str(check) for check in self.summaries}


def parse_data_checks(
    *,
    not_null: Sequence[str] = (),
    in_range: Mapping[str, Bounds] | None = None,
    unique: Sequence[str] = (),
    row_count: Bounds | int | None = None,
    fresh: dt.timedelta | str | None = None,
    change: Mapping[str, float] | None = None,
    severity: AuditSeverity = "error",
) -> DataChecks:
    """Return the checks that a user asks for.

    Raises:
        ValueError: A value is invalid. The text begins with the name of the argument.
    """
    audit = partial(Audit, severity=severity, setting="build_data_checks")
    columns = _argument("not_null", names, not_null)
    words = _words((*columns, *(in_range or {})))
    audits = [audit(f"not_null_{words[name]}", NotNull((name,))) for name in columns]
    for name, bounds in (in_range or {}).items():
        condition = _argument("in_range", partial(_within, quote_part(name)), bounds)
        audits.append(audit(f"in_range_{words[name]}", Condition(condition)))
    if unique:
        audits.append(audit("unique", Unique(_argument("unique", names, unique))))
    if row_count is not None:
        bounds = (row_count, None) if isinstance(row_count, int) else row_count
        condition = _argument("row_count", partial(_within, "count(*)"), bounds)
        audits.append(audit("row_count", Condition(condition)))
    summaries: list[Freshness | Change] = []
    if fresh is not None:
        summaries.append(Freshness(_argument("fresh", duration, fresh)))
    summaries += [_argument("change", _change, item) for item in (change or {}).items()]
    if not audits and not summaries:
        raise ValueError("expected at least one check, found none")
    return DataChecks(tuple(audits), tuple(summaries))


def _argument(name: str, parse: Callable[[Any], Any], value: Any) -> Any:
    try:
        return parse(value)
    except NotationError as error:
        hint = "" if error.hint is None else f" ({error.hint})"
        raise ValueError(f"`{name}`: expected {error.expected}, found {error.found}{hint}") from error
    except (TypeError, ValueError) as error:
        raise ValueError(f"`{name}`: found {error}") from error


def _change(item: tuple[str, Any]) -> Change:
    figure, share = item
    if figure not in _FIGURES:
        raise NotationError(f"the figures {', '.join(_FIGURES)}", repr(figure), nearest_of(figure, tuple(_FIGURES)))
    if not isinstance(share, int | float) or isinstance(share, bool) or share < 0:
        raise NotationError("a share such as 0.5", repr(share))
    return Change(figure, float(share))


def _within(value: str, bounds: Any) -> str:
    """Return the condition that a value in SQL is not outside of two bounds."""
    match bounds:
        case (None, None) | str():
            raise _no_bounds(bounds)
        case (low, high):
            terms = [] if low is None else [f"{value} >= {_literal(low)}"]
            return " AND ".join(terms if high is None else [*terms, f"{value} <= {_literal(high)}"])
        case _:
            raise _no_bounds(bounds)


def _no_bounds(found: Any) -> NotationError:
    return NotationError("a lower and an upper bound, of which one may be None", repr(found))


def _literal(value: Any) -> str:
    match value:
        case bool():
            raise NotationError("a number, a text, a date or an instant", repr(value))
        case int() | float() | Decimal():
            return str(value)
        case dt.datetime():
            return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
        case dt.date():
            return f"DATE '{value.isoformat()}'"
        case str():
            return text_literal(value)
        case _:
            raise NotationError("a number, a text, a date or an instant", repr(value))


def _words(names: Iterable[str]) -> dict[str, str]:
    """Return a name for each column that Dagster allows for a check. Columns that look alike get numbers."""
    found: dict[str, str] = {}
    for name in dict.fromkeys(names):
        word = "".join(character if character.isascii() and character.isalnum() else "_" for character in name)
        found[name] = free_name(word, found.values())
    return found
