"""Whatever happens to both tables, an asset that appends what is new has each row once."""

import datetime as dt
import random
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import dagster as dg
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from dagster_iceberg_spark.errors import IcebergSparkError
from dagster_iceberg_spark.features.releases.undo import undo_run
from dagster_iceberg_spark.spark.columns import functions_of
from tests.features.maintenance.maintaining import PATIENT, maintain
from tests.lakes import Lake, around_write, dying, frame_asset, resuming

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.spark
DAYS: Final = dg.DailyPartitionsDefinition("2020-01-01")
OF_EVENTS: Final = {"partition_expr": "d", "iceberg/partition_by": [], "iceberg/retain": "400 days"}
OLD: Final = "2020-06-01"
"""A day whose rows the maintenance of the upstream table deletes."""
STEPS: Final = 18


class World:
    """An upstream table, an asset that copies what is new in it, and what ought to be in the copy."""

    def __init__(self, lake: Lake, annotation: Any, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self._lake, self._random, self._patch = lake, random.Random(seed), monkeypatch
        self._next = 0
        self.upstream_asset = frame_asset(
            "events", "select 1L as id, date'{key}' as d", partitions_def=DAYS, metadata=OF_EVENTS
        )
        self.upstream = self.upstream_asset.to_source_asset()

        version = self._random.choice([2, 3])

        def body(events: Any) -> Any:
            return events

        body.__annotations__["events"] = annotation
        self.copy = dg.asset(
            name="copied",
            ins={"events": dg.AssetIn("events", metadata={"iceberg/read": "changes"})},
            io_manager_key="iceberg",
            metadata={"iceberg/write_disposition": "append", "iceberg/format_version": version},
        )(body)
        lake.session.sql("create namespace if not exists lake.db")
        properties = f"tblproperties ('format-version' = '{version}')"
        lake.session.sql(f"create table lake.db.events (id bigint, d date) using iceberg {properties}")

    def rows(self) -> DataFrame:
        number = self._random.randint(1, 3)
        first, self._next = self._next, self._next + number
        yesterday = dt.date.today() - dt.timedelta(days=1)  # noqa: DTZ011 - any of the last 400 days
        day = self._random.choice([OLD, yesterday])
        return self._lake.session.range(first, self._next).selectExpr("id", f"date'{day}' as d")

    def append(self) -> None:
        self.rows().writeTo("lake.db.events").append()

    def overwrite_nothing(self) -> None:
        self.rows().writeTo("lake.db.events").overwrite(functions_of(self._lake.session).expr("id < 0"))

    def compact(self) -> None:
        self._lake.session.sql(
            "call lake.system.rewrite_data_files(table => 'lake.db.events', options => map('rewrite-all', 'true'))"
        )

    def maintain(self) -> None:
        """Compact and expire both tables, and delete old rows upstream. What the copy has read last is kept."""
        maintain(self._lake, self.upstream_asset, self.copy, policy=PATIENT)

    def alter(self) -> None:
        self._lake.session.sql(f"alter table lake.db.events add column c{self._random.getrandbits(60)} int")

    def run(self, **kwargs: Any) -> dg.ExecuteInProcessResult:
        return self._lake.materialize(self.copy, self.upstream, selection=[self.copy], **kwargs)

    def fail(self) -> None:
        """Before anything is committed."""

        def fails(*_: Any) -> None:
            message = "no"
            raise RuntimeError(message)

        with self._patch.context() as patched:
            around_write(patched, fails)
            assert not self.run(raise_on_error=False).success

    def die_and_resume(self) -> None:
        """After the commit, before Dagster knows of it."""

        with dying(self._patch):
            failed = self.run(raise_on_error=False)
        assert not failed.success
        if self._random.random() < 0.5:
            self.append()
        assert self.run(tags=resuming(failed.run_id)).success

    def race(self) -> None:
        """Of two runs one comes first, in the moment before the other's commit."""
        state = {"done": False}

        def first_the_other(genuine: Any, _: Any) -> Any:
            if not state["done"]:
                state["done"] = True
                self.run()
            return genuine()

        with self._patch.context() as patched:
            around_write(patched, first_the_other)
            self.run(raise_on_error=False)

    def roll_back(self) -> None:
        """The copy to one of its own snapshots."""
        table = self._lake.table("copied") if self._lake.exists("copied") else None
        kept = {item.snapshot_id for item in table.snapshots()} if table else set[int]()
        history = [item.snapshot_id for item in table.history() if item.snapshot_id in kept] if table else []
        if history:
            chosen = self._random.choice(history)
            self._lake.session.sql(f"call lake.system.set_current_snapshot('lake.db.copied', {chosen})")

    def undo(self) -> None:
        """The newest run of the copy that has an effect, if its history is complete."""
        summaries = self._lake.summaries("copied") if self._lake.exists("copied") else []
        runs = [item["dagster.run_id"] for item in summaries if "dagster.upstream" in item]
        if not runs:
            return
        definitions = dg.Definitions([self.copy, self.upstream], resources=self._lake.resources)
        try:
            undo_run(definitions, runs[-1], cascade=True, instance=self._lake.instance)
        except IcebergSparkError as error:
            # What is undone or has expired, and files that a compaction has rewritten.
            assert type(error).__name__ in ("UpstreamMissingError", "ConfigurationError"), error  # noqa: PT017

    def check(self) -> None:
        """The copy has each row once: those that are there upstream, and perhaps some that were."""
        if self._lake.exists("copied"):
            found = Counter(self._lake.rows("copied", "id"))
            assert not {row for row, times in found.items() if times > 1}
        self.run()
        copied = self._lake.rows("copied", "id")
        assert len(copied) == len(set(copied))
        assert set(self._lake.rows("events", "id")) <= set(copied) <= set(range(self._next))


@pytest.mark.full
@pytest.mark.parametrize(
    ("annotation", "seed"),
    [
        (DataFrame, 0),
        (pa.Table, 1),
        *(pytest.param(DataFrame, seed, marks=pytest.mark.slow) for seed in (1, 2, 3)),
        *(pytest.param(pa.Table, seed, marks=pytest.mark.slow) for seed in (0, 2, 3)),
    ],
)
def test_each_row_is_there_once(
    lake: Lake, kept_instance: dg.DagsterInstance, annotation: Any, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs fail, die after their commit and are resumed, race each other; the copy is rolled back."""
    kept = Lake(lake.spark, lake.io_manager, kept_instance, lake.directory)
    world = World(kept, annotation, seed, monkeypatch)
    happenings: list[Callable[[], Any]] = [
        world.append,
        world.append,
        world.overwrite_nothing,
        world.compact,
        world.maintain,
        world.alter,
        world.run,
        world.run,
        world.fail,
        world.die_and_resume,
        world.race,
        world.roll_back,
        world.undo,
    ]
    chosen = random.Random(f"{seed} of {annotation.__name__}")
    for number in range(STEPS):
        chosen.choice(happenings)()
        if number % 6 == 5:
            world.check()
