"""Audits: conditions that staged rows must meet before they are published."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

AuditSeverity: TypeAlias = Literal["error", "warn"]
SHOWN_ROWS: Final = 3
"""How many rows that fail an audit are shown by default."""
SHOWN_CHARACTERS: Final = 80
"""How many characters of a value are shown."""
FAILING_ROWS: Final = "failing rows"
REPEATED_ROWS: Final = "repeated rows"
NUMBER_OF_ROWS: Final = "number of rows"
"""What is counted: rows that fail a condition, rows whose values are repeated, and the rows of each such value."""


def nulls_in(column: str) -> str:
    """Return what is counted in a column that must not hold NULL."""
    return f"NULL in {column}"


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition in Spark SQL, over aggregates of the rows or over each row. A condition that is NULL is met."""

    sql: str

    def __str__(self) -> str:
        return self.sql


@dataclass(frozen=True, slots=True)
class Unique:
    """No two rows have the same values in these columns. NULL equals NULL."""

    columns: tuple[str, ...]

    def __str__(self) -> str:
        return f"unique {', '.join(self.columns)}"


@dataclass(frozen=True, slots=True)
class NotNull:
    """No row has NULL in one of these columns."""

    columns: tuple[str, ...]

    def __str__(self) -> str:
        return f"not null {', '.join(self.columns)}"


@dataclass(frozen=True, slots=True)
class Audit:
    """An audit of an asset. If its severity is `warn`, rows that fail it are published anyway.

    Args:
        setting: Where the audit is written, for messages.
    """

    name: str
    rule: Condition | Unique | NotNull
    severity: AuditSeverity = "error"
    setting: str = "iceberg/audits"


@dataclass(frozen=True, slots=True)
class AuditResult:
    """The result of an audit.

    Args:
        found: What was found, by name: the values of aggregates, or numbers of rows.
        sample: Some rows that fail it, as texts by column.
        source: Whether the result is from the metadata of data files, or from a scan of the rows.
    """

    audit: Audit
    passed: bool
    found: Mapping[str, Any] = field(default_factory=dict)
    sample: tuple[Mapping[str, str], ...] = ()
    source: Literal["metadata", "scan"] = "scan"

    @property
    def forbids_publication(self) -> bool:
        """Whether the rows must not be published."""
        return not self.passed and self.audit.severity == "error"

    def __str__(self) -> str:
        shown = ", ".join(f"{name} = {'NULL' if value is None else value}" for name, value in self.found.items())
        return f"`{self.audit.name}` ({self.audit.rule})" + (f": {shown}" if shown else "")
