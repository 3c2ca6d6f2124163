"""Describes tables, for programs that ask for what there is."""

from collections.abc import Collection
from typing import Any

import dagster as dg

from dagster_iceberg_spark.assets.stored_tables import stored_tables
from dagster_iceberg_spark.table.snapshot import MAIN_BRANCH, TableState


def describe_tables(definitions: dg.Definitions, names: Collection[str] = ()) -> list[dict[str, Any]]:
    """Return the tables of a code location's assets that exist, or those with these names."""
    with stored_tables(definitions, action="describe the tables of") as tables:
        return [
            {"asset": table.spec.key.to_user_string(), **_description(table.state)}
            for table in tables
            if not names or str(table.state.identifier) in names
        ]


def _description(state: TableState) -> dict[str, Any]:
    head = state.base(MAIN_BRANCH)
    return {
        "table": str(state.identifier),
        "description": state.properties.get("comment"),
        "columns": [
            {"name": field.name, "type": str(field.type), "required": field.is_required, "description": field.doc}
            for field in state.schema
        ],
        "partitioned_by": [str(field) for field in state.spec.live_fields],
        "identifier_fields": list(state.identifier_fields),
        "snapshot": None if head is None else str(head.snapshot_id),
        "rows": None if head is None else head.summary.get("total-records"),
    }
