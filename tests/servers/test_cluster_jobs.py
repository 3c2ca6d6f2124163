"""Jobs that `spark-submit` runs on a standalone cluster, in client mode.

docs/pipes.md: The job; The snapshot decides; After a crash
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pyspark
import pytest

from dagster_iceberg_spark import IcebergPipes, ReadPlan, ReattachableSubprocessClient
from dagster_iceberg_spark.versions import ICEBERG_EXTENSIONS
from tests.core.arrow.writing import ArrowLake, metadata_of
from tests.features.pipes.test_pipes import commits
from tests.servers.cluster import SparkCluster
from tests.servers.test_cluster import EXECUTORS
from tests.test_docs import CHECKOUT

pytestmark = [pytest.mark.cluster, pytest.mark.server, pytest.mark.spark]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    cluster = SparkCluster(tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.close()


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[ArrowLake]:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        yield ArrowLake(tmp_path, instance)


def submit(
    lake: ArrowLake, cluster: SparkCluster, job: str, *, is_lost: bool = False, disposition: str = "replace"
) -> dg.ExecuteInProcessResult:
    """Materialize an asset from its source, by a job of the cluster."""
    settings = {**EXECUTORS, "spark.master": cluster.address, "spark.sql.extensions": ICEBERG_EXTENSIONS}
    chosen = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    program = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    command = [str(program), *chosen, str(CHECKOUT / "tests" / "features" / "pipes" / "jobs.py"), job]

    metadata = {"iceberg/engine": "auto", "iceberg/write_disposition": disposition}

    @dg.asset(name="t", io_manager_key="iceberg", metadata=metadata)
    def asset(
        context: dg.AssetExecutionContext, client: dg.PipesSubprocessClient, lake: IcebergPipes, source: ReadPlan
    ) -> Any:
        return lake.run(context, client, inputs={"source": source}, extras={"is_lost": is_lost}, command=command)

    env = {"PYTHONPATH": str(CHECKOUT)}
    client = ReattachableSubprocessClient(cwd=str(CHECKOUT), env=env)
    resources = {"iceberg": lake.io_manager, "client": client, "lake": IcebergPipes()}
    source = dg.AssetSpec("source").with_io_manager_key("iceberg")
    return dg.materialize([asset, source], selection="t", resources=resources, instance=lake.instance)


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_job_of_the_cluster_reads_and_writes(lake: ArrowLake, cluster: SparkCluster, *, is_lost: bool) -> None:
    """The driver may be lost after the commit."""
    lake.write(pa.table({"v": [7, 7, 8]}), name="source")
    reported = metadata_of(submit(lake, cluster, "count_by_value", is_lost=is_lost))
    assert lake.rows("v", "n") == [(7, 2), (8, 1)]
    assert (reported["iceberg/added_rows"], commits(lake)) == (2, 1)


def test_of_two_jobs_of_the_cluster_that_append_at_once_one_adopts(lake: ArrowLake, cluster: SparkCluster) -> None:
    lake.write(pa.table({"v": [7]}), name="source")
    submit(lake, cluster, "append_together", disposition="append")
    assert (lake.rows("v"), commits(lake)) == ([1, 2, 3], 1)
