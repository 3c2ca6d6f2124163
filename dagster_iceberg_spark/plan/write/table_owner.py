"""The owner of a table, and the rules for assets that share one."""

import json
from collections.abc import Sequence

from dagster_iceberg_spark.errors import ConfigurationError, TableOwnershipError
from dagster_iceberg_spark.plan.options.output_options import TAKES_OVER
from dagster_iceberg_spark.plan.read.read_options import CHANGES_FALLBACK
from dagster_iceberg_spark.plan.schema.renames import lost_columns
from dagster_iceberg_spark.plan.write.write_request import TableRequest
from dagster_iceberg_spark.table import lineage
from dagster_iceberg_spark.table.lineage import Materialization
from dagster_iceberg_spark.table.snapshot import TableState
from dagster_iceberg_spark.table.updates import TableUpdate


def check_ownership(request: TableRequest, state: TableState | None) -> None:
    """Reject a table that another asset owns."""
    owner = None if state is None else owner_of(request, state)
    is_shared = state is not None and state.properties.get(lineage.SHARED_PROPERTY) == lineage.NAMED_EXPLICITLY
    if owner in (None, request.asset_key) or (is_shared and request.is_named_explicitly):
        return
    raise _table_of_another(str(request.identifier), request.asset_key, owner, request.options.takes_over)


def owner_of(request: TableRequest, state: TableState) -> str | None:
    """Return the asset that owns the table: the requesting asset, if it takes the table over."""
    owner = state.properties.get(lineage.OWNER_PROPERTY)
    return request.asset_key if takes_over(request, state) else owner


def takes_over(request: TableRequest, state: TableState) -> bool:
    """Return whether the recorded owner of the table is the asset under its former key."""
    owner = state.properties.get(lineage.OWNER_PROPERTY)
    return None not in (owner, request.asset_key) and owner == request.options.takes_over != request.asset_key


def refuse_disagreement(
    request: TableRequest, state: TableState, layout: Sequence[TableUpdate], after: Sequence[TableUpdate]
) -> None:
    """Reject changes that assets with a shared table could make back and forth.

    An asset that does not own the table cannot change its layout, and none of them can drop or rename a column.
    """
    owner, others = owner_of(request, state), others_on(state, request.asset_key, request.options.takes_over)
    losses = lost_columns(request.options.renames, state.schema, after, subject=str(request.identifier))
    refused = [*([] if owner in (None, request.asset_key) else layout), *losses]
    if others and refused:
        raise TableOwnershipError.refusing(
            "change",
            str(request.identifier),
            expected=f"a change that suits the table's other assets too ({', '.join(map(repr, others))})",
            found=f"that {request.asset_key!r} would {refused[0]}",
            hint=f"define the table's layout in its owner, {owner!r}, and leave it out here. Columns of a table that "
            "several assets write are neither dropped nor renamed.",
        )


def others_on(state: TableState, asset: str | None, former: str | None = None) -> tuple[str, ...]:
    """Return the assets that write the table besides an asset, whose former key is its own too."""
    writers = {state.properties.get(lineage.OWNER_PROPERTY), *_sharers(state)}
    return tuple(sorted(str(item) for item in writers - {None, asset, former}))


def refuse_replacing_others(request: TableRequest, materialization: Materialization, state: TableState | None) -> None:
    """Reject an asset that appends and now replaces its partitions, where another asset's rows would go too."""
    anew = next((read for read in materialization.upstream if read.is_repeated), None)
    if anew is None or state is None or request.options.write_disposition != "replace":
        return
    others = others_on(state, request.asset_key, request.options.takes_over)
    if others:
        raise ConfigurationError.refusing(
            "replace the partitions of",
            str(request.identifier),
            expected=f"a table that no other asset writes, because {anew.asset_key} is read anew "
            f"(`{CHANGES_FALLBACK}`)",
            found=f"rows of {', '.join(others)} too",
            hint="give each asset a table of its own.",
        )


def _sharers(state: TableState) -> tuple[str, ...]:
    try:
        sharers = json.loads(state.properties.get(lineage.SHARERS_PROPERTY, "[]"))
    except ValueError:  # another tool's text
        return ()
    return tuple(map(str, sharers)) if isinstance(sharers, list) else ()


def shared_by(request: TableRequest, state: TableState) -> dict[str, str]:
    """Return the table property that records this asset as one that shares the table."""
    owner, sharers = owner_of(request, state), _sharers(state)
    if request.asset_key is None or owner is None:
        return {}
    if owner == request.asset_key:
        others = [sharer for sharer in sharers if sharer != owner]
        return {} if len(others) == len(sharers) else {lineage.SHARERS_PROPERTY: json.dumps(others)}
    if request.asset_key in sharers:
        return {}
    return {lineage.SHARERS_PROPERTY: json.dumps(sorted({*sharers, request.asset_key}))}


def _table_of_another(subject: str, asset_key: str | None, owner: str, former: str | None) -> TableOwnershipError:
    """Another asset owns the table. An op's output has no asset key."""
    if asset_key is None:
        hint = "write another table, or name this one by `iceberg/table` in the definition of the asset too."
    else:
        hint = (
            "give one of them another `schema`, or name the table by `iceberg/table` in both if they mean to share it. "
            f"If the asset was {owner!r} before, say so by `{TAKES_OVER}`."
        )
    return TableOwnershipError.refusing(
        "write",
        subject,
        expected="a table of no asset" if asset_key is None else f"a table of the asset {asset_key!r}",
        found=f"a table of the asset {owner!r}{f', not of {former!r}' if former else ''}",
        hint=hint,
    )
