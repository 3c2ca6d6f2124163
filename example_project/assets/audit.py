"""What was loaded, and when: a table that only grows."""

import datetime as dt

import dagster as dg
from pyiceberg.table import Table
from pyspark.sql import DataFrame

from dagster_iceberg_spark import IcebergSparkResource


@dg.asset(
    description="The size of every source table at each audit. Rows are appended, never replaced.",
    group_name="audit",
    kinds={"spark", "iceberg"},
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
    context: dg.AssetExecutionContext,
    spark: IcebergSparkResource,
    flights: Table,
    weather: Table,
    planes: Table,
    airlines: Table,
    airports: Table,
) -> DataFrame:
    """Read each table's metadata, not its data."""
    audited_at = dt.datetime.now(dt.timezone.utc)
    rows = []
    for table in (flights, weather, planes, airlines, airports):
        snapshot = table.current_snapshot()
        if snapshot is None or snapshot.summary is None:
            continue
        totals = [int(snapshot.summary[f"total-{of}"] or 0) for of in ("records", "data-files", "files-size")]
        rows.append((audited_at, context.run_id, ".".join(table.name()), snapshot.snapshot_id, *totals))
    return spark.spark_session.createDataFrame(
        rows, "audited_at timestamp, run_id string, table string, snapshot_id long, rows long, files long, bytes long"
    )
