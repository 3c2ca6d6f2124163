"""Writes and reads of rows in this process: plain Spark, pyiceberg by hand, and the IO manager by Arrow, in turn.

Run it with `make bench-arrow`. Small writes are medians of own times, with ratios to plain Spark's, whose rows
are cached in the JVM. The writes of 5 million rows run in a process each, with the memory that they take. Reads return
all of as many rows, to PyArrow and to pandas; Spark's are `toArrow` and `toPandas`.
"""

import argparse
import datetime as dt
import json
import logging
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import dagster as dg
import numpy as np
import pandas as pd
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog as PyIcebergCatalog

from dagster_iceberg_spark import IcebergPySparkIOManager, IcebergSparkResource, SqlCatalog

FIRST_DAY = dt.date(2013, 1, 1)
DAYS = dg.DailyPartitionsDefinition(str(FIRST_DAY))
ROWS_OF_A_DAY = 870
ROWS_OF_A_YEAR = 5_050_000
WAYS = ("spark", "pyiceberg", "ours")
NO_WORK = "import dagster as dg\n\n@dg.asset\ndef nothing():\n    return None\n"
COLD = """
import dagster as dg
import pandas as pd
from dagster_iceberg_spark import IcebergPySparkIOManager, IcebergSparkResource, SqlCatalog

days = dg.DailyPartitionsDefinition("2013-01-01")

@dg.asset(io_manager_key="iceberg", partitions_def=days, metadata={{"partition_expr": "at"}})
def readings(context):
    day = context.partition_time_window.start
    return pd.DataFrame({{"at": pd.date_range(day, periods=870, freq="min"), "v": range(870)}})

spark = IcebergSparkResource(catalog=SqlCatalog(uri="sqlite:///{directory}/cold.db", warehouse="{directory}/cold"))
defs = dg.Definitions(
    assets=[readings], resources={{"iceberg": IcebergPySparkIOManager(spark=spark)}}, executor=dg.in_process_executor
)
"""


def rows_of(days: int, number: int) -> pd.DataFrame:
    """Return rows over some days in order, with timestamps, numbers and texts."""
    seconds = np.arange(number) * (days * 86_400) // number
    at = np.datetime64(FIRST_DAY, "us") + seconds.astype("timedelta64[s]")
    numbers = {f"n{index}": np.random.default_rng(index).random(number) for index in range(4)}
    names = pd.Series(np.array(["UA", "AA", "DL", "B6"])[np.arange(number) % 4])
    return pd.DataFrame({"at": pd.Series(at).dt.tz_localize("UTC"), "id": np.arange(number), "name": names, **numbers})


def as_stored(rows: pd.DataFrame) -> pa.Table:
    """Return the rows as a user of pyiceberg converts them."""
    table = pa.Table.from_pandas(rows, preserve_index=False)
    return table.set_column(0, "at", table.column("at").cast(pa.timestamp("us", "UTC")))


class Lake:
    """A catalog on SQLite and local files, with a table for each way of writing."""

    def __init__(self, directory: Path, *, has_spark: bool) -> None:
        catalog = SqlCatalog(uri=f"sqlite:///{directory}/catalog.db", warehouse=str(directory / "wh"))
        self.resource = IcebergSparkResource(catalog=catalog)
        if has_spark:
            from benchmarks.local_spark import local_spark

            self.resource = local_spark(directory, **{"spark.sql.session.timeZone": "UTC"})
        self.io_manager = IcebergPySparkIOManager(spark=self.resource, namespace="db", engine="arrow")

    @property
    def catalog(self) -> PyIcebergCatalog:
        """The catalog in pyiceberg."""
        return cast("PyIcebergCatalog", self.resource.pyiceberg_catalog)

    def by_ours(self, name: str, rows: Any, first: dt.date, days: int = 1, *, flat: bool = False) -> Callable[[], None]:
        """Return a function that writes by the IO manager. A run would have created the context before."""
        keys = [str(first + dt.timedelta(days=offset)) for offset in range(days)]
        chosen: dict[str, Any] = {"partition_key": keys[0]}
        if days > 1:
            chosen = {"asset_partition_key_range": dg.PartitionKeyRange(keys[0], keys[-1])}
        partitioned = {"asset_partitions_def": DAYS, "definition_metadata": {"partition_expr": "at"}, **chosen}
        options: dict[str, Any] = {} if flat else partitioned
        context = dg.build_output_context(asset_key=dg.AssetKey(name), resources={}, **options)
        return lambda: self.io_manager.handle_output(context, rows)

    def by_pyiceberg(
        self, name: str, rows: pd.DataFrame, first: dt.date, days: int = 1, *, flat: bool = False
    ) -> Callable[[], None]:
        """Return a function that writes by pyiceberg, as its documentation does."""
        return lambda: self._write_by_pyiceberg(name, rows, first, days, flat=flat)

    def _write_by_pyiceberg(self, name: str, rows: pd.DataFrame, first: dt.date, days: int, *, flat: bool) -> None:
        table, stored = as_stored(rows), self.catalog.load_table(("db", name))
        if flat:
            stored.overwrite(table)
            return
        start = dt.datetime.combine(first, dt.time(), dt.timezone.utc)
        end = start + dt.timedelta(days=days)
        stored.overwrite(table, overwrite_filter=f"at >= '{start.isoformat()}' and at < '{end.isoformat()}'")

    def by_spark(
        self, name: str, rows: Any, first: dt.date, days: int = 1, *, flat: bool = False
    ) -> Callable[[], None]:
        """Return a function that writes by plain Spark, as Iceberg's documentation does."""
        from pyspark.sql import functions as sf

        session = self.resource.spark_session
        frame = session.read.parquet(rows) if isinstance(rows, str) else rows
        start = dt.datetime.combine(first, dt.time(), dt.timezone.utc)
        end = start + dt.timedelta(days=days)
        condition = sf.lit(1) == sf.lit(1) if flat else (sf.col("at") >= sf.lit(start)) & (sf.col("at") < sf.lit(end))
        return lambda: frame.writeTo(f"lake.db.{name}").overwrite(condition)

    def merge_by_ours(self, name: str, rows: Any) -> Callable[[], None]:
        """Return a function that merges by the IO manager."""
        metadata: dict[str, Any] = {"iceberg/write_disposition": "merge", "iceberg/merge_keys": ["id"]}
        context = dg.build_output_context(asset_key=dg.AssetKey(name), resources={}, definition_metadata=metadata)
        return lambda: self.io_manager.handle_output(context, rows)

    def merge_by_pyiceberg(self, name: str, rows: pd.DataFrame) -> Callable[[], None]:
        """Return a function that merges by pyiceberg, as its documentation does."""

        def merge() -> None:
            self.catalog.load_table(("db", name)).upsert(as_stored(rows), join_cols=["id"])

        return merge

    def merge_by_spark(self, name: str, rows: Any) -> Callable[[], None]:
        """Return a function that merges by plain Spark, as Iceberg's documentation does."""
        rows.createOrReplaceTempView("batch")
        merge = f"MERGE INTO lake.db.{name} t USING batch s ON t.id = s.id"
        clauses = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"

        def run() -> None:
            self.resource.spark_session.sql(f"{merge} {clauses}").collect()

        return run

    def given(self, way: str, rows: pd.DataFrame) -> Any:
        """Return the rows as an asset would have them: Spark's in the JVM."""
        if way != "spark":
            return rows
        frame = self.resource.spark_session.createDataFrame(rows).coalesce(1).cache()
        frame.count()
        return frame

    def create(self, rows: pd.DataFrame, *names: str, flat: bool = False) -> None:
        """Create tables of the same columns and spec, with one day."""
        for name in names:
            self.by_ours(name, rows, FIRST_DAY, flat=flat)()

    def age(self, name: str, snapshots: int) -> None:
        """Give the table a long history: snapshots that all have the files of the first one."""
        path = Path(self.catalog.load_table(("db", name)).metadata_location.removeprefix("file:"))
        document = json.loads(path.read_text())
        first, known = document["snapshots"][0], document["snapshots"]
        older = [{**first, "snapshot-id": random.getrandbits(62)} for _ in range(snapshots - len(known))]
        document["snapshots"] = [*older, *known]
        log = [{"snapshot-id": item["snapshot-id"], "timestamp-ms": item["timestamp-ms"]} for item in older]
        document["snapshot-log"] = [*log, *document["snapshot-log"]]
        path.write_text(json.dumps(document))
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)  # Hadoop's checksum


def median_seconds(calls: Sequence[Callable[[], Callable[[], None]]], repeats: int) -> list[float]:
    """Return the median seconds of what each call prepares. They take turns."""
    seconds: list[list[float]] = [[] for _ in calls]
    for _ in range(repeats):
        for measured, call in zip(seconds, calls, strict=True):
            prepared = call()
            began = time.perf_counter()
            prepared()
            measured.append(time.perf_counter() - began)
    return [statistics.median(measured) for measured in seconds]


def print_line(case: str, seconds: Sequence[float], memory: Sequence[float] = ()) -> None:
    """Print the seconds of each way, and the ratios to the first one."""
    shown = "  ".join(f"{item:7.3f}" for item in seconds)
    ratios = "  ".join(f"{item / seconds[0]:5.2f}" for item in seconds)
    peaks = f"   MB {'  '.join(f'{item:6.0f}' for item in memory)}" if memory else ""
    print(f"{case:<36} {shown}   {ratios}{peaks}", flush=True)


def small_writes(lake: Lake, repeats: int, histories: Sequence[int]) -> None:
    """Measure writes of one day."""
    rows = rows_of(1, ROWS_OF_A_DAY)
    lake.create(rows, *WAYS)
    offsets = dict.fromkeys(WAYS, 0)

    def new_day(way: str) -> Callable[[], None]:
        offsets[way] += 1
        moved = lake.given(way, rows.assign(at=rows["at"] + pd.Timedelta(days=offsets[way])))
        write: Callable[[], None] = getattr(lake, f"by_{way}")(way, moved, FIRST_DAY + dt.timedelta(days=offsets[way]))
        return write

    def again(way: str) -> Callable[[], None]:
        same = lake.given(way, rows)
        write: Callable[[], None] = getattr(lake, f"by_{way}")(way, same, FIRST_DAY)
        return write

    def measured(name: str, call: Callable[[str], Callable[[], None]], times: int) -> None:
        calls = [partial(call, way) for way in WAYS]
        median_seconds(calls, 2)
        print_line(name, median_seconds(calls, times))

    measured("a new day of 870 rows", new_day, repeats)
    measured("the same day again", again, repeats)
    for snapshots in histories:
        for way in WAYS:
            lake.age(way, snapshots)
        measured(f"the same day at {snapshots:,} snapshots", again, max(3, repeats // 3))


def merges(lake: Lake, repeats: int) -> None:
    """Measure merges of 1,000 rows, half of them new, into a table of ten files with 10,000 rows each."""
    names = [f"merged_by_{way}" for way in WAYS]
    for first in range(0, 100_000, 10_000):
        stored = rows_of(1, 10_000)
        stored["id"] += first
        for name in names:
            lake.merge_by_ours(name, stored)()
    offsets = dict.fromkeys(WAYS, 0)

    def merge(way: str, *, moves: bool) -> Callable[[], None]:
        offsets[way] += moves
        batch = rows_of(1, 1_000).assign(n0=float(offsets[way]))
        batch["id"] += 99_500 + 500 * offsets[way]
        call: Callable[[], None] = getattr(lake, f"merge_by_{way}")(f"merged_by_{way}", lake.given(way, batch))
        return call

    for case, moves in (("1,000 rows, half of them new", True), ("the same 1,000 rows, no change", False)):
        calls = [partial(merge, way, moves=moves) for way in WAYS]
        median_seconds(calls, 2)
        print_line(f"a merge of {case}", median_seconds(calls, repeats))


def large_write(directory: Path, way: str, *, flat: bool) -> None:
    """Write 5 million rows in this process, and print the seconds and the megabytes that it takes beyond the rows."""
    lake = Lake(directory, has_spark=way == "spark")
    name = f"{way}_{'flat' if flat else 'days'}"
    lake.create(rows_of(1, ROWS_OF_A_DAY), name, flat=flat)
    rows: Any = rows_of(365, ROWS_OF_A_YEAR)
    if way == "spark":
        rows.to_parquet(directory / "rows.parquet")
        rows = str(directory / "rows.parquet")
        lake.by_spark(name, rows, FIRST_DAY, 365, flat=flat)()  # which warms the JVM up
    write = getattr(lake, f"by_{way}")(name, rows, FIRST_DAY, 365, flat=flat)
    before, peak, ended = megabytes(), [0.0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.01):
            peak[0] = max(peak[0], megabytes())

    watching = threading.Thread(target=watch)
    watching.start()
    began = time.perf_counter()
    write()
    seconds = time.perf_counter() - began
    ended.set()
    watching.join()
    print(json.dumps([seconds, peak[0] - before]), flush=True)


def megabytes() -> float:
    """Return the memory of this process, without that of a JVM."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def large_writes(directory: Path) -> None:
    """Measure writes of 5 million rows, each in a process."""
    for flat in (True, False):
        found = []
        for way in WAYS:
            asked = ["--large", way, *(["--flat"] if flat else []), "--directory", str(directory)]
            done = subprocess.run(  # noqa: S603 - this program
                [sys.executable, "-m", "benchmarks.arrow", *asked], capture_output=True, text=True, check=True
            )
            found.append(json.loads(done.stdout.splitlines()[-1]))
        seconds, memory = zip(*found, strict=True)
        print_line(f"{ROWS_OF_A_YEAR:,} rows {'flat' if flat else 'in 365 days'}", seconds, memory)


def reads(lake: Lake, repeats: int) -> None:
    """Measure reads of 5 million rows."""
    rows = rows_of(365, ROWS_OF_A_YEAR).drop(columns="at")  # pandas' instants take Spark a minute
    lake.by_ours("read", rows, FIRST_DAY, flat=True)()
    frame = lake.resource.spark_session.table("lake.db.read")
    context = dg.build_output_context(asset_key=dg.AssetKey("read"))

    def by_hand() -> Any:
        return lake.catalog.load_table(("db", "read")).scan()

    kinds: dict[type, tuple[Callable[[], object], Callable[[], object]]] = {
        pa.Table: (frame.toArrow, lambda: by_hand().to_arrow()),
        pd.DataFrame: (frame.toPandas, lambda: by_hand().to_pandas()),
    }
    for kind, (by_spark, by_pyiceberg) in kinds.items():

        def load(kind: type = kind) -> None:
            dagster_type = dg.DagsterType(lambda _context, _value: True, kind.__name__, typing_type=kind)
            loaded = dg.build_input_context(
                asset_key=dg.AssetKey("read"), upstream_output=context, dagster_type=dagster_type, resources={}
            )
            if len(lake.io_manager.load_input(loaded)) != len(rows):
                message = "rows are missing"
                raise ValueError(message)

        calls = [lambda way=way: way for way in (by_spark, by_pyiceberg, load)]
        median_seconds(calls, 1)
        print_line(f"all of {ROWS_OF_A_YEAR:,} rows as a {kind.__name__}", median_seconds(calls, repeats))


def cold_processes(directory: Path, repeats: int) -> None:
    """Measure `dagster asset materialize` of a pandas asset, and of an asset that does nothing."""
    files = {"readings": COLD.format(directory=directory), "nothing": NO_WORK}
    for name, text in files.items():
        (directory / f"{name}.py").write_text(text)
    command = [str(Path(sys.executable).with_name("dagster")), "asset", "materialize"]

    def run(name: str, *options: str) -> None:
        file = str(directory / f"{name}.py")
        subprocess.run(  # noqa: S603 - dagster
            [*command, "-f", file, "--select", name, *options], capture_output=True, check=True
        )

    calls = [lambda: partial(run, "nothing"), lambda: partial(run, "readings", "--partition", "2013-01-01")]
    median_seconds(calls, 1)
    nothing, seconds = median_seconds(calls, repeats)
    print(f"process of `dagster asset materialize`: {seconds:.2f} s; of an asset that does nothing: {nothing:.2f} s")


def main() -> None:
    """Print a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="measure less")
    parser.add_argument("--large", choices=WAYS)
    parser.add_argument("--flat", action="store_true")
    parser.add_argument("--directory")
    asked = parser.parse_args()
    logging.disable(logging.INFO)
    if asked.large:
        large_write(Path(asked.directory), asked.large, flat=asked.flat)
        return
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        print(f"{'case':<36} {'  '.join(f'{way:>7}' for way in WAYS)}   ratios")
        lake = Lake(directory, has_spark=True)
        small_writes(lake, 5 if asked.quick else 15, (10, 200, 1_000, 10_000))
        merges(lake, 3 if asked.quick else 9)
        reads(lake, 3 if asked.quick else 7)
        large_writes(directory)
        cold_processes(directory, 3 if asked.quick else 5)


if __name__ == "__main__":
    main()
