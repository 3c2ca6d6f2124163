"""What a merge costs beside a plain MERGE of the same batch, and how many files each of them writes again.

Run it with `make bench-merging`. Both ways have a table of the same rows, and are measured in turn in one session.
"""

import argparse
import logging
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
from pyspark.sql import DataFrame, SparkSession

from dagster_iceberg_spark import IcebergPySparkIOManager, IcebergSparkResource, SqlCatalog

FILES = 40
MERGE = {"iceberg/write_disposition": "merge", "iceberg/merge_keys": ["id"], "iceberg/table": "ours.t"}
PLAIN = (
    "merge into lake.plain.t t using batch s on t.id = s.id "
    "when matched then update set * when not matched then insert *"
)


@dataclass
class Case:
    """A batch, as keys and the values that change.

    Args:
        name: In words.
        keys: SQL of its keys over `id`.
        changed: SQL that says of a key whether its value changes.
    """

    name: str
    keys: str
    changed: str
    ours: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)
    files: dict[str, int] = field(default_factory=dict)

    def line(self) -> str:
        """Return medians, their ratio, and the files that were written again."""
        ours, plain = statistics.median(self.ours), statistics.median(self.plain)
        rewritten = f"{self.files['ours']:>3} {self.files['plain']:>5}  of {FILES}"
        return f"{self.name:<52} {ours:8.2f} {plain:8.2f} {ours / plain:7.2f}   {rewritten}   n={len(self.ours)}"


class Bench:
    """One session, and a table of each way."""

    def __init__(self, directory: Path, rows: int) -> None:
        self.rows = rows
        self.spark = IcebergSparkResource(
            catalog=SqlCatalog(uri=f"sqlite:///{directory}/catalog.db", warehouse=str(directory / "warehouse")),
            spark_config={
                "spark.master": "local[2]",
                "spark.driver.memory": "4g",
                "spark.ui.enabled": "false",
                "spark.log.level": "ERROR",
            },
        )
        self.instance = dg.DagsterInstance.ephemeral()

    @property
    def session(self) -> SparkSession:
        """The session of both ways."""
        return self.spark.spark_session

    def frame(self, keys: str, changed: str, round_number: int) -> DataFrame:
        """Return rows whose values follow from their keys, and others where they change."""
        value = f"case when {changed} then {round_number} else 0 end"
        return (
            self.session.range(self.rows)
            .where(keys)
            .selectExpr("id", f"{value} as v", *(f"cast(id * {n} as string) as c{n}" for n in range(1, 7)))
        )

    def prepare(self) -> None:
        """Make both tables anew, each of so many files."""
        for name in ("ours", "plain"):
            self.session.sql(f"create namespace if not exists lake.{name}")
            self.session.sql(f"drop table if exists lake.{name}.t purge")
            rows = self.frame("true", "false", 0).repartitionByRange(FILES, "id")
            rows.writeTo(f"lake.{name}.t").tableProperty("write.distribution-mode", "none").create()

    def ours(self, batch: DataFrame) -> None:
        """Merge through the IO manager, in a run of its own."""

        @dg.asset(io_manager_key="iceberg", metadata=MERGE)
        def t() -> Any:
            return batch

        resources = {"iceberg": IcebergPySparkIOManager(spark=self.spark)}
        dg.materialize([t], resources=resources, instance=self.instance)

    def plain(self, batch: DataFrame) -> None:
        """Merge by the statement alone."""
        batch.createOrReplaceTempView("batch")
        self.session.sql(PLAIN)

    def rewritten(self, name: str) -> int:
        """Return how many files the last commit took out of the table."""
        snapshots = self.session.table(f"lake.{name}.t.snapshots").orderBy("committed_at", ascending=False)
        [newest] = snapshots.head(1)
        return int(newest.summary.get("deleted-data-files", 0))

    def measure(self, case: Case, rounds: int) -> None:
        """Merge the case's batch in turn, with other values each time."""
        ways: dict[str, tuple[Any, list[float]]] = {
            "ours": (self.ours, case.ours),
            "plain": (self.plain, case.plain),
        }
        self.prepare()
        for number in range(1, rounds + 1):
            for name in sorted(ways, reverse=number % 2 == 0):
                write, seconds = ways[name]
                started = time.perf_counter()
                write(self.frame(case.keys, case.changed, number))
                seconds.append(time.perf_counter() - started)
                case.files[name] = self.rewritten(name)


def main() -> None:
    """Measure each case and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=4)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    step = arguments.rows // 1000
    cases = [
        Case("1,000 keys in a row, 10 of them change", "id < 1000", "id < 10"),
        Case("1,000 keys all over the table, 10 change in 1 file", f"id % {step} = 0", f"id < {10 * step}"),
        Case("1,000 keys all over the table, all change", f"id % {step} = 0", "true"),
        Case("every key, nothing changes", "true", "false"),
    ]
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(Path(directory), arguments.rows)
        warm = Case("warm", "id < 10", "true")
        bench.measure(warm, 1)
        print(f"{'seconds (medians)':<52} {'ours':>8} {'plain':>8} {'ratio':>7}   files rewritten: ours, plain")
        for case in cases:
            bench.measure(case, arguments.rounds)
            print(case.line(), flush=True)


if __name__ == "__main__":
    main()
