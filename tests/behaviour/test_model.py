"""Random histories of a table, against a plain model of it: after every step the same rows, columns and snapshots.

The short profile is the same in every run; `make test-long` draws new histories each time. Set `MODEL_EXAMPLES` and
`MODEL_STEPS` to draw more.
"""

import datetime as dt
import os
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from pyspark.sql.types import StructType

from dagster_iceberg_spark import IcebergSparkResource
from tests.behaviour import model
from tests.behaviour.model import Kind, Model, Row
from tests.conftest import Lake, error_of, metadata_of

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

SPRING = dg.DailyPartitionsDefinition("2024-03-08", end_date="2024-03-13", timezone="America/New_York")
AUTUMN = dg.DailyPartitionsDefinition("2024-11-01", end_date="2024-11-06", timezone="America/New_York")
LORD_HOWE = dg.DailyPartitionsDefinition("2024-04-05", end_date="2024-04-09", timezone="Australia/Lord_Howe")
KATHMANDU = dg.WeeklyPartitionsDefinition("1969-12-17", end_date="1970-01-15", timezone="Asia/Kathmandu", day_offset=3)
HOURS = dg.HourlyPartitionsDefinition("2024-03-10-00:00", end_date="2024-03-10-06:00", timezone="America/New_York")
QUARTERS = dg.TimeWindowPartitionsDefinition(
    start="2023-01-01", end="2024-07-01", fmt="%Y-%m-%d", cron_schedule="0 0 1 */3 *", timezone="Europe/Berlin"
)

NAMES = model.names("odd names", ODD_NAMES, NAME_LAYOUTS)
KINDS = (
    model.instants("days in spring", SPRING, INSTANT_LAYOUTS),
    model.instants("days in autumn", AUTUMN, INSTANT_LAYOUTS),
    model.instants("days of half an hour's change", LORD_HOWE, INSTANT_LAYOUTS),
    model.instants("weeks around 1970", KATHMANDU, INSTANT_LAYOUTS),
    model.instants("hours", HOURS, INSTANT_LAYOUTS),
    model.instants("quarters", QUARTERS, INSTANT_LAYOUTS),
    model.wall_clocks("days by the wall clock", AUTUMN, WALL_LAYOUTS),
    model.dates("weeks of dates", KATHMANDU, DATE_LAYOUTS),
    NAMES,
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
    "string": "string",
    "date32[day]": "date",
    "timestamp[us]": "timestamp_ntz",
    "timestamp[us, tz=UTC]": "timestamp",
}
ZONES = ("Asia/Tokyo", "America/Los_Angeles", "UTC")
TEXTS = ("a", "b", "", None)


class TableMachine(RuleBasedStateMachine):
    """One table, written by its asset and by others."""

    def __init__(self, lake: Lake) -> None:
        super().__init__()
        self.lake = lake
        self.name = f"t_{uuid.uuid4().hex[:12]}"
        self.snapshots = 0
        self.exists = False

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

    # ------------------------------------------------------------------------------------------------- its own asset

    @rule(
        data=st.data(),
        disposition=st.sampled_from(["replace", "replace", "append", "merge"]),
        evolution=st.sampled_from(["add_columns", "add_columns", "full"]),
    )
    def materialize(self, data: st.DataObject, disposition: str, evolution: str) -> None:
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
        is_refused = any(name in self._layout_columns() for name in dropped)
        result = self._run(rows, columns, run, disposition, evolution=evolution)
        if is_refused:
            assert error_of(result).class_name == "SchemaMismatchError", error_of(result)
            self._check_table()
            return
        assert result.success, error_of(result)
        self._widened(columns, has_table=True)
        for name in dropped:
            self.model.drop_column(name)
        if disposition == "merge":
            self.model.merge(keys, rows)
        else:
            (self.model.replace if disposition == "replace" else lambda _, new: self.model.append(new))(keys, rows)
        self.exists = True
        self._check_commit(result, disposition)
        self._check_table()

    @precondition(lambda self: self.kind.definition is not None)
    @rule(data=st.data(), disposition=st.sampled_from(["replace", "append", "merge"]), drops=st.booleans())
    def materialize_rows_of_others(self, data: st.DataObject, disposition: str, *, drops: bool) -> None:
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
        if not drops:
            assert not result.success
            error = error_of(result)
            assert error.class_name == "RowsOutsidePartitionError", error
            self.exists = bool(self.lake.exists(self.name))
            assert self._files() == files
            self._widened(columns, has_table=self.exists)
            self._check_table()
            return
        assert result.success, error_of(result)
        assert metadata_of(result, self.name, keys[0] if len(keys) == 1 else None)["iceberg/dropped_rows"] == 1
        self._widened(columns, has_table=True)
        if disposition == "merge":
            self.model.merge(keys, mixed)
        elif disposition == "append":
            self.model.append(mixed)
        else:
            self.model.replace(keys, mixed)
        self.exists = True
        self._check_commit(result, disposition)
        self._check_table()

    @rule(data=st.data())
    def change_the_layout(self, data: st.DataObject) -> None:
        self.layout = data.draw(st.sampled_from(self.kind.layouts))

    @rule(number=st.integers(0, 1))
    def get_another_column(self, number: int) -> None:
        self.frame_types[f"extra {number}"] = pa.string()

    @rule()
    def get_wider_numbers(self) -> None:
        self.frame_types["n"] = pa.int64()

    @rule(zone=st.sampled_from(ZONES))
    def move_the_session(self, zone: str) -> None:
        self.lake.session.conf.set("spark.sql.session.timeZone", zone)

    # -------------------------------------------------------------------------------------------------------- others

    @precondition(lambda self: self.exists)
    @rule(data=st.data())
    def others_append(self, data: st.DataObject) -> None:
        anywhere = [*self.kind.foreign, *(values for each in self.kind.values.values() for values in each)]
        rows = self._draw_rows(data, anywhere, is_unique=False)
        rows = [{name: row.get(name) for name in self.model.columns} for row in rows]
        self._frame(rows, self.model.columns).writeTo(self.table).append()
        self.model.append(rows)
        self._others_were_here()

    @precondition(lambda self: self.snapshots > 0)
    @rule(number=st.integers(0, 9))
    def others_delete(self, number: int) -> None:
        self.lake.session.sql(f"delete from {self.table} where id = {number}")
        self.model.delete(lambda row: row["id"] == number)
        self._others_were_here()

    @precondition(lambda self: self.snapshots > 0)
    @rule(order=st.sampled_from(["id", "v desc nulls last"]))
    def others_compact(self, order: str) -> None:
        self.lake.session.sql(
            f"call {self.catalog}.system.rewrite_data_files(table => 'db.{self.name}', strategy => 'sort', "
            f"sort_order => '{order}', options => map('rewrite-all', 'true'))"
        ).collect()
        self._others_were_here()

    @precondition(lambda self: self.exists)
    @rule(data=st.data())
    def others_change_the_spec(self, data: st.DataObject) -> None:
        name = f"f_{uuid.uuid4().hex[:6]}"
        field = data.draw(st.sampled_from(["bucket(3, id)", "truncate(2, v)"]))
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

    def _frame(self, rows: Iterable[Row], columns: Iterable[str]) -> Any:
        types = {**self.model.columns, **self.frame_types}
        schema = pa.schema([(name, types[name]) for name in columns])
        session = self.lake.session  # before the DDL is read, which needs one
        spark_schema: Any = StructType.fromDDL(spark_columns({name: types[name] for name in columns}))
        return session.createDataFrame(pa.Table.from_pylist(list(rows), schema=schema), spark_schema)

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
        metadata: dict[str, Any] = {
            "partition_expr": self.kind.expr,
            "iceberg/partition_by": self.layout,
            "iceberg/write_disposition": disposition,
            "iceberg/merge_keys": ["id"],
            "iceberg/rows_outside_partition": outside,
            "iceberg/schema_evolution": evolution,
            "iceberg/table_properties": {} if self.exists else self.properties,
        }
        frame = self._frame(rows, columns)

        def asset(spark: IcebergSparkResource) -> Any:
            return frame

        definition = dg.asset(
            name=self.name,
            io_manager_key="iceberg",
            partitions_def=self.kind.definition,
            backfill_policy=dg.BackfillPolicy.single_run() if self.kind.definition else None,
            metadata={key: value for key, value in metadata.items() if value is not None},
        )(asset)
        return self.lake.materialize(definition, raise_on_error=False, **run)

    # ------------------------------------------------------------------------------------------------------ the check

    def _widened(self, columns: Iterable[str], *, has_table: bool) -> None:
        """Give the model the columns that the frame has brought along."""
        for name in columns if has_table else ():
            self.model.add_column(name, self.model.columns.get(name, self.frame_types[name]))
            if self.frame_types[name] == pa.int64():
                self.model.columns[name] = pa.int64()

    def _layout_columns(self) -> set[str]:
        """The columns that the table was ever partitioned by."""
        if not self.exists:
            return set()
        table = self.lake.table(self.name)
        fields = [field for spec in table.specs().values() for field in spec.fields if str(field.transform) != "void"]
        wanted = {word for item in self.layout or [] for word in re.findall(r"\w+", item)}
        return {str(table.schema().find_column_name(field.source_id)) for field in fields} | wanted

    def _files(self) -> list[str]:
        if not self.lake.exists(self.name):
            return []
        return sorted(task.file.file_path for task in self.lake.table(self.name).scan().plan_files())

    def _others_were_here(self) -> None:
        self.snapshots = len(self.lake.table(self.name).snapshots())
        self._check_table()

    def _check_commit(self, result: dg.ExecuteInProcessResult, disposition: str) -> None:
        table = self.lake.table(self.name)
        assert len(table.snapshots()) == self.snapshots + 1
        self.snapshots += 1
        head = table.current_snapshot()
        assert head is not None
        assert head.summary is not None
        assert head.summary.additional_properties["dagster.run_id"] == result.run_id
        assert head.summary.additional_properties["dagster.asset_key"] == self.name
        assert head.summary.additional_properties["dagster.write_disposition"] == disposition

    def _check_table(self) -> None:
        if not self.exists:
            assert not self.lake.exists(self.name)
            return
        table = self.lake.table(self.name)
        assert len(table.snapshots()) == self.snapshots
        held = table.scan().to_arrow()
        columns = list(self.model.columns)
        assert set(held.column_names) == set(columns)
        for name, data_type in self.model.columns.items():
            found = held.schema.field(name).type
            assert str(found).removeprefix("large_") == str(data_type), name
        expected = self.model.sorted_rows()
        assert model.sort_rows(held.to_pylist(), columns) == expected
        conf = self.lake.session.conf
        zone = str(conf.get("spark.sql.session.timeZone"))
        conf.set("spark.sql.session.timeZone", "Pacific/Chatham")
        try:
            self.lake.session.sql(f"refresh table {self.table}")
            read = self.lake.session.table(self.table).toArrow()
        finally:
            conf.set("spark.sql.session.timeZone", zone)
        assert model.sort_rows((in_utc(row) for row in read.to_pylist()), columns) == expected


def spark_columns(types: Mapping[str, pa.DataType]) -> str:
    """Columns as Spark writes them."""
    return ", ".join(f"`{name}` {SPARK_TYPES[str(data_type)]}" for name, data_type in types.items())


def in_utc(row: Row) -> Row:
    """The row with its instants in UTC, as the model has them."""
    return {
        name: value.astimezone(dt.timezone.utc) if isinstance(value, dt.datetime) and value.tzinfo else value
        for name, value in row.items()
    }


def run_histories(lake: Lake, *, examples: int, steps: int, is_repeatable: bool) -> None:
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


@pytest.mark.spark
def test_a_table_holds_what_its_history_says(lake: Lake) -> None:
    run_histories(lake, examples=4, steps=10, is_repeatable=True)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(6 * 3600)
def test_a_table_holds_what_long_histories_say(lake: Lake) -> None:
    examples, steps = int(os.environ.get("MODEL_EXAMPLES", "40")), int(os.environ.get("MODEL_STEPS", "30"))
    run_histories(lake, examples=examples, steps=steps, is_repeatable=False)
