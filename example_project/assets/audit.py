"""What was loaded, and when: a table that only grows."""

import datetime as dt

import dagster as dg
import pandas as pd
from pyiceberg.table import Table


@dg.asset(
    description="The size of every source table at each audit. Rows are appended, never replaced.",
    group_name="audit",
    kinds={"pandas", "iceberg"},
    owners=["team:analytics"],
    io_manager_key="iceberg",
    metadata={
        "iceberg/write_disposition": "append",
        "dagster/column_schema": dg.TableSchema(
            columns=[
                dg.TableColumn("audited_at", "timestamp", description="When the table was looked at"),
                dg.TableColumn("run_id", "string", description="The Dagster run that looked"),
                dg.TableColumn("table", "string", description="The table, with its namespace"),
                dg.TableColumn("snapshot_id", "bigint", description="Its current snapshot"),
                dg.TableColumn("rows", "bigint", description="Its rows"),
                dg.TableColumn("files", "bigint", description="Its data files"),
                dg.TableColumn("bytes", "bigint", description="The size of its data files"),
            ]
        ),
    },
)
def load_audit(
    context: dg.AssetExecutionContext, flights: Table, weather: Table, planes: Table, airlines: Table, airports: Table
) -> pd.DataFrame:
    """Read each table's metadata, not its data. Neither this nor the write of the rows needs Spark."""
    audited_at = dt.datetime.now(dt.timezone.utc)
    rows = []
    for table in (flights, weather, planes, airlines, airports):
        snapshot = table.current_snapshot()
        if snapshot is None or snapshot.summary is None:
            continue
        totals = [int(snapshot.summary[f"total-{of}"] or 0) for of in ("records", "data-files", "files-size")]
        rows.append((audited_at, context.run_id, ".".join(table.name()), snapshot.snapshot_id, *totals))
    names = ["audited_at", "run_id", "table", "snapshot_id", "rows", "files", "bytes"]
    return pd.DataFrame(rows, columns=names)
