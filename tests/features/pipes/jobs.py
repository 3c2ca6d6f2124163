"""What the jobs of the tests do, by name: `python -m tests.features.pipes.jobs <name>`."""

import datetime as dt
import os
import sys
from typing import Any
from unittest import mock

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from dagster_iceberg_spark.pipes import IcebergJob, open_iceberg_pipes

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
    output = lake.pipes.get_extra("dagster_iceberg_spark")["outputs"]["result"]
    catalog = SqlCatalog("lake", uri=f"sqlite:///{lake.pipes.get_extra('at')}/catalog.db")
    for _ in range(lake.pipes.get_extra("times")):
        catalog.load_table(output["table"]).append(ROWS, snapshot_properties=output["summary"])


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
        write_other,
        write_days,
        count_by_spark,
        by_hand,
        die_before_the_publication,
        without_dagster,
    )
}

if __name__ == "__main__":
    with open_iceberg_pipes() as opened:
        JOBS[sys.argv[1]](opened)
