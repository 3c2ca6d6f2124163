"""What a step has read, in words."""

from collections.abc import Iterable, Iterator
from typing import Final

from dagster_iceberg_spark.table.lineage import RUN_ID, UpstreamRead

INPUT_COLUMNS: Final = ("asset", "table", "snapshot", "as of (UTC)", "partitions", "written by run")


def input_rows(reads: Iterable[UpstreamRead]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each read: what was read, as of when, and the run that had written it last."""
    for read in reads:
        snapshot = read.snapshot
        is_new = read.kind is not None and read.since is not None
        yield (
            read.asset_key,
            read.table,
            str(read.snapshot_id or "none"),
            "" if snapshot is None else f"{snapshot.committed_at:%Y-%m-%d %H:%M:%S}",
            f"{read.scope or 'whole table'}{f', changes since {read.since}' if is_new else ''}",
            "" if snapshot is None else snapshot.summary.get(RUN_ID, ""),
        )
