"""What the jobs of the tests do, by name: `python -m tests.features.pipes.jobs <name>`."""

import datetime as dt
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from dagster_iceberg_spark.catalog import publication
from dagster_iceberg_spark.commit import staged_write
from dagster_iceberg_spark.pipes import IcebergJob, open_iceberg_pipes
from tests.features.pipes.deaths import die_at

ROWS = pa.table({"v": [1, 2, 3]})


def write(lake: IcebergJob) -> None:
    lake.write(ROWS)
    lake.pipes.report_asset_materialization(metadata={"model": "m1"})


def write_and_fail(lake: IcebergJob) -> None:
    lake.write(ROWS)
    sys.exit(3)


def write_and_die(lake: IcebergJob) -> None:
    lake.write(ROWS)
    os._exit(137)


def nothing(_: IcebergJob) -> None: ...


def fail(_: IcebergJob) -> None:
    raise RuntimeError("no memory")


def copy(lake: IcebergJob) -> None:
    lake.write(lake.read("source", "pyarrow.Table"))


def write_two_days(lake: IcebergJob) -> None:
    days = [dt.datetime(2024, 1, day, 5, tzinfo=dt.timezone.utc) for day in (1, 1, 2)]
    lake.write(pa.table({"at": pa.array(days, pa.timestamp("us", "UTC")), "v": [1, 2, 3]}))


def write_both(lake: IcebergJob) -> None:
    """Write two outputs. The first time, the job is lost between them."""
    lake.write(ROWS, "first")
    lost = Path(lake.pipes.get_extra("at")) / "lost"
    if not lost.exists():
        lost.touch()
        os._exit(137)
    lake.write(ROWS, "second")


def write_other(lake: IcebergJob) -> None:
    lake.write(ROWS, "other")


def write_days(lake: IcebergJob) -> None:
    """Write rows of the partition, of which one fails an audit of positive values if the extra says so."""
    values = [1, 2, -3] if lake.pipes.get_extra("is_wrong") else [1, 2, 3]
    at = dt.datetime.fromisoformat(f"{lake.pipes.get_extra('day')}T05:00:00+00:00")
    lake.write(pa.table({"at": pa.array([at] * 3, pa.timestamp("us", "UTC")), "v": values}))


def count_by_spark(lake: IcebergJob) -> None:
    """Count the rows of an input in the job's own session, which is opened when it is needed."""
    frame = lake.read("source")
    lake.write(frame.groupBy().count().withColumnRenamed("count", "v"))


def die_before_the_publication(lake: IcebergJob) -> None:
    with mock.patch("dagster_iceberg_spark.commit.staged_write.publish", side_effect=lambda *_: os._exit(137)):
        lake.write(ROWS)


def by_hand(lake: IcebergJob) -> None:
    """Append as a job in another language would: with the summary of the extras."""
    for _ in range(lake.pipes.get_extra("times")):
        append_by_hand(lake)


def append_by_hand(lake: IcebergJob) -> None:
    output = lake.pipes.get_extra("dagster_iceberg_spark")["outputs"]["result"]
    catalog = SqlCatalog("lake", uri=f"sqlite:///{lake.pipes.get_extra('at')}/catalog.db")
    catalog.load_table(output["table"]).append(ROWS, snapshot_properties=output["summary"])


def count_by_value(lake: IcebergJob) -> None:
    """Aggregate an input on the job's session. The first job that ran out of memory is lost after its commit."""
    lake.write(lake.read("source").groupBy("v").count().withColumnRenamed("count", "n"))
    if lake.pipes.get_extra("is_lost"):
        os._exit(137)


def append_together(lake: IcebergJob) -> None:
    """Append by Spark as another attempt of the same job does, in the moment before this one publishes."""
    rows = lake.spark.sql("SELECT v FROM VALUES (1), (2), (3) AS rows (v)")
    with before_publication(lambda: replace(lake).write(rows)):
        lake.write(rows)


def spark_version(lake: IcebergJob) -> None:
    lake.write(lake.spark.sql("SELECT substring_index(version(), '.', 2) AS v"))


def write_and_hang(lake: IcebergJob) -> None:
    lake.write(ROWS)
    time.sleep(240)


def write_noted(lake: IcebergJob) -> None:
    (Path(os.environ["LAKE_AT"]) / f"noted-{os.getpid()}").touch()
    lake.write(ROWS)


def wait_and_write(lake: IcebergJob) -> None:
    """Tell that the job has started, with a process of its own, and write when the test says so."""
    with subprocess.Popen(["sleep", "240"]) as child:
        at = Path(os.environ["LAKE_AT"])
        (at / f"started-{os.getpid()}-{child.pid}").touch()
        while not (at / "go").exists() and not (at / f"go-{os.getpid()}").exists():
            time.sleep(0.05)
        lake.write(ROWS)
        child.kill()


def two_at_once(lake: IcebergJob) -> None:
    """Commit as another attempt of the same job does, in the moment before this one publishes."""
    with before_publication(lambda: replace(lake).write(ROWS)):
        lake.write(ROWS)


def two_at_once_by_hand(lake: IcebergJob) -> None:
    """Append as a job in another language would, in the moment before this one publishes."""
    with before_publication(lambda: append_by_hand(lake)):
        lake.write(ROWS)


@contextmanager
def before_publication(act: Callable[[], object]) -> Iterator[None]:
    """Act once before the first publication of the block."""
    real = publication.publish

    def publish_later(*args: Any) -> Any:
        with mock.patch.object(staged_write, "publish", real):
            if not done:
                done.append(act())
        return real(*args)

    done: list[object] = []
    with mock.patch.object(staged_write, "publish", publish_later):
        yield


def without_dagster(lake: IcebergJob) -> None:
    loaded = [name for name in sys.modules if name.partition(".")[0] in ("dagster", "pyspark")]
    lake.write(pa.table({"v": [len(loaded)]}))


JOBS: dict[str, Any] = {
    job.__name__: job
    for job in (
        write,
        write_and_fail,
        write_and_die,
        nothing,
        fail,
        copy,
        write_two_days,
        write_both,
        write_other,
        write_days,
        count_by_spark,
        by_hand,
        die_before_the_publication,
        count_by_value,
        append_together,
        spark_version,
        write_and_hang,
        wait_and_write,
        write_noted,
        two_at_once,
        two_at_once_by_hand,
        without_dagster,
    )
}

if __name__ == "__main__":
    die_at(os.environ.get("JOB_DIES"))
    with open_iceberg_pipes() as opened:
        JOBS[sys.argv[1]](opened)
