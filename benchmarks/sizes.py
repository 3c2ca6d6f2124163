"""How the cost of a write grows with the size of what it touches, and of what it does not touch.

Run it with `make bench-sizes`. Each case is measured at several sizes. The exponent is the slope between the first and
the last on logarithmic scales: 0 is no growth, 1 is linear. `--plot` draws the curves.
"""

import argparse
import datetime as dt
import itertools
import json
import logging
import math
import sqlite3
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
from pyiceberg.conversions import to_bytes
from pyiceberg.io import load_file_io
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.typedef import Record
from pyiceberg.types import DateType
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from benchmarks.local_spark import local_spark
from dagster_iceberg_spark import IcebergPySparkIOManager, MaintenancePolicy
from dagster_iceberg_spark.assets.definition_checks import inspect_table
from dagster_iceberg_spark.assets.stored_tables import stored_assets
from dagster_iceberg_spark.features.maintenance.readers import Readers
from dagster_iceberg_spark.features.maintenance.table_maintenance import table_maintenance

FIRST_DAY = dt.date(2013, 1, 1)
EPOCH = dt.date(1970, 1, 1)
DAILY = {"partition_expr": "day"}
FILES_OF_A_COMMIT = 10_000
ROWS_OF_A_PARTITION = 100_000


def day(number: int) -> dt.date:
    """Return the day of this number."""
    return FIRST_DAY + dt.timedelta(days=number)


@dataclass
class Curve:
    """The seconds of a case by size."""

    name: str
    seconds: dict[int, float] = field(default_factory=dict)

    @property
    def exponent(self) -> float:
        """The slope between the smallest and the largest size on logarithmic scales."""
        low, high = min(self.seconds), max(self.seconds)
        return math.log(self.seconds[high] / self.seconds[low]) / math.log(high / low)

    def line(self) -> str:
        """Return the sizes with their seconds, and the exponent."""
        sizes = "  ".join(f"{size:>11,}: {seconds:7.2f} s" for size, seconds in sorted(self.seconds.items()))
        return f"{self.name:<58} {self.exponent:5.2f}   {sizes}"


class Bench:
    """One session with a catalog on SQLite and local files."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.spark = local_spark(directory, **{"spark.sql.session.timeZone": "UTC"})
        self.io_manager = IcebergPySparkIOManager(spark=self.spark, namespace="db")

    @property
    def session(self) -> SparkSession:
        """The session."""
        return self.spark.spark_session

    def write(
        self, name: str, frame: DataFrame, metadata: Mapping[str, Any], *, partitions: Any = None, **keys: Any
    ) -> float:
        """Store the DataFrame, and return the seconds. A run would have created the context before."""
        if partitions is not None:
            keys["asset_partitions_def"] = partitions
        context = dg.build_output_context(
            asset_key=dg.AssetKey(name), definition_metadata=dict(metadata), resources={}, **keys
        )
        started = time.perf_counter()
        self.io_manager.handle_output(context, frame)
        return time.perf_counter() - started

    def table(self, name: str) -> Table:
        """Return the table as pyiceberg has it."""
        return self.spark.pyiceberg_catalog.load_table(("db", name))

    def rows_of_days(self, days: int, rows: int) -> DataFrame:
        """Return this number of rows, spread evenly over the days."""
        spread = self.session.range(rows)
        return spread.select(F.date_add(F.lit(FIRST_DAY), F.pmod("id", F.lit(days)).cast("int")).alias("day"), "id")


def add_snapshots(bench: Bench, name: str, count: int) -> None:
    """Give the table a history: copies of its newest snapshot, a second apart."""
    table = bench.table(name)
    document = json.loads(table.metadata.model_dump_json())
    newest = document["snapshots"][-1]
    now, sequence = newest["timestamp-ms"], document["last-sequence-number"]
    parent = newest["snapshot-id"]
    for older in document["snapshots"] + document["snapshot-log"]:
        older["timestamp-ms"] = now - (count + 2) * 1000
    for number in range(count):
        own, at = uuid.uuid4().int >> 66, now - (count - number) * 1000
        sequence += 1
        document["snapshots"].append(
            {
                **newest,
                "snapshot-id": own,
                "parent-snapshot-id": parent,
                "timestamp-ms": at,
                "sequence-number": sequence,
            }
        )
        document["snapshot-log"].append({"snapshot-id": own, "timestamp-ms": at})
        parent = own
    document |= {"current-snapshot-id": parent, "last-sequence-number": sequence}
    document["refs"]["main"]["snapshot-id"] = parent
    location = f"{table.location()}/metadata/99999-{uuid.uuid4()}.metadata.json"
    with load_file_io({}, location).new_output(location).create() as stream:
        stream.write(json.dumps(document).encode())
    with sqlite3.connect(bench.directory / "catalog.db") as database:
        database.execute("update iceberg_tables set metadata_location = ? where table_name = ?", (location, name))


def add_files(table: Table, count: int) -> None:
    """Give the table data files that nothing reads, each with the rows of one day after the first year."""
    [column] = [item.field_id for item in table.schema().fields if item.name == "day"]
    for start in range(0, count, FILES_OF_A_COMMIT):
        with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
            for number in range(start, min(count, start + FILES_OF_A_COMMIT)):
                bound = to_bytes(DateType(), (day(400 + number) - EPOCH).days)
                file = DataFile.from_args(
                    content=DataFileContent.DATA,
                    file_path=f"{table.location()}/data/{number}.parquet",
                    file_format=FileFormat.PARQUET,
                    partition=Record(),
                    record_count=1,
                    file_size_in_bytes=1000,
                    column_sizes={},
                    value_counts={column: 1},
                    null_value_counts={column: 0},
                    nan_value_counts={},
                    lower_bounds={column: bound},
                    upper_bounds={column: bound},
                )
                file.spec_id = table.spec().spec_id
                append.append_data_file(file)


def days_of_one_run(bench: Bench, size: int) -> float:
    """Write this number of days in one run, ten rows each."""
    partitions = dg.DailyPartitionsDefinition(str(FIRST_DAY), end_date=str(day(size)))
    keys = dg.PartitionKeyRange(str(FIRST_DAY), str(day(size - 1)))
    frame = bench.rows_of_days(size, 10 * size)
    return bench.write(f"days_{size}", frame, DAILY, partitions=partitions, asset_partition_key_range=keys)


def _keys(count: int) -> list[str]:
    return [f"k{number:06}" for number in range(count)]


def keys_of_one_run(bench: Bench, size: int) -> float:
    """Write this number of static partitions in one run, ten rows each."""
    names = _keys(size)
    frame = bench.session.range(10 * size).selectExpr(f"format_string('k%06d', id % {size}) as k", "id")
    return bench.write(
        f"keys_{size}",
        frame,
        {"partition_expr": "k"},
        partitions=dg.StaticPartitionsDefinition(names),
        asset_partition_key_range=dg.PartitionKeyRange(names[0], names[-1]),
    )


def one_key_of_many(bench: Bench, size: int) -> float:
    """Write one partition of a table that has this number of partitions."""
    if not bench.spark.pyiceberg_catalog.table_exists(("db", f"keys_{size}")):
        keys_of_one_run(bench, size)
    partitions = dg.StaticPartitionsDefinition(_keys(size))
    frame = bench.session.range(10).selectExpr("'k000001' as k", "id")
    return min(
        bench.write(f"keys_{size}", frame, {"partition_expr": "k"}, partitions=partitions, partition_key="k000001")
        for _ in range(3)
    )


def _one_day(bench: Bench, name: str, number: int, **metadata: Any) -> float:
    partitions = dg.DailyPartitionsDefinition(str(FIRST_DAY), end_date=str(day(365)))
    frame = bench.rows_of_days(1, 100).withColumn("day", F.lit(day(number)))
    return bench.write(name, frame, {**DAILY, **metadata}, partitions=partitions, partition_key=str(day(number)))


def after_snapshots(bench: Bench, size: int) -> float:
    """Replace one day of a table with this number of snapshots."""
    name = f"snapshots_{size}"
    _one_day(bench, name, 0)
    add_snapshots(bench, name, size)
    return min(_one_day(bench, name, number) for number in range(3))


def after_maintenance(bench: Bench, size: int) -> float:
    """Replace one day of a table from which maintenance has expired this number of snapshots."""
    name = f"maintained_{size}"
    _one_day(bench, name, 0)
    add_snapshots(bench, name, size)
    at_once = MaintenancePolicy(
        min_snapshots=1, older_than=dt.timedelta(0), replayable_for=dt.timedelta(0), remove_orphans=False
    )
    catalog = bench.spark.catalog_description
    spec = dg.AssetSpec(name, metadata=DAILY)
    maintenance = table_maintenance(
        bench.io_manager, [spec], at_once, Readers(catalog, None), run_id="bench", report=lambda _: None
    )
    if maintenance is None or not maintenance.maintain().done:
        raise RuntimeError(f"{name} was not maintained")
    return min(_one_day(bench, name, number) for number in range(3))


def beside_files(bench: Bench, size: int) -> float:
    """Replace one day of a table without partitions that has this number of data files."""
    name = f"files_{size}"
    _one_day(bench, name, 0, **{"iceberg/partition_by": []})
    add_files(bench.table(name), size)
    return min(_one_day(bench, name, number, **{"iceberg/partition_by": []}) for number in range(3))


def _by_spark_alone(table: str) -> Callable[[Bench, int], float]:
    def measure(bench: Bench, size: int) -> float:
        frame = bench.rows_of_days(1, 100)
        seconds = []
        for number in range(10, 13):
            started = time.perf_counter()
            own = frame.withColumn("day", F.lit(day(number)))
            own.writeTo(f"lake.db.{table}_{size}").overwrite(F.col("day") == F.lit(day(number)))
            seconds.append(time.perf_counter() - started)
        return min(seconds)

    return measure


def columns(bench: Bench, size: int) -> float:
    """Replace a table with this number of columns."""
    frame = bench.session.range(100).selectExpr(*(f"id + {number} as c{number}" for number in range(size)))
    bench.write(f"columns_{size}", frame, {})
    return min(bench.write(f"columns_{size}", frame, {}) for _ in range(2))


def merge_into(bench: Bench, size: int) -> float:
    """Merge one day into a table of this number of rows, of 100,000 for each day. A tenth of its rows change."""
    name, days = f"merge_{size}", size // ROWS_OF_A_PARTITION
    metadata = {**DAILY, "iceberg/write_disposition": "merge", "iceberg/merge_keys": ["id"]}
    partitions = dg.DailyPartitionsDefinition(str(FIRST_DAY), end_date=str(day(days)))
    texts = [f"concat('{number}-', id) as s{number}" for number in range(3)]

    def rows(count: int, value: str) -> DataFrame:
        at = f"date_add(date'{FIRST_DAY}', cast(id div {ROWS_OF_A_PARTITION} as int)) as day"
        return bench.session.range(count).selectExpr(at, "id", f"{value} as v", *texts)

    every = dg.PartitionKeyRange(str(FIRST_DAY), str(day(days - 1)))
    replace = {**metadata, "iceberg/write_disposition": "replace"}
    bench.write(name, rows(size, "0"), replace, partitions=partitions, asset_partition_key_range=every)
    seconds = []
    for number in range(1, 4):
        frame = rows(ROWS_OF_A_PARTITION, f"if(id % 10 = 0, {number}, 0)")
        seconds.append(bench.write(name, frame, metadata, partitions=partitions, partition_key=str(FIRST_DAY)))
    return min(seconds)


def _assets(bench: Bench, size: int) -> dg.Definitions:
    def made(number: int) -> dg.AssetsDefinition:
        @dg.asset(name=f"a{number}", io_manager_key="iceberg", metadata={"iceberg/write_disposition": "append"})
        def asset() -> None: ...

        return asset

    return dg.Definitions(assets=[made(number) for number in range(size)], resources={"iceberg": bench.io_manager})


def load_assets(bench: Bench, size: int) -> float:
    """Load a code location with this number of assets."""
    started = time.perf_counter()
    _assets(bench, size).get_repository_def().load_all_definitions()
    return time.perf_counter() - started


def check_assets(bench: Bench, size: int) -> float:
    """Compare the tables of this number of assets with their definitions."""
    [stored] = stored_assets(_assets(bench, size)).values()
    started = time.perf_counter()
    for spec in stored.specs:
        inspect_table(bench.io_manager, spec)
    return time.perf_counter() - started


Case = tuple[str, Callable[[Bench, int], float], Sequence[int]]


def cases(*, is_large: bool) -> Iterator[Case]:
    """Yield each case in words, with its function and sizes."""
    yield "days in one run", days_of_one_run, (100, 500, 2_000)
    yield "static keys in one run", keys_of_one_run, (100, 1_000, 10_000)
    yield "one key, by partitions of the table", one_key_of_many, (100, 1_000, 10_000)
    yield "one day, by snapshots of the table", after_snapshots, (10, 1_000, 10_000, 50_000)
    yield "the same by Spark alone, by snapshots", _by_spark_alone("snapshots"), (10, 1_000, 10_000, 50_000)
    yield "the same after maintenance, by snapshots", after_maintenance, (10, 1_000, 10_000)
    yield "one day, by data files of a table without partitions", beside_files, (1_000, 10_000, 100_000)
    yield "the same by Spark alone, by data files", _by_spark_alone("files"), (1_000, 10_000, 100_000)
    yield "a table, by columns", columns, (20, 200, 2_000)
    yield "a code location, by assets", load_assets, (10, 100, 1_000)
    yield "check, by assets", check_assets, (10, 100, 1_000)
    sizes = (1_000_000, 10_000_000, *((100_000_000,) if is_large else ()))
    yield "a merge of 100,000 rows of one day, by rows of the table", merge_into, sizes


def draw(curves: Sequence[Curve], path: Path) -> None:
    """Draw the curves on logarithmic scales."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.fonttype"] = "none"  # text stays text
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 5.5), layout="constrained")
    colors = itertools.cycle([*plt.get_cmap("tab10").colors, "black"])  # type: ignore[attr-defined]
    for curve, color in zip(curves, colors, strict=False):
        sizes = sorted(curve.seconds)
        label = f"{curve.name} ({curve.exponent:.2f})"
        axes.loglog(sizes, [curve.seconds[size] for size in sizes], marker="o", label=label, color=color)
    axes.set(xlabel="size", ylabel="seconds", title="Seconds by size (exponent)")
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(path)


def main() -> None:
    """Measure each case and print its curve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true", help="merge into 100 million rows as well, which takes minutes")
    parser.add_argument("--only", default="", help="a part of the names of the cases to measure")
    parser.add_argument("--plot", type=Path, help="the file of the plot, such as docs/images/sizes.svg")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    curves = []
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(Path(directory))
        _one_day(bench, "warm", 0)
        print(f"{'':<58} exponent")
        for name, measure, sizes in cases(is_large=arguments.large):
            if arguments.only in name:
                curve = Curve(name)
                for size in sizes:
                    curve.seconds[size] = measure(bench, size)
                curves.append(curve)
                print(curve.line(), flush=True)
    if arguments.plot:
        draw(curves, arguments.plot)


if __name__ == "__main__":
    main()
