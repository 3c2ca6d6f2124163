"""Random schemas, session settings and filters: whatever the types, a table holds what was written, in every engine.

`make test` draws the same history each time; `make test-long` draws new ones. Set `MODEL_SEEDS` and `MODEL_STEPS` to
draw more, or `MODEL_SEED` to draw one again.
"""

import os
import random
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import FixedType, IntegerType, ListType, NestedField, StringType, StructType, UUIDType
from pyspark.sql import DataFrame

from dagster_iceberg_spark import IcebergSparkResource
from tests.core.behaviour import schemas
from tests.core.behaviour.conditions import Condition, draw_condition, draw_where
from tests.core.behaviour.schemas import Kind, Latitude, Leaf, List, Row, Struct
from tests.lakes import Lake, StepError, add_column, arrow_of, error_of

pytestmark = pytest.mark.spark

KEYS = ("a", "b", "O'B")
FIXED: Mapping[str, Kind] = {"k": Leaf("STRING"), "id": Leaf("INT")}
LAYOUTS: tuple[list[str], ...] = ([], ["k"], ["truncate(1, k)"], ["bucket(2, id)"], ["k", "bucket(2, id)"])
SETTINGS: Mapping[str, tuple[str, ...]] = {
    "spark.sql.session.timeZone": ("Asia/Tokyo", "America/Los_Angeles", "UTC"),
    "spark.sql.timestampType": ("TIMESTAMP_LTZ", "TIMESTAMP_NTZ"),
    "spark.sql.caseSensitive": ("false", "true"),
    "spark.sql.ansi.enabled": ("true", "false"),
    "spark.sql.ansi.doubleQuotedIdentifiers": ("false", "true"),
    "spark.sql.ansi.enforceReservedKeywords": ("false", "true"),
    "spark.sql.storeAssignmentPolicy": ("ANSI", "STRICT"),
    "spark.sql.parser.escapedStringLiterals": ("false", "true"),
    "spark.sql.legacy.consecutiveStringLiterals.enabled": ("false", "true"),
    "spark.sql.mapKeyDedupPolicy": ("EXCEPTION", "LAST_WIN"),
}
PROPERTIES: tuple[Mapping[str, str], ...] = (
    {},
    {"format-version": "3"},
    {f"write.{verb}.mode": "merge-on-read" for verb in ("delete", "update", "merge")},
)
DEFAULTS: tuple[tuple[Leaf, Any], ...] = ((Leaf("STRING"), "EU"), (Leaf("INT"), 7), (Leaf("BOOLEAN"), True))
"""Of columns that another engine adds (Iceberg spec, "Default values")."""
MERGES = ("upsert", "delete_insert", "insert_only")
DISPOSITIONS = ("replace", "replace", "append", *MERGES, "replace_where", "overwrite_partitions")


class World:
    """One table, its asset, an asset that copies what is new in it, and what both ought to hold."""

    def __init__(self, lake: Lake, seed: int) -> None:
        self.lake, self.random = lake, random.Random(seed)
        self.name = f"t_{uuid.uuid4().hex[:12]}"
        self.layout = self.random.choice(LAYOUTS)
        self.properties = self.random.choice(PROPERTIES)
        self.renames: dict[str, str] = {}
        self.former: set[str] = set()
        self.versions: dict[int, tuple[dict[str, Kind], list[Row]]] = {}
        self.defaults: dict[str, Any] = {}
        self.columns: dict[str, Kind] = {}
        self.rows: list[Row] = []
        self.added: list[Row] = []
        self.copied: list[Row] = []
        self.copied_columns: dict[str, Kind] = {}
        self.is_rewritten = self.has_lost = False
        self.snapshots = 0
        self.settings: dict[str, str] = {}
        self.history: list[str] = []
        self._begin_a_copy()
        if self.random.random() < 0.25:
            self._made_by_another_engine()

    def _made_by_another_engine(self) -> None:
        """Begin with types that Spark does not have."""
        self.history.append("made by another engine")
        columns = (
            NestedField(1, "k", StringType()),
            NestedField(2, "id", IntegerType()),
            NestedField(3, "u", UUIDType()),
            NestedField(4, "f", FixedType(2)),
            NestedField(5, "n", StructType(NestedField(6, "l", ListType(7, UUIDType(), element_required=False)))),
        )
        self.lake.session.sql("create namespace if not exists lake.db")
        self.lake.spark.pyiceberg_catalog.create_table(("db", self.name), Schema(*columns))
        nested = Struct((("l", List(Leaf("UUID"))),))
        self.columns = {**FIXED, "u": Leaf("UUID"), "f": Leaf("FIXED(2)"), "n": nested}

    # ----------------------------------------------------------------------------------------------------- the steps

    def step(self) -> None:
        steps: list[Callable[[], None]] = [self.write] * 4 + [self.filter, self.filter, self.copy, self.compact]
        if self.properties.get("format-version") == "3" and hasattr(self.lake.session, "_jvm"):
            steps.append(self.add_a_default)
        self.random.choice(steps)() if self.snapshots else self.write()

    def write(self) -> None:
        if self.random.random() < 0.3:
            self._change_a_setting()
        disposition = self.random.choice(DISPOSITIONS)
        if disposition == "overwrite_partitions" and any("bucket" in field for field in self.layout):
            disposition = "replace"
        drops = bool(self.columns) and disposition not in MERGES and self.random.random() < 0.15
        renamed = self._rename_a_column() if self.columns and self.random.random() < 0.15 else None
        frame = self._draw_frame(leaves_out_inside=disposition not in MERGES)
        if renamed is not None and schemas.known_as(frame, renamed[0]) not in frame:
            frame.setdefault(*renamed)
        given = {schemas.known_as(self.columns, name) for name in frame}
        given -= {renamed[0]} if renamed else set()  # a condition names columns as the table does until then
        named = {name: kind for name, kind in self._stored(frame).items() if name in given}
        where = draw_where(self.random, named) if disposition == "replace_where" else None
        keys = list(KEYS) if self.random.random() < 0.4 else [self.random.choice(KEYS)]
        drawn = self._draw_rows(frame, keys, is_unique=disposition in MERGES)
        table, source = Struct(tuple(self._stored(frame).items())), Struct(tuple(frame.items()))
        pairs = [(row, schemas.fitted(row, source, table)) for row in drawn]
        pairs = [(row, new) for row, new in pairs if where is None or where.holds(new) is True]
        query = self._query(frame, [row for row, _ in pairs])
        self.history.append(f"{disposition} {where and where.sql} {keys} drops={drops} {self.settings}\n  {query}")
        result = self._materialize(query, keys, disposition, where, drops=drops)
        assert result.success, f"{error_of(result)}\n{self}"
        self.columns = schemas.evolved_fields(self.columns, frame, drops=drops)
        if drops:
            self.defaults = {name: value for name, value in self.defaults.items() if name in self.columns}
            self._rewrite(lambda row: schemas.pruned(row, Struct(tuple(self.columns.items()))))
            self._begin_a_copy()
        self._write_to_the_model(disposition, keys, [new for _, new in pairs], where)
        self._count_snapshots(1)
        if drops or renamed is not None:
            self.versions.popitem()  # what is dropped or renamed after the commit has its former name in the snapshot
        self.read()

    def compact(self) -> None:
        """Rows of several partitions come into one file where nothing keeps them apart."""
        self.history.append("compact")
        self.lake.session.sql(
            f"call lake.system.rewrite_data_files(`table` => 'db.{self.name}', `options` => map('rewrite-all', 'true'))"
        ).collect()
        self._count_snapshots(None)

    def add_a_default(self) -> None:
        """Another engine adds a column: the rows that are there have its default, and so have new rows without it."""
        free = [name for name in schemas.NAMES if name not in {*self.columns, *self.former}]
        if not free:
            return
        (kind, default), name = self.random.choice(DEFAULTS), self.random.choice(free)
        self.history.append(f"add {name} with the default {default!r}")
        add_column(self.lake, self.name, name, kind.sql.lower(), default)
        self.columns[name], self.defaults[name] = kind, default
        self._rewrite(lambda row: {**row, name: default})
        self.read()

    def _with_defaults(self, row: Row) -> Row:
        return {**self.defaults, **row}

    def _count_snapshots(self, more: int | None) -> None:
        found = self.lake.table(self.name).snapshots()
        assert more is None or len(found) == self.snapshots + more, self
        self.snapshots = len(found)
        head = self.lake.head(self.name) if found else None
        if head is not None:
            self.versions[head.snapshot_id] = (dict(self.columns), list(self.rows))

    def _rename_a_column(self) -> tuple[str, Kind] | None:
        free = [name for name in schemas.NAMES if name not in {*self.columns, *self.former}]
        known = [name for name in self.columns if name not in FIXED]
        if not free or not known:
            return None
        before, after = self.random.choice(known), self.random.choice(free)
        self.renames[schemas.quoted(before)] = schemas.quoted(after)
        self.former.add(before)
        self.history.append(f"rename {before} to {after}")
        if before in self.defaults:
            self.defaults[after] = self.defaults.pop(before)
        self.columns = {after if name == before else name: kind for name, kind in self.columns.items()}
        self._rewrite(lambda row: {after if name == before else name: value for name, value in row.items()})
        return after, self.columns[after]

    def _rewrite(self, change: Callable[[Row], Row]) -> None:
        """Change every row, without a change to what the copy has of it already."""
        changed = {id(row): change(row) for row in (*self.rows, *self.added)}
        self.rows, self.added = ([changed[id(row)] for row in rows] for rows in (self.rows, self.added))

    def _stored(self, frame: Mapping[str, Kind]) -> dict[str, Kind]:
        """The table's columns once the frame is written."""
        return schemas.evolved_fields(self.columns, frame)

    def read(self) -> None:
        python_type = self.random.choice((pa.Table, DataFrame))
        self._require(self._load(python_type), self.rows, self.columns, f"read as {python_type.__name__}")

    def filter(self) -> None:
        """Read the rows of a condition, as they are or as they were."""
        snapshot_id, columns, rows = None, self.columns, self.rows
        if self.versions and self.random.random() < 0.4:
            snapshot_id = self.random.choice(list(self.versions))
            columns, rows = self.versions[snapshot_id]
        condition = draw_condition(self.random, columns)
        metadata: dict[str, Any] = {"iceberg/row_filter": condition.sql} if condition else {}
        if snapshot_id is not None:
            metadata["iceberg/snapshot_id"] = snapshot_id
        self.history.append(f"read {metadata}")
        expected = [row for row in rows if condition is None or condition.holds(row) is True]
        for python_type in (pa.Table, DataFrame):
            found = self._load(python_type, metadata)
            self._require(found, expected, columns, f"filter as {python_type.__name__}")

    def copy(self) -> None:
        """Copy what is new; where rows were removed, that cannot be told."""
        if "UUID" in repr(self.columns):
            return  # the copy is Spark's, which has texts
        self.history.append(f"copy {self.settings}")
        result = self.lake.materialize(
            self._copying_asset(), self._asset(None), selection=[self.copy_name], raise_on_error=False
        )
        if not result.success:
            error = error_of(result)
            assert error.class_name == "ChangesUnknownError", f"{error}\n{self}"
            assert self.is_rewritten, f"{error}\n{self}"
            self._begin_a_copy()
            return
        assert not self.has_lost, f"the copy has rows that the table has not\n{self}"
        self.copied += self.added
        self.added, self.is_rewritten = [], False
        self.copied_columns = schemas.evolved_fields(self.copied_columns, self.columns)
        found = arrow_of(self.lake.session.table(f"lake.db.{self.copy_name}")).to_pylist()
        self._require(found, self.copied, self.copied_columns, "copy")

    # ----------------------------------------------------------------------------------------------------- the model

    def _write_to_the_model(self, disposition: str, keys: list[str], rows: list[Row], where: Condition | None) -> None:
        held = list(self.rows)
        owned = [row for row in self.rows if row["k"] in keys]
        ids = {(row["id"]) for row in rows}
        if disposition == "replace" or (disposition == "overwrite_partitions" and not self.layout and rows):
            self._remove(owned)
        elif disposition == "overwrite_partitions":
            self._remove([row for row in owned if row["k"] in {new["k"] for new in rows}])
        elif where is not None:
            self._remove([row for row in owned if where.holds(row) is True])
        elif disposition == "delete_insert":
            self._remove([row for row in owned if row["id"] in ids])
        elif disposition == "insert_only":
            known = {row["id"] for row in owned}
            rows = [row for row in rows if row["id"] not in known]
        elif disposition == "upsert":
            new = {row["id"]: row for row in rows}
            updated = [schemas.merged(new[row["id"]], row) for row in owned if row["id"] in new]
            self._remove([row for row in owned if row["id"] in new])
            known = {row["id"] for row in updated}
            rows = [*updated, *(row for row in rows if row["id"] not in known)]
        rows = list(map(self._with_defaults, rows))
        self.rows += rows
        self.added += rows
        self.is_rewritten |= disposition != "append"
        lost = len(held) - sum(any(row is other for other in self.rows) for row in held)
        self.has_lost |= bool(self.copied_columns) and lost > 0
        if not self.copied_columns:  # the first copy reads everything
            self.added = list(self.rows)

    def _remove(self, rows: list[Row]) -> None:
        self.rows = [row for row in self.rows if not any(row is other for other in rows)]

    def _begin_a_copy(self) -> None:
        self.copy_name = f"copy_{uuid.uuid4().hex[:12]}"
        self.copied, self.copied_columns = [], {}
        self.added = list(self.rows)
        self.is_rewritten = self.has_lost = False

    def _require(self, found: list[Row], expected: list[Row], columns: Mapping[str, Kind], what: str) -> None:
        table = Struct(tuple(columns.items()))
        assert {name for row in found for name in row} <= set(columns), f"{what}: columns {list(found[0])}\n{self}"
        held, wanted = (Counter(repr(schemas.canonical(row, table)) for row in rows) for rows in (found, expected))
        assert held == wanted, f"{what}: {list(held - wanted)} instead of {list(wanted - held)}\n{self}"

    # ------------------------------------------------------------------------------------------------- what is drawn

    def _change_a_setting(self) -> None:
        name = self.random.choice(list(SETTINGS))
        self.settings[name] = self.random.choice(SETTINGS[name])
        set_quietly(self.lake, name, self.settings[name])

    def _draw_frame(self, *, leaves_out_inside: bool) -> dict[str, Kind]:
        is_sensitive = self.settings.get("spark.sql.caseSensitive") == "true"
        latitude = Latitude(leaves_out_inside=leaves_out_inside, swaps_case=not is_sensitive)
        columns: dict[str, Kind] = dict(FIXED)
        for name, kind in self.columns.items():
            if name not in FIXED and self.random.random() < 0.85:
                named = schemas.draw_case(self.random, name, latitude)
                columns[named] = schemas.draw_variant(self.random, kind, latitude)
        free = [name for name in schemas.NAMES if name not in {*self.columns, *self.former}]
        wanted = (3 if not self.columns else int(self.random.random() < 0.2)) if len(self.columns) < 8 else 0
        for name in self.random.sample(free, min(len(free), wanted)):
            columns[name] = schemas.draw_kind(self.random)
        return {name: columns[name] for name in self.random.sample(list(columns), len(columns))}

    def _draw_rows(self, frame: Mapping[str, Kind], keys: list[str], *, is_unique: bool) -> list[Row]:
        numbers = self.random.sample(range(6), self.random.randint(0, 4))
        if not is_unique and numbers:
            numbers.append(numbers[0])
        return [
            {
                name: number
                if name == "id"
                else self.random.choice(keys)
                if name == "k"
                else schemas.draw_value(self.random, kind)
                for name, kind in frame.items()
            }
            for number in numbers
        ]

    # ------------------------------------------------------------------------------------------------------ the runs

    def _query(self, frame: Mapping[str, Kind], rows: list[Row]) -> str:
        selects = [
            "SELECT "
            + ", ".join(f"{schemas.sql_of(row[name], kind)} AS {schemas.quoted(name)}" for name, kind in frame.items())
            for row in rows
        ]
        nothing = ", ".join(f"{schemas.sql_of(None, kind)} AS {schemas.quoted(name)}" for name, kind in frame.items())
        return " UNION ALL ".join(selects) or f"SELECT {nothing} WHERE FALSE"

    def _materialize(
        self, query: str, keys: list[str], disposition: str, where: Condition | None, *, drops: bool
    ) -> dg.ExecuteInProcessResult:
        metadata: dict[str, Any] = {"iceberg/write_disposition": disposition}
        if disposition in MERGES:
            metadata = {"iceberg/merge": {"strategy": disposition}, "iceberg/merge_keys": ["id"]}
        elif where is not None:
            metadata = {"iceberg/merge": {"strategy": disposition, "where": where.sql}}
        metadata.setdefault("iceberg/write_disposition", "merge")
        metadata["iceberg/schema_evolution"] = "full" if drops else "add_columns"
        asset = self._asset(query, as_arrow=self.random.random() < 0.2, **metadata)
        if len(keys) > 1:
            return self.lake.materialize_range(asset, first=keys[0], last=keys[-1], raise_on_error=False)
        return self.lake.materialize(asset, partition_key=keys[0], raise_on_error=False)

    def _asset(self, query: str | None, *, as_arrow: bool = False, **metadata: Any) -> dg.AssetsDefinition:
        def _rows(spark: IcebergSparkResource) -> Any:
            frame = spark.spark_session.sql(query or "")
            return arrow_of(frame) if as_arrow else frame

        asset: dg.AssetsDefinition = dg.asset(
            name=self.name,
            io_manager_key="iceberg",
            partitions_def=dg.StaticPartitionsDefinition(list(KEYS)),
            backfill_policy=dg.BackfillPolicy.single_run(),
            metadata={
                "partition_expr": "k",
                "iceberg/partition_by": self.layout,
                "iceberg/renames": self.renames,
                "iceberg/table_properties": self.properties,
                **metadata,
            },
        )(_rows)
        return asset

    def _copying_asset(self) -> dg.AssetsDefinition:
        def _new(new: Any) -> Any:
            return new

        _new.__annotations__["new"] = self.random.choice((pa.Table, DataFrame))
        asset: dg.AssetsDefinition = dg.asset(
            name=self.copy_name,
            io_manager_key="iceberg",
            ins={"new": dg.AssetIn(self.name, metadata={"iceberg/read": "changes"})},
            metadata={"iceberg/write_disposition": "append"},
        )(_new)
        return asset

    def _load(self, python_type: type, metadata: Mapping[str, Any] | None = None) -> list[Row]:
        loader = dg.Definitions([self._asset(None)], resources=self.lake.resources).get_asset_value_loader(
            self.lake.instance
        )
        loaded: Any = loader.load_asset_value(
            self.name,
            python_type=python_type,
            input_definition_metadata={"iceberg/missing": "empty", **(metadata or {})},
        )
        found: list[Row] = (loaded if isinstance(loaded, pa.Table) else arrow_of(loaded)).to_pylist()
        return found

    def __str__(self) -> str:
        return "\n".join([f"layout {self.layout}, {self.settings}", *self.history])


# ----------------------------------------------------------------------------------------------------- the histories


@contextmanager
def settings_restored(lake: Lake) -> Iterator[None]:
    """Nothing of a history's session settings reaches another test."""
    held = {name: lake.session.conf.get(name) for name in SETTINGS}
    try:
        yield
    finally:
        for name, value in held.items():
            set_quietly(lake, name, str(value))


def set_quietly(lake: Lake, name: str, value: str) -> None:
    """Set it without Spark's warning that it is an old one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        lake.session.conf.set(name, value)


def run_history(lake: Lake, seed: int, steps: int) -> None:
    with settings_restored(lake):
        world = World(lake, seed)
        try:
            for _ in range(steps):
                world.step()
        except (AssertionError, StepError) as error:
            pytest.fail(f"seed {seed}: {error}", pytrace=False)


@pytest.mark.full
def test_tables_hold_what_their_histories_say(lake: Lake) -> None:
    run_history(lake, seed=18, steps=12)


@pytest.mark.slow
@pytest.mark.timeout(6 * 3600)
def test_tables_hold_what_long_histories_say(lake: Lake) -> None:
    steps = int(os.environ.get("MODEL_STEPS", "30"))
    first = int(os.environ.get("MODEL_SEED", random.SystemRandom().randrange(10**6)))
    number = 1 if "MODEL_SEED" in os.environ else int(os.environ.get("MODEL_SEEDS", "5"))
    for seed in range(first, first + number):
        run_history(lake, seed, steps)
