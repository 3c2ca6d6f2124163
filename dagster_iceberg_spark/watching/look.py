"""Looks at a watched table, if it may have changed since the last tick."""

from dataclasses import dataclass
from typing import Any

import dagster as dg

from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.plan.watching import Seen
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.snapshot import TableState


@dataclass(frozen=True, slots=True)
class WatchedTable:
    """A table that a sensor watches, and its asset."""

    spec: dg.AssetSpec
    identifier: TableIdentifier
    branch: str

    @property
    def name(self) -> str:
        """The asset, with slashes between the parts of its key."""
        return "/".join(self.spec.key.path)


@dataclass(frozen=True, slots=True)
class Sight:
    """What a sensor sees of a table.

    Args:
        state: The state of the table.
        before: What it has seen before, or None at the first look.
        now: What there is to see now.
    """

    state: TableState
    before: Seen | None
    now: Seen


def look_again(catalog: CatalogDescription, table: WatchedTable, recorded: Any) -> Sight | None:
    """Return the table, or None if it does not exist, has no snapshot, or has not changed.

    Args:
        catalog: The catalog.
        table: The table.
        recorded: What the cursor has recorded of it, or None at the first look.

    Raises:
        CatalogUnavailableError: The catalog does not respond.
    """
    from dagster_iceberg_spark.catalog.look import look, pointer_of

    before = None if recorded is None else Seen.parse(recorded)
    pointer = pointer_of(catalog, table.identifier)
    if before is not None and pointer is not None and pointer == before.pointer:
        return None
    state = look(catalog, table.identifier)
    if state is None or table.branch not in state.refs:
        return None
    return Sight(state, before, Seen.of(state, table.branch, pointer))
