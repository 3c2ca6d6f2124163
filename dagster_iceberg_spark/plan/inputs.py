"""The inputs of a step, as Dagster's UI shows them."""

from collections.abc import Sequence
from typing import Final

from dagster_iceberg_spark.plan.markdown import cell, markdown_table, run_link
from dagster_iceberg_spark.table.lineage import RUN_ID, UpstreamRead

_COLUMNS: Final = ("asset", "table", "snapshot", "as of (UTC)", "partitions", "written by run")


def inputs_as_markdown(reads: Sequence[UpstreamRead]) -> str | None:
    """Return a table with a row for each read, or None without reads.

    It shows the snapshot that was read, when it was committed, and the run that had written it. Ids are texts: in
    JavaScript, numbers of their size are rounded.
    """
    return markdown_table(_COLUMNS, map(_row, reads)) if reads else None


def _row(read: UpstreamRead) -> tuple[str, ...]:
    snapshot, is_changes = read.snapshot, read.kind is not None and read.since is not None
    return (
        cell(read.asset_key),
        cell(read.table),
        str(read.snapshot_id or "none"),
        "" if snapshot is None else f"{snapshot.committed_at:%Y-%m-%d %H:%M:%S}",
        cell(read.scope or "whole table") + (f", changes since {read.since}" if is_changes else ""),
        "" if snapshot is None else run_link(snapshot.summary.get(RUN_ID)) or "",
    )
