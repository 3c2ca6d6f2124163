"""The routes of all flights, computed by a job that runs elsewhere: here a process, in production `spark-submit`."""

import sys
from typing import Any

import dagster as dg

from dagster_iceberg_spark import IcebergPipes, ReadPlan


@dg.asset(
    description="Flights and delay by route, from a job of Dagster Pipes.",
    group_name="delays",
    kinds={"polars", "iceberg"},
    owners=["team:analytics"],
    io_manager_key="iceberg",
    metadata={
        "dagster/column_schema": dg.TableSchema(
            columns=[
                dg.TableColumn("origin", "string", description="Code of the airport of departure"),
                dg.TableColumn("dest", "string", description="Code of the destination"),
                dg.TableColumn("flights", "bigint", description="Flights that have departed"),
                dg.TableColumn("mean_delay", "double", description="Mean delay of their departure in minutes"),
            ]
        )
    },
)
def routes(
    context: dg.AssetExecutionContext, jobs: IcebergPipes, client: dg.PipesSubprocessClient, flights: ReadPlan
) -> Any:
    """Launch the job. Its rows do not pass through this process."""
    return jobs.run(
        context, client, inputs={"flights": flights}, command=[sys.executable, "-m", "example_project.routes_job"]
    )
