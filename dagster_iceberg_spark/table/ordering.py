"""The order of rows inside a table's files (Iceberg spec, "Sorting")."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class SortField:
    """One field of the order.

    Args:
        column: The column's name; for a transform that is not the identity, the spec's form of it.
        direction: Ascending or descending.
        nulls: Where NULLs go; None: first when ascending, last when descending, as Spark has it.
    """

    column: str
    direction: Literal["asc", "desc"] = "asc"
    nulls: Literal["first", "last"] | None = None

    def same_order_as(self, other: "SortField") -> bool:
        """Say whether both put rows into the same order."""
        return _order(self) == _order(other)


def _order(field: SortField) -> tuple[str, str, str]:
    return field.column, field.direction, field.nulls or ("first" if field.direction == "asc" else "last")
