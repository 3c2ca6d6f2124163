"""Whose table it is, and what assets that share one leave to each other."""

import json
from collections.abc import Sequence

from dagster_iceberg_spark.errors import TableOwnershipError
from dagster_iceberg_spark.plan.renames import lost_columns
from dagster_iceberg_spark.plan.request import TableRequest
from dagster_iceberg_spark.table import lineage
from dagster_iceberg_spark.table.changes import TableChange
from dagster_iceberg_spark.table.snapshot import TableState


def check_ownership(request: TableRequest, state: TableState | None) -> None:
    """Refuse a table that another asset owns.

    Raises:
        TableOwnershipError: Names the owner.
    """
    if state is None or request.asset_key is None:
        return
    owner = state.properties.get(lineage.OWNER_PROPERTY)
    shared = state.properties.get(lineage.SHARED_PROPERTY) == lineage.NAMED_EXPLICITLY
    if owner is None or owner == request.asset_key or (shared and request.is_named_explicitly):
        return
    raise TableOwnershipError.refusing(
        "write",
        str(request.identifier),
        expected=f"a table of the asset {request.asset_key!r}",
        found=f"a table of the asset {owner!r}",
        hint="give one of them another `schema`, or name the table by `iceberg/table` in both if they mean to share "
        "it.",
    )


def refuse_disagreement(
    request: TableRequest, state: TableState, layout: Sequence[TableChange], after: Sequence[TableChange]
) -> None:
    """Refuse what assets that share a table would change back and forth.

    Raises:
        TableOwnershipError: The layout is its owner's to change; the columns of all of them stay.
    """
    owner, sharers = state.properties.get(lineage.OWNER_PROPERTY), _sharers(state)
    others = sorted({owner, *sharers} - {request.asset_key, None})  # type: ignore[type-var]
    losses = lost_columns(request.options.renames, state.schema, after, subject=str(request.identifier))
    refused = [*([] if owner in (None, request.asset_key) else layout), *losses]
    if others and refused:
        raise TableOwnershipError.refusing(
            "change",
            str(request.identifier),
            expected=f"what suits the other assets of the table too ({', '.join(map(repr, others))})",
            found=f"{request.asset_key!r} wants to {refused[0]}",
            hint=f"a table's layout is the matter of its owner, {owner!r}: define it there, and leave it out here. "
            "Columns of a table that several assets write are neither dropped nor renamed.",
        )


def _sharers(state: TableState) -> tuple[str, ...]:
    try:
        sharers = json.loads(state.properties.get(lineage.SHARERS_PROPERTY, "[]"))
    except ValueError:  # somebody else's text
        return ()
    return tuple(map(str, sharers)) if isinstance(sharers, list) else ()


def shared_by(request: TableRequest, state: TableState) -> dict[str, str]:
    """Return the property that lets the table's other assets know of this one."""
    owner, sharers = state.properties.get(lineage.OWNER_PROPERTY), _sharers(state)
    if request.asset_key is None or owner in (None, request.asset_key) or request.asset_key in sharers:
        return {}
    return {lineage.SHARERS_PROPERTY: json.dumps(sorted({*sharers, request.asset_key}))}
