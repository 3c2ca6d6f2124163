"""Looks at a watched table, if it may have changed since the last tick."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import dagster as dg

from dagster_iceberg_spark.assets.address import plain_metadata
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.errors import in_words
from dagster_iceberg_spark.features.watching.plan import Seen
from dagster_iceberg_spark.plan.options import BRANCH, parse_key
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.snapshot import MAIN_BRANCH, TableState

_FoundT = TypeVar("_FoundT")


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


def watched(spec: dg.AssetSpec, identifier: TableIdentifier) -> WatchedTable:
    """Return the table of an asset, with the branch that its metadata names."""
    branch = parse_key(BRANCH, plain_metadata(spec.metadata), subject="/".join(spec.key.path))
    return WatchedTable(spec, identifier, branch or MAIN_BRANCH)


def look_at_each(
    context: dg.SensorEvaluationContext,
    tables: Iterable[WatchedTable],
    look_at: Callable[[WatchedTable, Any], tuple[_FoundT, Seen | None]],
) -> tuple[list[_FoundT], str]:
    """Look at each table, and return what was found and the new cursor. The error of a table does not stop the others.

    `look_at` gets a table with what the cursor has recorded of it. It returns what it has found, and what to remember,
    or None to keep what is remembered.
    """
    cursor: dict[str, Any] = json.loads(context.cursor or "{}")
    results = []
    for table in tables:
        try:
            found, seen = look_at(table, cursor.get(table.name))
        except Exception as error:  # noqa: BLE001 - whatever it is, the other tables are looked at
            context.log.warning(f"The sensor could not look at {table.identifier}. {in_words(error)}")
            continue
        results.append(found)
        cursor |= {} if seen is None else {table.name: seen.document()}
    return results, json.dumps(cursor)


@dataclass(frozen=True, slots=True)
class Sight:
    """What a sensor sees of a table.

    Args:
        state: The state of the table, or None if there is no table or branch yet.
        before: What it has seen before, or None at the first look.
        now: What there is to see now.
    """

    state: TableState | None
    before: Seen | None
    now: Seen


def look_again(catalog: CatalogDescription, table: WatchedTable, recorded: Any) -> Sight | None:
    """Return the table, or None if it has not changed since. A table that is gone has not changed.

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
        return None if before is not None else Sight(None, None, Seen.of(state, table.branch, pointer))
    return Sight(state, before, Seen.of(state, table.branch, pointer))
