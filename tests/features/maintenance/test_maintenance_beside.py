"""Maintenance beside four writers and two readers: no write fails, and no read is wrong.

docs/maintenance.md: What it achieves
"""

import datetime as dt
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Final

import dagster as dg
import pyarrow as pa
import pytest

from dagster_iceberg_spark import IcebergPySparkIOManager, IcebergSparkResource
from tests.features.maintenance.maintaining import AT_ONCE, done, maintain
from tests.lakes import SPARK_CONF, Lake, frame_asset

MINUTES: Final = float(os.environ.get("MAINTENANCE_MINUTES", "10"))
ROWS: Final = 10
POLICY: Final = AT_ONCE.model_copy(update={"older_than": dt.timedelta(seconds=10), "retain_last": 3})
DAYS: Final = dg.DailyPartitionsDefinition("2013-01-01")

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3600)]


@dg.asset(
    name="copied",
    io_manager_key="iceberg",
    metadata={"iceberg/write_disposition": "append"},
    ins={"batches": dg.AssetIn(metadata={"iceberg/read": "changes"}, partition_mapping=dg.AllPartitionMapping())},
)
def copied(batches: pa.Table) -> pa.Table:
    return batches


def batches(number: int = 0, disposition: str = "append") -> dg.AssetsDefinition:
    """An asset whose rows have the number of the write that added them."""
    query = f"select {{start}} as ts, {number}L as batch from range({ROWS})"
    metadata = {"partition_expr": "ts", "iceberg/write_disposition": disposition}
    return frame_asset("batches", query, partitions_def=DAYS, metadata=metadata)


@dataclass
class Beside:
    """What happens beside the maintenance.

    Args:
        lake: The lake. Each writer and reader has a session and a Dagster instance of its own.
        written: The batches whose write has ended.
        seen: The batches that a reader has seen.
    """

    lake: Lake
    ends: float
    numbers: count = field(default_factory=lambda: count(1))  # type: ignore[type-arg] # of ints
    written: list[int] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)
    reads: Counter[str] = field(default_factory=Counter)

    def append(self, lake: Lake, day: str) -> None:
        number = next(self.numbers)
        lake.materialize(batches(number), partition_key=day)
        self.written.append(number)

    def replace(self, lake: Lake) -> None:
        """Write a new day. A replacement that removes no rows is a change that can be read."""
        number = next(self.numbers)
        day = dt.date(2014, 1, 1) + dt.timedelta(days=number)
        lake.materialize(batches(number, "replace"), partition_key=str(day))
        self.written.append(number)

    def insert(self, lake: Lake) -> None:
        """Write as somebody does who does not have the package."""
        number = next(self.numbers)
        name = f"{lake.spark.iceberg_session.catalog.name}.db.batches"
        at = "timestamp '2013-01-03 00:00:00 UTC'"
        lake.session.sql(f"insert into {name} select {at}, {number}L from range({ROWS})")
        self.written.append(number)

    def read_all(self, lake: Lake) -> None:
        """See each batch as a whole, and all that were written before."""
        before = {*self.written}
        found = Counter(lake.arrow("batches").column("batch").to_pylist())
        assert set(found.values()) == {ROWS}
        assert before | self.seen <= found.keys()
        self.seen |= found.keys()
        self.reads["all"] += 1

    def read_changes(self, lake: Lake) -> None:
        lake.materialize(batches(), copied, selection=[copied])
        self.reads["changes"] += 1

    def repeat(self, action: Callable[[Lake], None], number: int, failures: list[str]) -> None:
        conf = {**SPARK_CONF, "spark.sql.shuffle.partitions": str(20 + number)}
        spark = IcebergSparkResource(catalog=self.lake.spark.catalog, spark_config=conf, jars="provided")
        io_manager = IcebergPySparkIOManager(spark=spark, namespace="db")
        with dg.DagsterInstance.ephemeral() as instance:
            lake = Lake(spark, io_manager, instance, self.lake.directory)
            while time.monotonic() < self.ends and not failures:
                try:
                    action(lake)
                except BaseException as error:
                    failures.append(repr(error))
                    raise


@pytest.mark.parametrize(
    "minutes", [pytest.param(0.5, marks=pytest.mark.full), pytest.param(MINUTES, marks=pytest.mark.slow)]
)
def test_no_write_fails_and_no_read_is_wrong(
    classic_lake: Lake, capsys: pytest.CaptureFixture[str], minutes: float
) -> None:
    lake, failures, outcomes = classic_lake, list[str](), Counter[str]()
    lake.materialize(batches(), partition_key="2013-01-01")
    beside = Beside(lake, time.monotonic() + 60 * minutes, written=[0])
    actions: list[Callable[[Lake], None]] = [
        lambda own: beside.append(own, "2013-01-01"),
        lambda own: beside.append(own, "2013-01-02"),
        beside.replace,
        beside.insert,
        beside.read_all,
        beside.read_changes,
    ]
    threads = [
        threading.Thread(target=beside.repeat, args=(action, number, failures)) for number, action in enumerate(actions)
    ]
    for thread in threads:
        thread.start()
    with dg.DagsterInstance.ephemeral() as own:
        maintaining = Lake(lake.spark, lake.io_manager, own, lake.directory)
        while time.monotonic() < beside.ends and not failures:
            for metadata in maintain(maintaining, batches(), copied, policy=POLICY).values():
                for action, outcome in (done(metadata) if "iceberg/done" in metadata else {}).items():
                    outcomes[f"{action.split()[0]}{', skipped' if 'skipped' in outcome else ''}"] += 1
    for thread in threads:
        thread.join()
    assert not failures
    lake.materialize(batches(), copied, selection=[copied])
    expected = Counter(dict.fromkeys(beside.written, ROWS))
    assert Counter(lake.arrow("batches").column("batch").to_pylist()) == expected
    assert Counter(lake.arrow("copied").column("batch").to_pylist()) == expected, "each row was read once"
    table = lake.table("batches")
    with capsys.disabled():
        sys.stdout.write(
            f"\n{len(beside.written)} writes, {dict(beside.reads)} reads, maintenance: {dict(outcomes)}; "
            f"{len(table.snapshots())} snapshots, {sum(1 for _ in table.scan().plan_files())} files are left\n"
        )
    assert outcomes["compact"]
    assert outcomes["expire"]
