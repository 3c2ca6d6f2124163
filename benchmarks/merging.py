"""The cost of a merge compared with a plain MERGE of the same batch, and the files that each rewrites.

Run it with `make bench-merging`. Both ways have a table of the same rows, and are measured in turn in one session.
"""

import argparse
import itertools
import logging
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

import dagster as dg
from pyspark.sql import DataFrame, SparkSession

from benchmarks.local_spark import local_spark
from dagster_iceberg_spark import IcebergPySparkIOManager

FILES = 40
PARTITIONS = 10
DAYS = 365
TOUCHED = 30
MERGE = {
    "iceberg/write_disposition": "merge",
    "iceberg/merge_keys": ["id"],
    "iceberg/table": "ours.t",
    "partition_expr": "part",
}
Layout = Literal["no partitions", "ten partitions", "one of ten partitions"]
DaysLayout = Literal["365 days", "30 of 365 days", "365 days with keys all over"]


@dataclass
class Case:
    """A batch, as keys and the values that change.

    Args:
        name: In words.
        keys: SQL of its keys over `id`.
        changed: SQL that says of a key whether its value changes.
        layout: How the table is partitioned, and whether the run, and the plain MERGE, own some partitions alone.
        new: The number of keys that the table lacks, in the newest days.
    """

    name: str
    keys: str
    changed: str
    layout: Layout | DaysLayout = "no partitions"
    new: int = 0
    ours: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)
    files: dict[str, int] = field(default_factory=dict)

    @property
    def partitions(self) -> int:
        """The number of partitions of the table."""
        if self.layout in get_args(DaysLayout):
            return DAYS
        return 1 if self.layout == "no partitions" else PARTITIONS

    @property
    def owned(self) -> list[str]:
        """The partitions that the run owns, if it does not own the table."""
        newest = [f"p{number}" for number in range(DAYS - TOUCHED, DAYS)]
        return {"one of ten partitions": ["p0"], "30 of 365 days": newest}.get(self.layout, [])

    @property
    def is_all_over(self) -> bool:
        """Whether each partition has keys of the whole range."""
        return self.layout == "365 days with keys all over"

    def line(self) -> str:
        """Return the medians, the median of the ratios of each round, and the number of rewritten files."""
        ours, plain = statistics.median(self.ours), statistics.median(self.plain)
        ratio = statistics.median(one / other for one, other in zip(self.ours, self.plain, strict=True))
        rewritten = f"{self.files['ours']:>3} {self.files['plain']:>5}"
        return f"{self.name:<72} {ours:8.2f} {plain:8.2f} {ratio:7.2f}   {rewritten}   n={len(self.ours)}"


class Bench:
    """One session with a table for the IO manager and one for plain Spark."""

    def __init__(self, directory: Path, rows: int) -> None:
        self.rows = rows
        self.spark = local_spark(directory)
        self.io_manager = IcebergPySparkIOManager(spark=self.spark)

    @property
    def session(self) -> SparkSession:
        """The session of both."""
        return self.spark.spark_session

    def frame(self, case: Case, round_number: int) -> DataFrame:
        """Return rows whose values follow from their keys, and others where they change."""
        value = f"case when {case.changed} then {round_number} else 0 end"
        newest = f"{DAYS - TOUCHED} + id % {TOUCHED}"
        stored = f"id % {DAYS}" if case.is_all_over else f"id * {case.partitions} div {self.rows}"
        place = f"cast(if(id < {self.rows}, {stored}, {newest}) as int)"
        part = f"concat('p', {place})"
        return (
            self.session.range(self.rows + case.new)
            .where(f"id >= {self.rows} or ({case.keys})")
            .selectExpr(
                "id", f"{value} as v", f"{part} as part", *(f"cast(id * {n} as string) as c{n}" for n in range(1, 7))
            )
        )

    def prepare(self, case: Case) -> None:
        """Create both tables again, with this number of files."""
        everything = replace(case, keys="true", changed="false", new=0)
        for name in ("ours", "plain"):
            self.session.sql(f"create namespace if not exists lake.{name}")
            self.session.sql(f"drop table if exists lake.{name}.t purge")
            by = "part" if case.is_all_over else "id"
            rows = self.frame(everything, 0).repartitionByRange(FILES, by).writeTo(f"lake.{name}.t")
            if case.partitions > 1:
                rows = rows.partitionedBy("part")
            rows.tableProperty("write.distribution-mode", "none").create()
            self.session.sql(f"alter table lake.{name}.t unset tblproperties ('write.distribution-mode')")

    def ours(self, case: Case, batch: DataFrame) -> None:
        """Merge through the IO manager. A run would have created the context before."""
        metadata: dict[str, Any] = {**MERGE, "iceberg/partition_by": [] if case.partitions == 1 else ["part"]}
        if case.owned:
            self.run(case, lambda: batch, metadata)
        else:
            context = dg.build_output_context(asset_key=dg.AssetKey("t"), definition_metadata=metadata, resources={})
            self.io_manager.handle_output(context, batch)

    def plain(self, case: Case, batch: DataFrame) -> None:
        """Merge with the statement alone."""
        batch.createOrReplaceTempView("batch")
        owned = f" and t.part in ({', '.join(map(repr, case.owned))})" if case.owned else ""
        statement = (
            f"merge into lake.plain.t t using batch s on t.id = s.id{owned} "
            "when matched then update set * when not matched then insert *"
        )

        def merge() -> dg.MaterializeResult:  # type: ignore[type-arg]
            self.session.sql(statement)
            return dg.MaterializeResult()

        if case.owned:
            self.run(case, merge, {})
        else:
            merge()

    def run(self, case: Case, body: Callable[[], Any], metadata: Mapping[str, Any]) -> None:
        """Materialize an asset for the partitions that the case owns. Both ways pay for Dagster's events of each."""
        asset = dg.asset(
            name="t",
            partitions_def=dg.StaticPartitionsDefinition([f"p{number}" for number in range(case.partitions)]),
            metadata=metadata,
            backfill_policy=dg.BackfillPolicy.single_run(),
            io_manager_key="iceberg",
        )(body)
        first, last = case.owned[0], case.owned[-1]
        tags = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}
        dg.materialize([asset], resources={"iceberg": self.io_manager}, tags=tags)

    def rewritten(self, name: str) -> int:
        """Return the number of files that the last commit removed."""
        snapshots = self.session.table(f"lake.{name}.t.snapshots").orderBy("committed_at", ascending=False)
        [newest] = snapshots.head(1)
        return int(newest.summary.get("deleted-data-files", 0))

    def measure(self, case: Case, rounds: int) -> None:
        """Merge the case's batch in turn, with other values each time."""
        ways: dict[str, tuple[Any, list[float]]] = {"ours": (self.ours, case.ours), "plain": (self.plain, case.plain)}
        self.prepare(case)
        for number in range(1, rounds + 1):
            for name in sorted(ways, reverse=number % 2 == 0):
                write, seconds = ways[name]
                started = time.perf_counter()
                write(case, self.frame(case, number))
                seconds.append(time.perf_counter() - started)
                case.files[name] = self.rewritten(name)


def cases(rows: int) -> Iterator[Case]:
    """Return the cases: batches that match little of the table, then a tenth of it in each layout."""
    step = rows // 1000
    yield Case("1,000 keys in a row, 10 of them change", "id < 1000", "id < 10")
    yield Case("1,000 keys all over the table, 10 change in 1 file", f"id % {step} = 0", f"id < {10 * step}")
    yield Case("1,000 keys all over the table, all change", f"id % {step} = 0", "true")
    yield Case("every key, nothing changes", "true", "false")
    changes = {"all change": "true", "nothing changes": "false"}
    for layout, (name, changed) in itertools.product(get_args(Layout), changes.items()):
        keys = f"id < {rows // PARTITIONS}" if layout == "one of ten partitions" else f"id % {PARTITIONS} = 0"
        yield Case(f"a tenth of all keys, {layout}, {name}", keys, changed, layout)
    for layout, size in itertools.product(get_args(DaysLayout), (rows // 10, rows // 100)):
        first = rows * (DAYS - TOUCHED) // DAYS
        keys = f"id >= {first} and id % 1000 < {size * 500 // (rows - first)}"
        if layout == "365 days with keys all over":
            keys = f"id % {DAYS} >= {DAYS - TOUCHED} and id div {DAYS} % 1000 < {size * 500 // (rows - first)}"
        yield Case(f"{size:,} rows, half of them new, {layout}", keys, "true", layout, new=size // 2)
        yield Case(f"{size // 2:,} rows, {layout}, nothing changes", keys, "false", layout)


def main() -> None:
    """Measure each case and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--only", default="", help="a part of the names of the cases to measure")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(Path(directory), arguments.rows)
        bench.measure(Case("warm", "id < 10", "true"), 1)
        print(f"{'seconds (medians)':<72} {'ours':>8} {'plain':>8} {'ratio':>7}   files rewritten: ours, plain")
        for case in cases(arguments.rows):
            if arguments.only in case.name:
                bench.measure(case, arguments.rounds)
                print(case.line(), flush=True)


if __name__ == "__main__":
    main()
