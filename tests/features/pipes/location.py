"""A code location of its own process: `python -m tests.features.pipes.location <directory> <job's command>...`.

It materializes an asset that a job writes, and prints the version of its own Spark. Environment variables choose the
rest: `DISPOSITION`, `PARENT` and `ROOT` (the run to resume and the first one), `WITHOUT_HANDLES` (Dagster's client,
which does not reattach), `DIES` (where the process is killed).
"""

import os
import sys
from pathlib import Path
from typing import Any

import dagster as dg

from dagster_iceberg_spark import IcebergPipes, ReattachableSubprocessClient
from dagster_iceberg_spark.versions import SPARK_VERSION
from tests.core.arrow.writing import ArrowLake
from tests.features.pipes.deaths import die_at
from tests.test_docs import CHECKOUT

RESUMED = "dagster/is_resume_retry"


def execute(directory: Path, command: list[str]) -> dg.ExecuteInProcessResult:
    client_type = dg.PipesSubprocessClient if os.environ.get("WITHOUT_HANDLES") else ReattachableSubprocessClient
    client = client_type(cwd=str(CHECKOUT))
    metadata = {"iceberg/write_disposition": os.environ.get("DISPOSITION", "replace"), "iceberg/engine": "auto"}

    @dg.asset(name="t", io_manager_key="iceberg", metadata=metadata)
    def asset(context: dg.AssetExecutionContext, client: dg.PipesSubprocessClient, lake: IcebergPipes) -> Any:
        return lake.run(context, client, command=command)

    with dg.DagsterInstance.local_temp(str(directory)) as instance:
        lake = ArrowLake(directory, instance)
        resources = {"iceberg": lake.io_manager, "client": client, "lake": IcebergPipes()}
        job = dg.Definitions([asset], resources=resources).resolve_implicit_global_asset_job_def()
        parent = os.environ.get("PARENT")
        tags = {"dagster/parent_run_id": parent, RESUMED: "true"} if parent else {}
        if parent:
            tags["dagster/root_run_id"] = os.environ.get("ROOT", parent)
        return job.execute_in_process(instance=instance, tags=tags, raise_on_error=False)


if __name__ == "__main__":
    die_at(os.environ.get("DIES"))
    ended = execute(Path(sys.argv[1]), sys.argv[2:])
    sys.stdout.write(f"Spark {SPARK_VERSION}: {'success' if ended.success else 'failure'}\n")
    sys.exit(0 if ended.success else 1)
