"""The order of rows inside a table's files (Iceberg spec, "Sorting")."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class SortField:
    """One field of the order.

    Args:
        column: The column's name.
        direction: Ascending or descending.
        nulls: Where NULLs go; None: first when ascending, last when descending, as Spark has it.
        transform: What is done to the column's values before, as the spec writes it; definitions have the identity.
    """

    column: str
    direction: Literal["asc", "desc"] = "asc"
    nulls: Literal["first", "last"] | None = None
    transform: str = "identity"

    def same_order_as(self, other: "SortField") -> bool:
        """Say whether both put rows into the same order."""
        return _order(self) == _order(other)


def _order(field: SortField) -> tuple[str, str, str, str]:
    nulls = field.nulls or ("first" if field.direction == "asc" else "last")
    return field.column, field.transform, field.direction, nulls
