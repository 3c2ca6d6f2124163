"""Whole processes: `dagster asset materialize` beside a process of plain PySpark that does the same.

Every run of Dagster is a process of its own, which starts Python, a JVM and a session before it writes. Run it with
`make bench-cold`. The processes take turns. It prints medians, and the median of the ratios of each round.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import dagster as dg
from pyspark.sql import DataFrame

from benchmarks.cold_plain import FIRST_DAY, NAMESPACE, rows_of_job, session_in, stored_rows
from benchmarks.local_spark import local_spark
from dagster_iceberg_spark import IcebergPySparkIOManager, IcebergSparkResource

DIRECTORY = "BENCHMARK_DIRECTORY"
ROUND = "BENCHMARK_ROUND"
REMOTE = "BENCHMARK_REMOTE"
OPTIONS = "BENCHMARK_JAVA_OPTIONS"
DAYS = dg.DailyPartitionsDefinition(FIRST_DAY, end_date="2014-01-01")
PARTITION = "2013-12-31"
METADATA: dict[str, dict[str, Any]] = {
    "day": {"partition_expr": "day"},
    "merge": {"iceberg/write_disposition": "merge", "iceberg/merge_keys": ["id"], "iceberg/partition_by": ["day"]},
}


def definitions() -> dg.Definitions:
    """Return the assets, as a project would define them."""
    further = {"spark.driver.extraJavaOptions": os.environ[OPTIONS]} if os.environ.get(OPTIONS) else {}
    spark = local_spark(Path(os.environ[DIRECTORY]), **further)
    if os.environ.get(REMOTE):
        spark = IcebergSparkResource(catalog=spark.catalog, remote=os.environ[REMOTE], spark_config=spark.spark_config)

    def asset_of(job: str) -> Any:
        def rows(spark: dg.ResourceParam[Any]) -> DataFrame:
            return rows_of_job(spark.spark_session, job, int(os.environ[ROUND]))

        partitions = DAYS if job == "day" else None
        options: dict[str, Any] = {"metadata": METADATA[job], "partitions_def": partitions}
        return dg.asset(name=job, io_manager_key="iceberg", key_prefix="ours", **options)(rows)

    io_manager = IcebergPySparkIOManager(spark=spark)
    return dg.Definitions([asset_of(job) for job in METADATA], resources={"spark": spark, "iceberg": io_manager})


if DIRECTORY in os.environ:
    defs = definitions()


class Bench:
    """The commands of both ways, and their seconds."""

    def __init__(self, directory: str) -> None:
        self.directory, self.archive = directory, Path(directory, "classes.jsa")
        self.variables = {DIRECTORY: directory, "DAGSTER_HOME": f"{directory}/dagster"}
        Path(directory, "dagster").mkdir()
        session = session_in(directory)
        for namespace in ("ours", NAMESPACE):
            session.sql(f"create namespace lake.{namespace}")
            for job in METADATA:
                stored_rows(session).writeTo(f"lake.{namespace}.{job}").partitionedBy("day").create()
        session.stop()

    def ours(self, job: str, number: int, **variables: str) -> float:
        """Return the seconds of a run of Dagster."""
        select = ["--select", f"ours/{job}", *(["--partition", PARTITION] if job == "day" else [])]
        command = ["dagster", "asset", "materialize", "-m", "benchmarks.cold", *select]
        return seconds_of(command, **self.variables, **{ROUND: str(number)}, **variables)

    def plain(self, job: str, number: int) -> float:
        """Return the seconds of a process of PySpark."""
        return seconds_of([sys.executable, "-m", "benchmarks.cold_plain", job, self.directory, str(number)])

    def archive_classes(self) -> None:
        """Let a run write the archive of its JVM's classes, which the JVM does after the run has ended."""
        self.ours("merge", 0, **{OPTIONS: f"-XX:ArchiveClassesAtExit={self.archive}"})
        size = -1
        while size != (size := self.archive.stat().st_size if self.archive.exists() else 0) or not size:
            time.sleep(5)

    def compare(self, name: str, job: str, rounds: int, variables: dict[str, str]) -> None:
        """Time a job in both ways, which take turns. The first round, which may start a server, does not count."""
        times: dict[str, list[float]] = {"ours": [], "plain": []}
        for number in range(rounds + 1):
            for way in sorted(times, reverse=number % 2 == 0):
                taken = self.ours(job, number, **variables) if way == "ours" else self.plain(job, number)
                times[way] += [taken] if number else []
        ours, plain = (statistics.median(taken) for taken in times.values())
        ratio = statistics.median(mine / other for mine, other in zip(*times.values(), strict=True))
        print(f"{f'{job}, {name}':<40} {ours:8.2f} {plain:8.2f} {ratio:7.2f}   n={rounds}", flush=True)


def seconds_of(command: list[str], **variables: str) -> float:
    """Return how long a process took."""
    began = time.perf_counter()
    subprocess.run(command, env={**os.environ, **variables}, check=True, capture_output=True)  # noqa: S603 - of this file
    return time.perf_counter() - began


def main() -> None:
    """Time each job in each way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        bench = Bench(directory)
        bench.archive_classes()
        print(f"{'seconds of a process (medians)':<40} {'ours':>8} {'plain':>8} {'ratio':>7}")
        ways = {
            "a JVM of its own": {},
            "with an archive of its classes": {OPTIONS: f"-XX:SharedArchiveFile={bench.archive}"},
            "on a local server": {REMOTE: "local"},
        }
        for name, variables in ways.items():
            for job in METADATA:
                bench.compare(name, job, rounds, variables)


if __name__ == "__main__":
    main()
