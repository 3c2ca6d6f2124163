"""Random histories of a table, against a plain model of it: after every step the same rows, columns and snapshots.

The short profile is the same in every run; `make test-long` draws new histories each time. Set `MODEL_EXAMPLES` and
`MODEL_STEPS` to draw more.
"""

import datetime as dt
import os
import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from dagster_iceberg_spark import IcebergSparkResource
from tests.core.behaviour import model
from tests.core.behaviour.model import Kind, Model, Row
from tests.features.maintenance.maintaining import maintain
from tests.lakes import Lake, arrow_of, error_of, metadata_of

Layouts = tuple[list[str] | None, ...]
INSTANT_LAYOUTS: Layouts = (
    None,
    [],
    ["month(p)"],
    ["day(p)"],
    ["hour(p)"],
    ["bucket(2, id)"],
    ["day(p)", "bucket(2, id)"],
    ["v"],
)
WALL_LAYOUTS: Layouts = (None, [], ["year(p)"], ["day(p)"], ["hour(p)"], ["truncate(1, v)"])
DATE_LAYOUTS: Layouts = (None, [], ["month(p)"], ["day(p)"], ["p"])
NAME_LAYOUTS: Layouts = (None, [], ["truncate(1, k)"], ["bucket(2, k)"], ["k", "v"])
CELL_LAYOUTS: Layouts = (None, [], ["k"], ["day(p)"], ["k", "month(p)"], ["bucket(2, id)"])
ODD_NAMES = ["null", "__HIVE_DEFAULT_PARTITION__", "it's", 'a "b" \\c', "50%/ü", "x.y z", "NULL"]

NUMBER_LAYOUTS: Layouts = (None, [], ["k"], ["bucket(2, k)"], ["truncate(10, k)", "v"])

NEW_YORK = "America/New_York"
SPRING = dg.DailyPartitionsDefinition("2024-03-08", end_date="2024-03-13", timezone=NEW_YORK)
AUTUMN = dg.DailyPartitionsDefinition("2024-11-01", end_date="2024-11-06", timezone=NEW_YORK)
LORD_HOWE = dg.DailyPartitionsDefinition("2024-04-05", end_date="2024-04-09", timezone="Australia/Lord_Howe")
HAVANA = dg.DailyPartitionsDefinition("2024-03-08", end_date="2024-03-12", timezone="America/Havana")
KATHMANDU = dg.WeeklyPartitionsDefinition("1969-12-17", end_date="1970-01-15", timezone="Asia/Kathmandu", day_offset=3)
HOURS = dg.HourlyPartitionsDefinition("2024-03-10-00:00", end_date="2024-03-10-06:00", timezone=NEW_YORK)
REPEATED_HOURS = dg.HourlyPartitionsDefinition("2024-11-03-00:00", end_date="2024-11-03-05:00", timezone=NEW_YORK)


def windows(cron: str, start: str, end: str | None, zone: str, **kwargs: Any) -> dg.TimeWindowPartitionsDefinition:
    return dg.TimeWindowPartitionsDefinition(
        start=start, end=end, fmt="%Y-%m-%d-%H:%M", cron_schedule=cron, timezone=zone, **kwargs
    )


QUARTERS = windows("0 0 1 */3 *", "2023-01-01-00:00", "2024-07-01-00:00", "Europe/Berlin")
QUARTER_HOURS = windows("*/15 * * * *", "2024-04-07-01:00", "2024-04-07-03:00", "Australia/Lord_Howe")
WEEKDAYS = windows("0 0 * * 1-5", "2024-03-06-00:00", "2024-03-14-00:00", NEW_YORK)
CENTURIES_AGO = windows("0 0 * * *", "1600-02-27-00:00", "1600-03-03-00:00", "Europe/Amsterdam")
CENTURIES_AHEAD = windows("0 0 1 1 *", "2020-01-01-00:00", None, "UTC", end_offset=300)

NAMES = model.names("odd names", ODD_NAMES, NAME_LAYOUTS)
KINDS = (
    model.instants("days in spring", SPRING, INSTANT_LAYOUTS),
    model.instants("days in autumn", AUTUMN, INSTANT_LAYOUTS),
    model.instants("days of half an hour's change", LORD_HOWE, INSTANT_LAYOUTS),
    model.instants("a day without its midnight", HAVANA, INSTANT_LAYOUTS),
    model.instants("weeks around 1970", KATHMANDU, INSTANT_LAYOUTS),
    model.instants("hours", HOURS, INSTANT_LAYOUTS),
    model.instants("repeated hours", REPEATED_HOURS, INSTANT_LAYOUTS),
    model.instants("quarters of an hour", QUARTER_HOURS, INSTANT_LAYOUTS),
    model.instants("weekdays", WEEKDAYS, INSTANT_LAYOUTS),
    model.instants("quarters", QUARTERS, INSTANT_LAYOUTS),
    model.instants("centuries ago", CENTURIES_AGO, INSTANT_LAYOUTS),
    model.instants("centuries ahead", CENTURIES_AHEAD, INSTANT_LAYOUTS),
    model.wall_clocks("days by the wall clock", AUTUMN, WALL_LAYOUTS),
    model.wall_clocks("years by the wall clock", CENTURIES_AHEAD, WALL_LAYOUTS),
    model.dates("weeks of dates", KATHMANDU, DATE_LAYOUTS),
    model.dates("dates of centuries ago", CENTURIES_AGO, DATE_LAYOUTS),
    NAMES,
    model.keyed("numbers", pa.int32(), {str(key): key for key in (1, 10, 2, -3, 2**31 - 1)}, [0, 11], NUMBER_LAYOUTS),
    model.keyed(
        "long numbers",
        pa.decimal128(20, 0),
        {str(key): Decimal(key) for key in (10**19, 0, -(10**19))},
        [Decimal(1)],
        (None, [], ["bucket(2, k)"], ["v"]),  # pyiceberg reads no manifest of two partition fields of one decimal type
    ),
    model.keyed(
        "dates",
        pa.date32(),
        {str(key): key for key in (dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(9999, 12, 31))},
        [dt.date(1970, 1, 1)],
        (None, [], ["k"], ["bucket(2, k)"], ["year(k)"]),
    ),
    model.keyed("truths", pa.bool_(), {"true": True, "false": False}, [], (None, [], ["k"], ["bucket(2, id)"])),
    model.cells(
        "names by day",
        model.names("names", ["a", "it's", ""], NAME_LAYOUTS),
        model.instants("days", SPRING, INSTANT_LAYOUTS),
        CELL_LAYOUTS,
    ),
    model.whole("whole table"),
)
SPARK_TYPES = {
    "int64": "bigint",
    "int32": "int",
    "bool": "boolean",
    "decimal128(20, 0)": "decimal(20, 0)",
    "string": "string",
    "date32[day]": "date",
    "timestamp[us]": "timestamp_ntz",
    "timestamp[us, tz=UTC]": "timestamp",
}
ZONES = ("Asia/Tokyo", "America/Los_Angeles", "UTC")
TEXTS = ("a", "b", "", None)
EVOLUTIONS = st.sampled_from(["add_columns", "add_columns", "full"])


class TableMachine(RuleBasedStateMachine):
    """One table, written by its asset and by others.

    The model has the columns under the names that they began with.
    """

    steps = 0
    materializations = 0

    def __init__(self, lake: Lake) -> None:
        super().__init__()
        self.lake = lake
        self.name = f"t_{uuid.uuid4().hex[:12]}"
        self.snapshots = 0
        self.main_has_snapshots = False
        self.exists = False
        self.branch = model.MAIN
        self.order: list[str] = []
        self.has_cached = self.is_shared = False
        self.has_cached = self.is_owned = self.is_shared = False
        self.asset_names: dict[str, str] = {}
        self.table_names: dict[str, str] = {}
        self.former_names: dict[str, str] = {}

    # ------------------------------------------------------------------------------------------------ what there is

    @initialize(
        kind=st.sampled_from(KINDS),
        version=st.sampled_from([1, 2, 2, 3]),
        merges_on_read=st.booleans(),
        is_made_by_others=st.booleans(),
        data=st.data(),
    )
    def start(
        self, *, kind: Kind, version: int, merges_on_read: bool, is_made_by_others: bool, data: st.DataObject
    ) -> None:
        note(f"{kind.name}, format {version}")
        self.kind = kind
        self.layout = data.draw(st.sampled_from(kind.layouts))
        self.frame_types: dict[str, pa.DataType] = {
            "id": pa.int64(), **kind.types, "v": pa.string(), "n": pa.int32()
        }  # fmt: skip
        self.model = Model(kind, dict(self.frame_types))
        properties = {"format-version": str(version)}
        if merges_on_read and version > 1:
            properties |= {f"write.{verb}.mode": "merge-on-read" for verb in ("delete", "update", "merge")}
        self.properties = properties
        if is_made_by_others:
            self._made_by_others(data.draw(st.sampled_from([item for item in kind.layouts if item is not None])))

    def _made_by_others(self, layout: list[str]) -> None:
        columns = spark_columns(self.model.columns)
        spec = f"partitioned by ({', '.join(layout)})" if layout else ""
        given = ", ".join(f"'{key}' = '{value}'" for key, value in self.properties.items())
        self.lake.session.sql(f"create namespace if not exists {self.catalog}.db")
        self.lake.session.sql(f"create table {self.table} ({columns}) using iceberg {spec} tblproperties ({given})")
        self.exists = True

    @property
    def catalog(self) -> str:
        return self.lake.spark.catalog_description.name

    @property
    def table(self) -> str:
        return f"{self.catalog}.db.{self.name}"

    def in_asset(self, name: str) -> str:
        """What the asset calls the column now."""
        return self.asset_names.get(name, name)

    def in_table(self, name: str) -> str:
        """What the table calls the column now."""
        return self.table_names.get(name, name)

    def of_table(self, name: str) -> str:
        """What the model calls the table's column."""
        return next((known for known, current in self.table_names.items() if current == name), name)

    def _renamed_columns(self) -> set[str]:
        """The columns that the asset has another name for than the table."""
        return {name for name in self.model.columns if self.in_asset(name) != self.in_table(name)}

    def _takes_from_main(self, dropped: Sequence[str]) -> bool:
        """Say whether a write to another branch would drop or rename a column."""
        return self.branch != model.MAIN and self.exists and (bool(self._renamed_columns()) or bool(dropped))

    def _start_a_branch(self) -> None:
        """Count the empty snapshot of Iceberg's that a branch begins with where main has none."""
        if self.branch != model.MAIN and self.branch not in self.model.branches:
            self.snapshots += not self.main_has_snapshots
            self.model.write_to(self.branch)

    @invariant()
    def is_a_step(self) -> None:
        TableMachine.steps += 1

    def teardown(self) -> None:
        self.lake.session.catalog.clearCache()

    # ------------------------------------------------------------------------------------------------- its own asset

    @rule(data=st.data(), evolution=EVOLUTIONS)
    def replace(self, data: st.DataObject, evolution: str) -> None:
        self._materialize(data, "replace", evolution)

    @rule(data=st.data(), evolution=EVOLUTIONS)
    def append(self, data: st.DataObject, evolution: str) -> None:
        self._materialize(data, "append", evolution)

    @rule(data=st.data(), evolution=EVOLUTIONS)
    def merge(self, data: st.DataObject, evolution: str) -> None:
        self._materialize(data, "merge", evolution)

    def _materialize(self, data: st.DataObject, disposition: str, evolution: str) -> None:
        self._change_the_definition(data)
        keys, run = self._draw_run(data)
        owned = [values for key in keys for values in self.kind.values[key]]
        rows = self._draw_rows(data, owned, is_unique=disposition == "merge")
        columns = list(self.frame_types)
        if self.exists:
            optional = [name for name in columns if name not in ("id", *self.kind.types)]
            left_out = data.draw(st.sets(st.sampled_from(optional), max_size=2))
            columns = data.draw(st.permutations([name for name in columns if name not in left_out]))
        rows = [{name: row[name] for name in columns} for row in rows]
        dropped = [name for name in self.model.columns if name not in columns] if evolution == "full" else []
        refusals = {"SchemaMismatchError"} if any(name in self._layout_columns() for name in dropped) else set()
        if self.exists and self._renamed_columns() - set(columns):
            refusals.add("SchemaMismatchError")
        if self._takes_from_main(dropped):
            refusals.add("ConfigurationError")
        if self.is_shared and (self._renamed_columns() or dropped):
            refusals.add("TableOwnershipError")
        if self._words_of_layout() & set(self.frame_types) - {*columns, *self.model.columns}:
            refusals.add("PartitioningError")
        result = self._run(rows, columns, run, disposition, evolution=evolution)
        if refusals:
            assert not result.success
            assert error_of(result).class_name in refusals, error_of(result)
            self._check_table()
            return
        assert result.success, error_of(result)
        self._committed(columns)
        for name in dropped:
            self.model.drop_column(name)
        before = len(self.model.branches.get(self.branch, []))
        if disposition == "merge":
            self.model.merge(keys, rows)
        else:
            (self.model.replace if disposition == "replace" else lambda _, new: self.model.append(new))(keys, rows)
        self.exists = True
        self._check_commit(result, disposition)
        self._check_numbers(result, disposition, keys, rows, before)
        self._check_table()

    @precondition(lambda self: self.kind.definition is not None)
    @rule(data=st.data(), disposition=st.sampled_from(["replace", "append", "merge"]), drops=st.booleans())
    def materialize_rows_of_others(self, data: st.DataObject, disposition: str, *, drops: bool) -> None:
        self._change_the_definition(data)
        keys, run = self._draw_run(data)
        others = [values for key, each in self.kind.values.items() if key not in keys for values in each]
        owned = [values for key in keys for values in self.kind.values[key]]
        mixed = self._draw_rows(data, owned, is_unique=True)
        stray = {**mixed[0], "id": 99} if mixed else {"id": 99, "v": "a", "n": 1}
        stray |= data.draw(st.sampled_from([*self.kind.foreign, *others]))
        for name in self.frame_types:
            stray.setdefault(name, None)
        columns = list(self.frame_types)
        files = self._files()
        result = self._run([*mixed, stray], columns, run, disposition, outside="drop" if drops else "error")
        if self._takes_from_main([]) or (self.is_shared and self._renamed_columns()):
            assert not result.success
            assert error_of(result).class_name in ("ConfigurationError", "TableOwnershipError"), error_of(result)
            self._check_table()
            return
        if not drops:
            assert not result.success
            error = error_of(result)
            assert error.class_name == "RowsOutsidePartitionError", error
            if not self.exists:
                self.exists, self.table_names = bool(self.lake.exists(self.name)), dict(self.asset_names)
            assert self._files() == files
            self._widened(columns, has_table=self.exists)
            if self.exists:
                self._start_a_branch()
            self._check_table()
            return
        assert result.success, error_of(result)
        assert metadata_of(result, self.name, keys[0] if len(keys) == 1 else None)["iceberg/dropped_rows"] == 1
        self._committed(columns)
        if disposition == "merge":
            self.model.merge(keys, mixed)
        elif disposition == "append":
            self.model.append(mixed)
        else:
            self.model.replace(keys, mixed)
        self.exists = True
        self._check_commit(result, disposition)
        self._check_table()

    @precondition(lambda self: self.asset_names == self.table_names)
    @precondition(lambda self: self.main_has_snapshots and self.branch in self.model.branches)
    @rule(data=st.data(), python_type=st.sampled_from([pa.Table, DataFrame]))
    def load(self, data: st.DataObject, python_type: type) -> None:
        key = data.draw(st.sampled_from(self.kind.keys))
        loader = dg.Definitions([self._asset(None)], resources=self.lake.resources).get_asset_value_loader(
            self.lake.instance
        )
        loaded: Any = loader.load_asset_value(
            self.name,
            python_type=python_type,
            partition_key=key if self.kind.definition is not None else None,
            input_definition_metadata={"iceberg/ref": self.branch, "iceberg/missing": "empty"},
        )
        read = loaded if isinstance(loaded, pa.Table) else arrow_of(loaded)
        owned = [row for row in self.model.branches[self.branch] if self.model.is_owned(row, [key])]
        columns = list(self.model.columns)
        assert model.sort_rows(self._canonical(read), columns) == model.sort_rows(owned, columns)

    def _change_the_definition(self, data: st.DataObject) -> None:
        """Change what the asset asks for, and the session that it runs in."""
        changes = {
            "layout": self._change_the_layout,
            "column": self._get_another_column,
            "type": self._get_wider_numbers,
            "name": self._rename_a_column,
            "branch": self._write_to_another_branch,
            "order": self._sort_by_other_columns,
            "session": self._change_the_session,
            "past": self._give_the_session_a_past,
        }
        for change in data.draw(st.lists(st.sampled_from(list(changes)), max_size=2, unique=True)):
            changes[change](data)

    def _change_the_layout(self, data: st.DataObject) -> None:
        self.layout = data.draw(st.sampled_from(self.kind.layouts))

    def _get_another_column(self, data: st.DataObject) -> None:
        self.frame_types[f"extra {data.draw(st.integers(0, 1))}"] = pa.string()

    def _get_wider_numbers(self, _: st.DataObject) -> None:
        self.frame_types["n"] = pa.int64()

    def _rename_a_column(self, data: st.DataObject) -> None:
        if "audit" in self.model.branches:
            return  # where a branch is older than a rename, some writes to it are refused: another test's matter
        name, number = data.draw(st.sampled_from(list(self.frame_types))), data.draw(st.integers(1, 3))
        former, current = self.in_asset(name), f"{name}_{number}"
        self.former_names = {old: new for old, new in self.former_names.items() if old != current}
        self.former_names |= {old: current for old, new in self.former_names.items() if new == former}
        if former != current:
            self.former_names[former] = current
            self.asset_names[name] = current

    def _write_to_another_branch(self, _: st.DataObject) -> None:
        self.branch = "audit" if self.branch == model.MAIN else model.MAIN

    def _sort_by_other_columns(self, data: st.DataObject) -> None:
        """Spark then evaluates the rows twice, first to find the ranges in which it distributes them."""
        self.order = data.draw(st.sampled_from([[], ["id"], ["id desc nulls last"]]))

    def _give_the_session_a_past(self, data: st.DataObject) -> None:
        """Cache the table or its branch, define a view of its name, or forget all that is cached."""
        session, past = self.lake.session, data.draw(st.sampled_from(["table", "branch", "view", "none"]))
        if past == "none":
            session.catalog.clearCache()
            self.has_cached = False
        elif past == "view":
            session.sql(f"create or replace temporary view {self.name} as select {data.draw(st.integers(0, 9))} as id")
        elif self.exists:
            self.has_cached = True
            branch = self.branch if past == "branch" and self.branch in self.model.branches else model.MAIN
            name = self.table if branch == model.MAIN else f"{self.table}.branch_{branch}"
            session.table(name).cache().count()

    def _change_the_session(self, data: st.DataObject) -> None:
        conf = self.lake.session.conf
        conf.set("spark.sql.session.timeZone", data.draw(st.sampled_from(ZONES)))
        conf.set("spark.sql.ansi.enabled", str(data.draw(st.booleans())).lower())

    # -------------------------------------------------------------------------------------------------------- others

    @precondition(lambda self: self.exists)
    @rule(data=st.data())
    def others_append(self, data: st.DataObject) -> None:
        rows = self._draw_rows_anywhere(data)
        self._frame(rows, self.model.columns, self.in_table).writeTo(self.table).append()
        self.model.write_to(model.MAIN)
        self.model.append(rows)
        self._others_were_here()

    @precondition(lambda self: self.is_owned)
    @rule(data=st.data())
    def another_asset_appends(self, data: st.DataObject) -> None:
        """From then on, no column is dropped or renamed."""
        rows = self._draw_rows_anywhere(data)
        frame = self._frame(rows, self.model.columns, self.in_table)
        shared = {"iceberg/table": f"db.{self.name}", "iceberg/write_disposition": "append"}

        @dg.asset(name=f"other_{self.name}", io_manager_key="iceberg", metadata=shared)
        def other() -> Any:
            return frame

        result = self.lake.materialize(other, raise_on_error=False)
        assert result.success, error_of(result)
        self.is_shared = True
        self._widened(list(self.model.columns), has_table=True)
        self.model.write_to(model.MAIN)
        self.model.append(rows)
        self._others_were_here()

    @precondition(lambda self: self.main_has_snapshots and int(self.properties["format-version"]) < 3)
    @rule(data=st.data())
    def others_append_without_spark(self, data: st.DataObject) -> None:
        """What the session has cached is out of date then."""
        table = self.lake.table(self.name)
        if any(str(field.transform).startswith(("bucket", "truncate", "void")) for field in table.spec().fields):
            return
        rows = self._draw_rows_anywhere(data)
        schema = pa.schema(list(self.model.columns.items()))
        added = pa.Table.from_pylist(rows, schema=schema).rename_columns(list(map(self.in_table, self.model.columns)))
        table.append(added.select(table.schema().column_names))
        self.model.write_to(model.MAIN)
        self.model.append(rows)
        self.snapshots = len(self.lake.table(self.name).snapshots())

    @precondition(lambda self: self.main_has_snapshots)
    @rule(number=st.integers(0, 9))
    def others_delete(self, number: int) -> None:
        self.lake.session.sql(f"delete from {self.table} where `{self.in_table('id')}` = {number}")
        self.model.write_to(model.MAIN)
        self.model.delete(lambda row: row["id"] == number)
        self._others_were_here()

    @precondition(lambda self: self.main_has_snapshots)
    @rule(column=st.sampled_from(["id", "v"]))
    def others_compact(self, column: str) -> None:
        if column not in self.model.columns:
            return
        order = f"{self.in_table(column)} desc nulls last"
        self.lake.session.sql(
            f"call {self.catalog}.system.rewrite_data_files(table => 'db.{self.name}', strategy => 'sort', "
            f"sort_order => '{order}', options => map('rewrite-all', 'true'))"
        ).collect()
        self._others_were_here()

    @precondition(lambda self: self.main_has_snapshots)
    @rule()
    def maintain(self) -> None:
        maintain(self.lake, self._asset(None))
        self._others_were_here()

    @precondition(lambda self: self.exists)
    @rule(data=st.data())
    def others_change_the_spec(self, data: st.DataObject) -> None:
        name = f"f_{uuid.uuid4().hex[:6]}"
        column, field = data.draw(st.sampled_from([("id", "bucket(3, {})"), ("v", "truncate(2, {})")]))
        if column not in self.model.columns:
            return
        field = field.format(self.in_table(column))
        held = {str(item.transform) for item in self.lake.table(self.name).spec().fields}
        if not any(item.startswith(("bucket", "truncate")) for item in held):
            self.lake.session.sql(f"alter table {self.table} add partition field {field} as {name}")

    # ------------------------------------------------------------------------------------------------------- the run

    def _draw_run(self, data: st.DataObject) -> tuple[list[str], dict[str, Any]]:
        if self.kind.definition is None:
            return [""], {}
        at = st.integers(0, len(self.kind.keys) - 1)
        first, last = sorted((data.draw(at), data.draw(st.one_of(st.just(0), at))))
        keys = self.kind.key_range(first, last)
        if len(keys) == 0:
            first = last
            keys = [self.kind.keys[first]]
        if keys == [self.kind.keys[first]]:
            return keys, {"partition_key": self.kind.keys[first]}
        tags = {
            "dagster/asset_partition_range_start": self.kind.keys[first],
            "dagster/asset_partition_range_end": self.kind.keys[last],
        }
        return keys, {"tags": tags}

    def _draw_rows_anywhere(self, data: st.DataObject) -> list[Row]:
        """Rows of any partition or of none, with all columns of the table."""
        anywhere = [*self.kind.foreign, *(values for each in self.kind.values.values() for values in each)]
        return self.model.complete(self._draw_rows(data, anywhere, is_unique=False))

    def _draw_rows(self, data: st.DataObject, values: Sequence[Row], *, is_unique: bool) -> list[Row]:
        row = st.fixed_dictionaries(
            {
                "id": st.integers(0, 9),
                "at": st.sampled_from(values),
                "v": st.sampled_from(TEXTS),
                "n": st.integers(-3, 3),
                **{name: st.sampled_from(TEXTS) for name in self.frame_types if name.startswith("extra")},
            }
        )
        drawn: list[Row] = data.draw(
            st.lists(row, max_size=6, unique_by=(lambda item: item["id"]) if is_unique else None)
        )
        return [{**item.pop("at"), **item} for item in drawn]

    def _frame(self, rows: Iterable[Row], columns: Iterable[str], named: Callable[[str], str]) -> Any:
        types = {**self.model.columns, **self.frame_types}
        schema = pa.schema([(name, types[name]) for name in columns])
        session = self.lake.session  # before the DDL is read, which needs one
        spark_schema: Any = StructType.fromDDL(spark_columns({named(name): types[name] for name in columns}))
        table = pa.Table.from_pylist(list(rows), schema=schema)
        return session.createDataFrame(table.rename_columns(list(map(named, columns))), spark_schema)

    def _renamed(self, expression: Any) -> Any:
        """An option with the asset's own names for the model's."""
        if isinstance(expression, dict):
            return {key: self._renamed(value) for key, value in expression.items()}
        if isinstance(expression, list):
            return [self._renamed(item) for item in expression]
        return re.sub(r"\w+", lambda word: self.in_asset(word[0]), expression) if expression else expression

    def _run(
        self,
        rows: Sequence[Row],
        columns: Sequence[str],
        run: dict[str, Any],
        disposition: str,
        *,
        outside: str = "error",
        evolution: str = "add_columns",
    ) -> dg.ExecuteInProcessResult:
        metadata = {
            "iceberg/write_disposition": disposition,
            "iceberg/merge_keys": [self.in_asset("id")],
            "iceberg/rows_outside_partition": outside,
            "iceberg/schema_evolution": evolution,
            "iceberg/engine": "spark" if len(rows) % 3 == 2 else "auto",  # as drawn: both engines write in turn
        }
        TableMachine.materializations += 1
        asset = self._asset(self._frame(rows, columns, self.in_asset), **metadata)
        return self.lake.materialize(asset, raise_on_error=False, **run)

    def _asset(self, frame: Any, **more: Any) -> dg.AssetsDefinition:
        metadata: dict[str, Any] = {
            "partition_expr": self._renamed(self.kind.expr),
            "iceberg/partition_by": self._renamed(self.layout),
            "iceberg/table_properties": {} if self.exists else self.properties,
            "iceberg/renames": self.former_names,
            "iceberg/branch": self.branch,
            "iceberg/sort_by": self._renamed(self.order),
            "iceberg/table": f"db.{self.name}",
            **more,
        }

        def asset(spark: IcebergSparkResource) -> Any:
            return frame

        definition: dg.AssetsDefinition = dg.asset(
            name=self.name,
            io_manager_key="iceberg",
            partitions_def=self.kind.definition,
            backfill_policy=dg.BackfillPolicy.single_run() if self.kind.definition else None,
            metadata={key: value for key, value in metadata.items() if value is not None},
        )(asset)
        return definition

    # ------------------------------------------------------------------------------------------------------ the check

    def _committed(self, columns: Iterable[str]) -> None:
        """What every commit of the asset does, besides its rows."""
        self._widened(columns, has_table=True)
        self.table_names = dict(self.asset_names)
        self._start_a_branch()
        self.model.write_to(self.branch)
        self.main_has_snapshots |= self.branch == model.MAIN
        self.is_owned = True

    def _widened(self, columns: Iterable[str], *, has_table: bool) -> None:
        """Give the model the columns that the frame has brought along."""
        for name in columns if has_table else ():
            if name not in self.model.columns:
                self.table_names[name] = self.in_asset(name)
            self.model.add_column(name, self.model.columns.get(name, self.frame_types[name]))
            if self.frame_types[name] == pa.int64():
                self.model.columns[name] = pa.int64()

    def _layout_columns(self) -> set[str]:
        """The columns that the table was ever partitioned by."""
        if not self.exists:
            return set()
        table = self.lake.table(self.name)
        fields = [field for spec in table.specs().values() for field in spec.fields if str(field.transform) != "void"]
        held = {self.of_table(str(table.schema().find_column_name(field.source_id))) for field in fields}
        return held | self._words_of_layout()

    def _words_of_layout(self) -> set[str]:
        return {word for item in self.layout or [] for word in re.findall(r"\w+", item)}

    def _files(self) -> list[str]:
        if not self.lake.exists(self.name):
            return []
        return sorted(task.file.file_path for task in self.lake.table(self.name).scan().plan_files())

    def _canonical(self, held: pa.Table) -> list[Row]:
        """The rows under the model's names, with instants in UTC."""
        return [{self.of_table(name): in_utc(value) for name, value in row.items()} for row in held.to_pylist()]

    def _others_were_here(self) -> None:
        table = self.lake.table(self.name)
        self.snapshots, self.main_has_snapshots = len(table.snapshots()), table.current_snapshot() is not None
        self._check_table()

    def _check_commit(self, result: dg.ExecuteInProcessResult, disposition: str) -> None:
        table = self.lake.table(self.name)
        assert len(table.snapshots()) == self.snapshots + 1
        self.snapshots += 1
        head = table.snapshot_by_name(self.branch)
        assert head is not None
        assert head.summary is not None
        assert head.summary.additional_properties["dagster.run_id"] == result.run_id
        assert head.summary.additional_properties["dagster.asset_key"] == self.name
        assert head.summary.additional_properties["dagster.write_disposition"] == disposition

    def _check_numbers(
        self, result: dg.ExecuteInProcessResult, disposition: str, keys: list[str], rows: Sequence[Row], before: int
    ) -> None:
        """What the run has reported of its rows, where it has."""
        held = self.model.branches[self.branch]
        for key in keys:
            metadata = metadata_of(result, self.name, key or None)
            owned = sum(self.model.is_owned(row, [key]) for row in held)
            assert metadata.get("dagster/partition_row_count", owned) == owned, key
            assert metadata.get("dagster/row_count", len(held)) == len(held)
            assert "iceberg/dropped_rows" not in metadata
            if disposition == "merge":
                assert metadata["iceberg/merge_inserted_rows"] == len(held) - before
            elif disposition == "append":
                assert metadata["iceberg/added_rows"] == len(rows)

    def _check_table(self) -> None:
        if not self.exists:
            assert not self.lake.exists(self.name)
            return
        table = self.lake.table(self.name)
        assert len(table.snapshots()) == self.snapshots
        held = table.scan().to_arrow()
        columns = list(self.model.columns)
        assert sorted(map(self.of_table, held.column_names)) == sorted(columns)
        for name, data_type in self.model.columns.items():
            found = held.schema.field(self.in_table(name)).type
            assert str(found).removeprefix("large_") == str(data_type), name
        assert model.sort_rows(self._canonical(held), columns) == self.model.sorted_rows(model.MAIN)
        if self.has_cached:  # Spark answers with the columns and rows that it has cached
            return
        conf = self.lake.session.conf
        zone = str(conf.get("spark.sql.session.timeZone"))
        conf.set("spark.sql.session.timeZone", "Pacific/Chatham")
        try:
            self.lake.session.sql(f"refresh table {self.table}")
            for branch in self.model.branches:
                name = self.table if branch == model.MAIN else f"{self.table}.branch_{branch}"
                read = arrow_of(self.lake.session.table(name))
                assert model.sort_rows(self._canonical(read), columns) == self.model.sorted_rows(branch), branch
        finally:
            conf.set("spark.sql.session.timeZone", zone)


def spark_columns(types: Mapping[str, pa.DataType]) -> str:
    """Columns as Spark writes them."""
    return ", ".join(f"`{name}` {SPARK_TYPES[str(data_type)]}" for name, data_type in types.items())


def in_utc(value: Any) -> Any:
    """The value, an instant in UTC as the model has it."""
    is_instant = isinstance(value, dt.datetime) and value.tzinfo is not None
    return value.astimezone(dt.timezone.utc) if is_instant else value


def run_histories(lake: Lake, *, examples: int, steps: int, is_repeatable: bool) -> None:
    """Draw histories; what was drawn is printed, for `pytest -s`."""
    TableMachine.steps = TableMachine.materializations = 0
    run_state_machine_as_test(
        lambda: TableMachine(lake),  # type: ignore[arg-type] # any callable that makes one
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=is_repeatable,
            database=None,
            phases=[Phase.generate],
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
    print(f"{TableMachine.steps} steps, {TableMachine.materializations} of them runs of the asset")  # noqa: T201 - for who asked for more


@pytest.mark.full
@pytest.mark.spark
def test_a_table_holds_what_its_history_says(lake: Lake) -> None:
    run_histories(lake, examples=3, steps=10, is_repeatable=True)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(6 * 3600)
def test_a_table_holds_what_long_histories_say(lake: Lake) -> None:
    examples, steps = int(os.environ.get("MODEL_EXAMPLES", "10")), int(os.environ.get("MODEL_STEPS", "30"))
    run_histories(lake, examples=examples, steps=steps, is_repeatable=False)
