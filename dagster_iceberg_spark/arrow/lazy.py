"""A polars LazyFrame that pushes projections and filters down to the scan."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from dagster_iceberg_spark.arrow.pushdown import pruning
from dagster_iceberg_spark.arrow.scan import PlannedScan
from dagster_iceberg_spark.table.predicate import EVERY_ROW


def lazy_frame(planned: PlannedScan) -> Any:
    """Return a `polars.LazyFrame` of the rows. Nothing is read before it is collected."""
    import polars as pl
    from polars.io.plugins import register_io_source

    def read(columns: list[str] | None, filter_: Any, rows: int | None, _: int | None) -> Iterator[Any]:
        # A number of rows applies before the filter, as does the limit of an input. Neither allows pruning.
        may_prune = filter_ is not None and rows is None and planned.plan.limit is None
        wanted = pruning(filter_, planned.plan.schema) if may_prune else EVERY_ROW
        scan = planned.narrowed(columns, wanted, rows)
        for batch in scan.batches():
            frame = pl.DataFrame(pl.from_arrow(batch))
            yield frame if filter_ is None else frame.filter(filter_)

    schema = pl.DataFrame(pl.from_arrow(pa.Table.from_batches([], planned.schema))).schema
    return register_io_source(read, schema=schema, is_pure=True)
