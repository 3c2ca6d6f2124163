"""The order of rows inside a table's files (Iceberg spec, "Sorting")."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class SortField:
    """One field of a sort order. Without `nulls`, Spark's default: NULL first if ascending, last if descending."""

    column: str
    direction: Literal["asc", "desc"] = "asc"
    nulls: Literal["first", "last"] | None = None
    transform: str = "identity"

    def same_order_as(self, other: "SortField") -> bool:
        """Return whether both fields sort rows in the same order."""
        return _order(self) == _order(other)


def _order(field: SortField) -> tuple[str, str, str, str]:
    nulls = field.nulls or ("first" if field.direction == "asc" else "last")
    return field.column, field.transform, field.direction, nulls
