"""Jobs of `IcebergPipes` beside the same `spark-submit` alone, which writes the same rows with plain Spark.

Run it with `make bench-jobs`. The jobs take turns. It prints medians in seconds, and the median of the differences.
"""

import argparse
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import dagster as dg
import pyspark

from benchmarks.local_spark import local_spark
from dagster_iceberg_spark import IcebergPipes, IcebergPySparkIOManager

ROWS = 100_000


def rows_of(spark: Any) -> Any:
    """Return the rows that both jobs write."""
    return spark.range(ROWS).selectExpr("id", "id % 7 AS v", "cast(id AS string) AS name")


def job(way: str, disposition: str) -> None:
    """Write the rows, in the process that `spark-submit` starts."""
    if way == "ours":
        from dagster_iceberg_spark.pipes import open_iceberg_pipes

        with open_iceberg_pipes() as lake:
            lake.write(rows_of(lake.spark))
        return
    from pyspark.sql import SparkSession

    writer = rows_of(SparkSession.builder.getOrCreate()).writeTo(f"lake.plain.{disposition}")
    if disposition == "append":
        writer.append()
    else:
        writer.overwritePartitions()


class Bench:
    """The commands of both ways."""

    def __init__(self, directory: Path, instance: dg.DagsterInstance) -> None:
        self.instance, self.spark = instance, local_spark(directory)
        self.io_manager = IcebergPySparkIOManager(spark=self.spark, namespace="ours")

    def command(self, way: str, disposition: str) -> list[str]:
        """Return the command of a job."""
        from dagster_iceberg_spark.spark.session.session import SessionSettings, launch_conf

        conf = launch_conf(SessionSettings(self.spark.catalog_description, self.spark.spark_config))
        chosen = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
        program = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
        return [program, *chosen, __file__, "--job", way, disposition]

    def prepare(self) -> None:
        """Create the tables, so that each job writes to one that exists."""
        session = self.spark.spark_session
        for namespace in ("ours", "plain"):
            session.sql(f"create namespace lake.{namespace}")
        for disposition in ("append", "replace"):
            rows_of(session).writeTo(f"lake.plain.{disposition}").create()
        session.stop()

    def ours(self, disposition: str) -> float:
        """Return the seconds of a step that launches the job and adopts its snapshot."""
        command = self.command("ours", disposition)

        @dg.asset(name=disposition, io_manager_key="iceberg", metadata={"iceberg/write_disposition": disposition})
        def asset(context: dg.AssetExecutionContext, client: dg.PipesSubprocessClient, lake: IcebergPipes) -> Any:
            return lake.run(context, client, command=command)

        client = dg.PipesSubprocessClient(forward_stdio=False)
        resources = {"iceberg": self.io_manager, "client": client, "lake": IcebergPipes()}
        began = time.perf_counter()
        dg.materialize([asset], resources=resources, instance=self.instance)
        return time.perf_counter() - began

    def plain(self, disposition: str) -> float:
        """Return the seconds of `spark-submit` alone."""
        began = time.perf_counter()
        subprocess.run(self.command("plain", disposition), check=True, capture_output=True)  # noqa: S603 - of this file
        return time.perf_counter() - began


def main() -> None:
    """Time both ways."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--job", nargs=2, default=None)
    arguments = parser.parse_args()
    if arguments.job:
        job(*arguments.job)
        return
    with tempfile.TemporaryDirectory() as name, dg.DagsterInstance.local_temp(name) as instance:
        bench = Bench(Path(name), instance)
        bench.prepare()
        print(f"{'seconds of a job (medians)':<30} {'ours':>8} {'plain':>8} {'more':>8}")
        for disposition in ("append", "replace"):
            bench.ours(disposition)
            pairs = [(bench.ours(disposition), bench.plain(disposition)) for _ in range(arguments.rounds)]
            ours, plain = (statistics.median(taken) for taken in zip(*pairs, strict=True))
            more = statistics.median(mine - other for mine, other in pairs)
            print(f"{disposition:<30} {ours:8.2f} {plain:8.2f} {more:8.2f}   n={arguments.rounds}", flush=True)


if __name__ == "__main__":
    main()
