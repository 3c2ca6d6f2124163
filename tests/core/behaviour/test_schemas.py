"""What happens when a frame's columns are not the table's."""

import datetime as dt
import itertools
from collections.abc import Iterator
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.table import DataScan
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import FixedType, ListType, LongType, NestedField, StructType, UUIDType

from dagster_iceberg_spark.plan.schema.schema_evolution import storage_verdict
from dagster_iceberg_spark.spark.columns import iceberg_type
from tests.core.behaviour.test_loads import ANNOTATIONS, capture
from tests.lakes import Lake, add_column, arrow_of, frame_asset, metadata_of

pytestmark = pytest.mark.spark


def test_new_columns_are_added_and_missing_ones_are_null(lake: Lake) -> None:
    append = {"iceberg/write_disposition": "append"}
    lake.materialize(frame_asset("t", "select 1 as a, 2 as b", metadata=append))
    result = lake.materialize(frame_asset("t", "select 3 as a, 'x' as c", metadata=append))
    assert lake.rows("t", "a") == [1, 3]
    assert lake.arrow("t").sort_by("a").to_pylist() == [{"a": 1, "b": 2, "c": None}, {"a": 3, "b": None, "c": "x"}]
    assert metadata_of(result, "t")["iceberg/table_changes"] == ["add column c string"]
    assert len(lake.summaries("t")) == 2


@pytest.mark.each_engine
@pytest.mark.feature("columns are added and widened")
def test_types_widen_where_iceberg_lets_them(lake: Lake) -> None:
    append = {"iceberg/write_disposition": "append"}
    first = "select 1 as i, cast(1.5 as float) as f, cast(1 as decimal(5, 2)) as d"
    second = "select 5000000000 as i, 2.5D as f, cast(2 as decimal(9, 2)) as d"
    for query in (first, second, first):
        lake.materialize(frame_asset("t", query, metadata=append))
    assert [str(field.field_type) for field in lake.table("t").schema().fields] == ["long", "double", "decimal(9, 2)"]
    assert lake.rows("t", "i") == [1, 1, 5_000_000_000]


@pytest.mark.by_spark
@pytest.mark.full
def test_changes_of_many_columns_are_two_commits(lake: Lake) -> None:
    append = {"iceberg/write_disposition": "append"}
    lake.materialize(frame_asset("t", "select 1 as a, 2 as b, 3 as c", metadata=append))
    before = len(lake.table("t").metadata.metadata_log)
    new = ", ".join(f"'x' as n{number}" for number in range(20))
    result = lake.materialize(frame_asset("t", f"select 1L as a, 2L as b, 3L as c, {new}", metadata=append))
    assert len(metadata_of(result, "t")["iceberg/table_changes"]) == 23
    assert len(lake.table("t").metadata.metadata_log) == before + 3  # columns added, columns widened, rows


def test_fields_of_structs_are_added(lake: Lake) -> None:
    append = {"iceberg/write_disposition": "append"}
    lake.materialize(frame_asset("t", "select 1 as id, named_struct('a', 1) as s", metadata=append))
    lake.materialize(frame_asset("t", "select 2 as id, named_struct('a', 1, 'b', 'x') as s", metadata=append))
    assert lake.arrow("t").sort_by("id").column("s").to_pylist() == [{"a": 1, "b": None}, {"a": 1, "b": "x"}]


@pytest.mark.full
def test_what_would_lose_something_is_refused(lake: Lake) -> None:
    lake.materialize(frame_asset("t", "select 1 as c, 1 as other"))
    error = lake.failure(frame_asset("t", "select 'text' as c, 1 as other, 2 as new"))
    assert error.class_name == "SchemaMismatchError"
    assert "expected the column 'c' of type int, or of a narrower one, found type string" in str(error)
    assert not error.allow_retries
    assert len(lake.summaries("t")) == 1
    assert lake.table("t").schema().column_names == ["c", "other"]


EXTREMES: dict[str, tuple[str, ...]] = {
    "boolean": ("true", "false"),
    "tinyint": ("-128Y", "127Y"),
    "smallint": ("-32768S", "32767S"),
    "int": ("-2147483648", "2147483647"),
    "bigint": ("-9223372036854775808L", "9007199254740993L"),
    "float": ("float('-Infinity')", "float('1e-45')"),
    "double": ("double('NaN')", "4.9e-324D"),
    "decimal(10,2)": ("-99999999.99BD", "0.01BD"),
    "decimal(20,2)": ("-999999999999999999.99BD", "0.01BD"),
    "decimal(38,0)": ("-99999999999999999999999999999999999999BD", "1BD"),
    "date": ("date '0001-01-01'", "date '9999-12-31'"),
    "timestamp": ("timestamp '1969-12-31 23:59:59.999999Z'", "timestamp '2024-11-03 05:30:00.000001Z'"),
    "timestamp_ntz": ("timestamp_ntz '1969-12-31 23:59:59.999999'", "timestamp_ntz '2024-03-10 02:30:00.000001'"),
    "string": ("''", "'it''s \\u0000 ü'"),
    "binary": ("X''", "X'00FF'"),
}


def test_every_type_is_stored_unchanged_wherever_the_plan_says_so(lake: Lake) -> None:
    """One column for each pair of types that is not refused: the values are what they were."""
    frame = lake.session.createDataFrame([], ", ".join(f"`{name}` {name}" for name in EXTREMES))
    known = {field.name: iceberg_type(field.dataType, ("c",), "t") for field in frame.schema.fields}
    tables = [name for name in EXTREMES if name not in ("tinyint", "smallint")]
    verdicts = {
        (source, target): storage_verdict(known[source], known[target])
        for source, target in itertools.product(EXTREMES, tables)
    }
    pairs = [pair for pair, verdict in verdicts.items() if verdict != "refused"]
    lake.session.sql("create namespace if not exists lake.db")
    columns = ", ".join(f"c{number} {target}" for number, (_, target) in enumerate(pairs))
    lake.session.sql(f"create table lake.db.t (id int, {columns}) using iceberg")

    def rows(*, as_stored: bool) -> str:
        stored = [source if verdicts[source, target] == "widened" else target for source, target in pairs]
        return " union all ".join(
            f"select {row} as id, "
            + ", ".join(
                f"cast({f'cast({EXTREMES[source][row]} as {source})'} as {wider if as_stored else source}) as c{number}"
                for number, ((source, _), wider) in enumerate(zip(pairs, stored, strict=True))
            )
            for row in (0, 1)
        )

    lake.materialize(frame_asset("t", rows(as_stored=False)))
    found = lake.arrow("t").sort_by("id").to_pylist()
    expected = arrow_of(lake.session.sql(rows(as_stored=True))).sort_by("id").to_pylist()
    for row, column in itertools.product((0, 1), [f"c{number}" for number in range(len(pairs))]):
        assert comparable(found[row][column]) == comparable(expected[row][column]), pairs[int(column[1:])]


@pytest.mark.full
def test_an_instant_stays_one_whatever_the_session_calls_a_timestamp(lake: Lake) -> None:
    """The table is made, gets a column, is replaced and merged into."""
    instant = "timestamp_ltz '2024-01-02 00:00:00Z'"
    merging = {"iceberg/write_disposition": "merge", "iceberg/merge_keys": ["id"]}
    lake.session.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        lake.materialize(frame_asset("t", f"select 1 as id, {instant} as ts"))
        for metadata in ({}, merging):
            lake.materialize(
                frame_asset("t", f"select 1 as id, {instant} as ts, struct({instant} as at) as n", metadata=metadata)
            )
    finally:
        lake.session.conf.unset("spark.sql.timestampType")
    assert str(lake.table("t").schema().find_field("ts").field_type) == "timestamptz"
    moment = dt.datetime(2024, 1, 2, tzinfo=dt.timezone.utc)
    assert lake.arrow("t").to_pylist() == [{"id": 1, "ts": moment, "n": {"at": moment}}]


ONE, OTHER = "f79c3e09-677c-4bbd-a479-3f349cb785e7", "0a9c3e09-677c-4bbd-a479-3f349cb785e7"


def of_another_engine(lake: Lake, *partition_by: Any) -> None:
    """Make a table with columns of types that Spark does not have."""
    columns = (
        NestedField(1, "id", LongType()),
        NestedField(2, "u", UUIDType()),
        NestedField(3, "f", FixedType(2)),
        NestedField(4, "n", StructType(NestedField(10, "l", ListType(11, UUIDType(), element_required=False)))),
    )
    lake.session.sql("create namespace if not exists lake.db")
    spec = PartitionSpec(*(PartitionField(2, 1000, transform, "p") for transform in partition_by))
    lake.spark.pyiceberg_catalog.create_table(("db", "t"), IcebergSchema(*columns), partition_spec=spec)


def identified(*rows: tuple[int, str, str], **metadata: Any) -> dg.AssetsDefinition:
    texts = (f"({number}, '{text}', X'{binary}')" for number, text, binary in rows)
    columns = "cast(id as bigint) as id, u, f, named_struct('l', array(u)) as n"
    query = f"select {columns} from values {', '.join(texts)} as t(id, u, f)"
    return frame_asset("t", query, metadata={f"iceberg/{key}": value for key, value in metadata.items()})


@pytest.mark.full
def test_uuids_are_texts_and_fixed_are_binary_whatever_loads_them(lake: Lake) -> None:
    of_another_engine(lake)
    upstream = identified((1, ONE, "0A0B"), (2, OTHER, "0C0D"))
    lake.materialize(upstream)
    expected = [(1, ONE, b"\x0a\x0b", {"l": [ONE]}), (2, OTHER, b"\x0c\x0d", {"l": [OTHER]})]
    changelog = (pa.Table, {"iceberg/read": "changelog"})
    others: list[tuple[Any, dict[str, Any]]] = [(kind, {}) for kind in ANNOTATIONS if kind is not DataScan]
    for annotation, asked in [changelog, *others]:
        loaded = capture(lake, upstream, annotation, input_metadata=asked)
        rows = sorted((row["id"], row["u"], row["f"], row["n"]) for row in loaded.to_pylist())
        assert (annotation, rows) == (annotation, expected)


@pytest.mark.full
@pytest.mark.parametrize("transform", [None, IdentityTransform(), BucketTransform(4)], ids=str)
def test_texts_and_binary_are_stored_as_uuids_and_fixed(lake: Lake, transform: Any) -> None:
    of_another_engine(lake, *([transform] if transform else []))
    lake.materialize(identified((1, ONE.upper(), "0A0B"), schema_evolution="strict"))
    lake.materialize(identified((2, OTHER, "0C0D"), write_disposition="append"))
    merging = {"write_disposition": "merge", "merge_keys": ["u"]}
    again = lake.materialize(identified((3, ONE.upper(), "0C0C"), (2, OTHER.upper(), "0C0D"), **merging))
    assert metadata_of(again, "t")["iceberg/merge_unchanged_rows"] == 1
    stored = [(2, OTHER, b"\x0c\x0d", {"l": [OTHER]}), (3, ONE, b"\x0c\x0c", {"l": [ONE]})]
    frame = lake.session.table("lake.db.t").orderBy("id")
    assert [(row.id, row.u, bytes(row.f), row.n.asDict()) for row in frame.collect()] == stored
    for column, row in (("u", (4, "1-1-1-1-1", "0A0B")), ("f", (4, ONE, "0A"))):
        error = lake.failure(identified(row))
        assert (error.class_name, f"in the column '{column}'" in str(error)) == ("SchemaMismatchError", True)
    lake.materialize(identified((5, ONE, "0A0B")))
    assert lake.session.sql("select id from lake.db.t").collect()[0][0] == 5


def comparable(value: Any) -> str:
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        value = value.astimezone(dt.timezone.utc)
    return repr(value)


def test_strict_refuses_a_new_column_and_changes_nothing(lake: Lake) -> None:
    strict = lake.with_options(schema_evolution="strict")
    strict.materialize(frame_asset("t", "select 1 as a"))
    error = strict.failure(frame_asset("t", "select 1 as a, 2 as b"))
    assert "the column b of type int, which the table lacks" in str(error)
    assert [field.name for field in lake.table("t").schema().fields] == ["a"]


@pytest.mark.by_spark
def test_a_frame_that_no_table_can_hold_creates_none(lake: Lake) -> None:
    error = lake.failure(frame_asset("t", "select make_dt_interval(1) as a"))
    assert error.class_name == "SchemaMismatchError"
    assert "for the column 'a', found interval day to second" in str(error)
    assert not lake.exists("t")


def test_column_descriptions_become_column_docs_and_metadata(lake: Lake) -> None:
    described = {
        "dagster/column_schema": dg.TableSchema(
            columns=[dg.TableColumn("a", description='what\'s \\ "a"'), dg.TableColumn("b", description="later")]
        )
    }
    lake.materialize(frame_asset("t", "select 1 as a", metadata=described))
    result = lake.materialize(frame_asset("t", "select 1 as a, 2 as b", metadata=described))
    assert [field.doc for field in lake.table("t").schema().fields] == ['what\'s \\ "a"', "later"]
    shown = {column.name: column.description for column in metadata_of(result, "t")["dagster/column_schema"].columns}
    assert shown["a"] == 'what\'s \\ "a"'


@pytest.mark.full
def test_properties_and_columns_that_the_definition_does_not_mention_stay(lake: Lake) -> None:
    asset = frame_asset("t", "select 1 as a", metadata={"iceberg/table_properties": {"owner.team": "it's us"}})
    lake.materialize(asset)
    with lake.table("t").transaction() as transaction:
        transaction.set_properties({"someone.else": "set this"})
    with lake.table("t").update_spec() as spec:
        spec.add_identity("a")
    lake.materialize(asset)
    properties = lake.table("t").properties
    assert (properties["owner.team"], properties["someone.else"]) == ("it's us", "set this")
    assert [field.name for field in lake.table("t").spec().fields] == ["a"]


def test_a_null_in_a_required_column_is_refused(lake: Lake) -> None:
    lake.session.sql("create namespace if not exists lake.db")
    lake.session.sql("create table lake.db.t (id int not null) using iceberg")
    lake.materialize(frame_asset("t", "select 1 as id"))
    error = lake.failure(frame_asset("t", "select cast(null as int) as id"))
    assert error.class_name == "NullValueError"
    assert lake.rows("t", "id") == [1]


FULL = {"iceberg/schema_evolution": "full"}


def test_full_makes_the_tables_columns_those_of_the_frame(lake: Lake) -> None:
    lake.session.sql("create namespace if not exists lake.db")
    lake.session.sql("create table lake.db.t (a int, gone string not null, s struct<x: int, y: int>) using iceberg")
    first = lake.table("t").schema()
    query = "select 'new' as b, named_struct('y', 2L, 'z', 3) as s, 1 as a"
    result = lake.materialize(frame_asset("t", query, metadata=FULL))
    table = lake.table("t")
    assert [field.name for field in table.schema().fields] == ["b", "s", "a"]
    assert table.schema().find_field("a").field_id == first.find_field("a").field_id
    assert lake.arrow("t").to_pylist() == [{"b": "new", "s": {"y": 2, "z": 3}, "a": 1}]
    assert len(table.snapshots()) == 1
    changes = metadata_of(result, "t")["iceberg/table_changes"]
    assert {"drop column gone", "drop column s.x", "let column gone hold NULL"} < set(changes)
    assert [column.name for column in metadata_of(result, "t")["dagster/column_schema"].columns] == ["b", "s", "a"]


@pytest.mark.by_spark
@pytest.mark.full
def test_fields_that_a_struct_lacks_are_null_at_any_depth(lake: Lake) -> None:
    full = """
        select 1 as id, named_struct('x', 1, 'in', named_struct('y', 1, 'z', 'z')) as s,
        array(named_struct('x', 1, 'y', 1)) as l, map('k', named_struct('x', 1, 'y', 1)) as m
    """
    lake.materialize(frame_asset("t", full, metadata={"iceberg/write_disposition": "append"}))
    sparse = """
        select 2 as id, named_struct('in', named_struct('z', 'w', 'new', true)) as s,
        array(named_struct('y', 2), cast(null as struct<y: int>)) as l, map('k', named_struct('y', 2)) as m
        union all select 3, null, null, null
    """
    lake.materialize(frame_asset("t", sparse, metadata={"iceberg/write_disposition": "append"}))
    # Not by pyiceberg: it makes an empty list of a list of structs that is NULL.
    lake.session.sql("refresh table lake.db.t")
    rows = arrow_of(lake.session.table("lake.db.t")).sort_by("id").to_pylist()
    assert rows[1] == {
        "id": 2,
        "s": {"x": None, "in": {"y": None, "z": "w", "new": True}},
        "l": [{"x": None, "y": 2}, None],
        "m": [("k", {"x": None, "y": 2})],
    }
    assert rows[2] == {"id": 3, "s": None, "l": None, "m": None}


MERGE: dict[str, Any] = {"iceberg/write_disposition": "merge", "iceberg/merge_keys": ["id"]}


@pytest.mark.by_spark
@pytest.mark.full
def test_a_merge_keeps_the_fields_of_structs_that_the_batch_lacks(lake: Lake) -> None:
    stored = "named_struct('x', 1, 'y', 2, 'in', named_struct('a', 1, 'b', 2))"
    lake.materialize(frame_asset("t", f"select explode(array(1, 2, 3, 4)) as id, if(id = 4, null, {stored}) as s"))
    batch = "if(id = 2, null, named_struct('in', if(id = 1, null, named_struct('b', 9)), 'new', 0L, 'x', 3))"
    query = f"select explode(array(1, 2, 3, 4, 5)) as id, {batch} as s"
    lake.materialize(frame_asset("t", query, metadata=MERGE))
    rows = lake.arrow("t").sort_by("id").column("s").to_pylist()
    inner, absent = {"a": None, "b": 9}, {"x": 3, "y": None, "new": 0}
    assert rows == [
        {"x": 3, "y": 2, "in": None, "new": 0},
        None,
        {"x": 3, "y": 2, "in": {"a": 1, "b": 9}, "new": 0},
        {**absent, "in": inner},
        {**absent, "in": inner},
    ]
    lake.materialize(frame_asset("t", f"select * from ({query}) where id > 5", metadata=MERGE))
    assert lake.arrow("t").sort_by("id").column("s").to_pylist() == rows


@pytest.mark.full
def test_full_keeps_the_columns_of_a_write_that_a_row_refuses(lake: Lake) -> None:
    days = dg.DailyPartitionsDefinition("2024-01-01")
    kwargs: dict[str, Any] = {"partitions_def": days, "metadata": {"partition_expr": "day", **FULL}}
    lake.materialize(frame_asset("t", "select date '{key}' as day, 1 as a", **kwargs), partition_key="2024-01-01")
    refused = frame_asset("t", "select date '1999-01-01' as day, 2 as b", **kwargs)
    error = lake.failure(refused, partition_key="2024-01-02")
    assert error.class_name == "RowsOutsidePartitionError"
    assert "what stays: add column b int." in str(error)
    assert [field.name for field in lake.table("t").schema().fields] == ["day", "a", "b"]
    assert lake.rows("t", "a") == [1]


def days_in_one_file(lake: Lake, columns: str) -> dict[str, Any]:
    """Write two days into a file, so that a write of one carries the other over. Return the definition of the asset."""
    days = dg.DailyPartitionsDefinition("2024-01-01")
    definition = {"partitions_def": days, "metadata": {"partition_expr": "day", "iceberg/partition_by": []}}
    query = f"select explode(sequence(date '2024-01-01', date '2024-01-02')) as day, {columns}"
    both = frame_asset("t", query, backfill_policy=dg.BackfillPolicy.single_run(), **definition)
    lake.materialize_range(both, first="2024-01-01", last="2024-01-02")
    return definition


@pytest.mark.full
def test_rows_that_are_carried_over_have_the_tables_columns_of_now(lake: Lake) -> None:
    """Between the last snapshot and this write columns were dropped, renamed and added again under an old name."""
    loose = days_in_one_file(lake, "1 as a, 'old' as b")
    lake.session.sql("alter table lake.db.t drop column b")
    lake.session.sql("alter table lake.db.t rename column a to renamed")
    query = "select date '{key}' as day, 2 as renamed, 'new' as b"
    result = lake.materialize(frame_asset("t", query, **loose), partition_key="2024-01-02")
    assert metadata_of(result, "t")["iceberg/carried_over_rows"] == 1
    assert lake.arrow("t").sort_by("day").drop_columns(["day"]).to_pylist() == [
        {"renamed": 1, "b": None}, {"renamed": 2, "b": "new"},
    ]  # fmt: skip


@pytest.mark.full
def test_rows_that_are_carried_over_keep_the_columns_that_the_new_rows_lack(lake: Lake) -> None:
    loose = days_in_one_file(lake, "1 as a, 'kept' as b")
    narrow = frame_asset("t", "select 2 as a, date '{key}' as day", **loose)
    result = lake.materialize(narrow, partition_key="2024-01-02")
    assert metadata_of(result, "t")["iceberg/carried_over_rows"] == 1
    assert lake.rows("t", "a", "b") == [(1, "kept"), (2, None)]


@pytest.mark.each_engine
def test_a_column_is_renamed_with_its_values(lake: Lake) -> None:
    days = dg.DailyPartitionsDefinition("2024-01-01")
    before = {"partition_expr": "day", "iceberg/partition_by": ["day(day)", "bucket(2, id)"]}
    query = "select date '{key}' as day, 1 as id, named_struct('x', 1) as s"
    lake.materialize(frame_asset("t", query, partitions_def=days, metadata=before), partition_key="2024-01-01")
    metadata = {
        "partition_expr": "at",
        "iceberg/partition_by": ["day(at)", "bucket(2, key)"],
        "iceberg/renames": {"day": "at", "id": "key", "s.x": "y"},
    }
    query = "select date '{key}' as at, 2 as key, named_struct('y', 2) as s"
    after = frame_asset("t", query, partitions_def=days, metadata=metadata)
    for _ in range(2):
        lake.materialize(after, partition_key="2024-01-02")
        assert lake.rows("t", "key") == [1, 2]
    assert lake.arrow("t").sort_by("key").column("s").to_pylist() == [{"y": 1}, {"y": 2}]
    table = lake.table("t")
    assert [field.name for field in table.schema().fields] == ["at", "key", "s"]
    assert len(table.snapshots()) == 3
    assert len(table.specs()) == 1


@pytest.mark.full
def test_a_rename_waits_until_the_rows_are_committed(lake: Lake) -> None:
    lake.materialize(frame_asset("t", "select 1 as a"))
    metadata = {"iceberg/renames": {"a": "b"}, "iceberg/required_columns": ["b"]}
    error = lake.failure(frame_asset("t", "select cast(null as int) as b", metadata=metadata))
    assert error.class_name == "NullValueError"
    assert lake.rows("t", "a") == [1]


def test_required_and_identifying_columns_come_from_the_definition(lake: Lake) -> None:
    metadata = {"iceberg/required_columns": ["a"], "iceberg/identifier_fields": ["id"]}
    lake.materialize(frame_asset("t", "select 1 as id, 2 as a, 3 as b", metadata=metadata))
    schema = lake.table("t").schema()
    assert [field.required for field in schema.fields] == [True, True, False]
    assert schema.identifier_field_names() == {"id"}
    error = lake.failure(frame_asset("t", "select 1 as id, cast(null as int) as a, 3 as b", metadata=metadata))
    assert error.class_name == "NullValueError"
    relaxed = {"iceberg/required_columns": {"a": False}, "iceberg/identifier_fields": []}
    lake.materialize(frame_asset("t", "select 1 as id, cast(null as int) as a, 3 as b", metadata=relaxed))
    schema = lake.table("t").schema()
    assert [field.required for field in schema.fields] == [True, False, False]
    assert schema.identifier_field_names() == set()


@pytest.mark.full
def test_a_stored_column_that_the_definition_requires_refuses_null(lake: Lake) -> None:
    lake.materialize(frame_asset("t", "select 1 as a, 2 as b"))
    metadata = {"iceberg/required_columns": ["a"]}
    error = lake.failure(frame_asset("t", "select cast(null as int) as a, 3 as b", metadata=metadata))
    assert error.class_name == "NullValueError"
    assert "'a'" in str(error)
    lake.materialize(frame_asset("t", "select 5 as a, 3 as b", metadata=metadata))
    assert lake.rows("t", "a") == [5]
    merge = {
        "iceberg/write_disposition": "merge",
        "iceberg/merge_keys": ["b"],
        "iceberg/merge": {"hard_delete": "gone"},
    }
    batch = "select cast(null as int) as a, 3 as b, {} as gone"
    error = lake.failure(frame_asset("t", batch.format("false"), metadata={**metadata, **merge}))
    assert error.class_name == "NullValueError"
    lake.materialize(frame_asset("t", batch.format("true"), metadata={**metadata, **merge}))
    assert lake.rows("t", "a") == []


@pytest.mark.full
def test_what_the_definition_says_of_an_older_table_is_done(lake: Lake) -> None:
    lake.materialize(
        frame_asset("t", "select 1 as a, 2 as b", metadata={"iceberg/table_properties": {"x": "1", "y": "2"}})
    )
    metadata = {
        "iceberg/table_properties": {"x": None, "y": "3", "never": None},
        "iceberg/sort_by": ["b desc"],
        "iceberg/format_version": 3,
    }
    for _ in range(2):
        result = lake.materialize(frame_asset("t", "select 1 as a, 2 as b", metadata=metadata))
    assert "iceberg/table_changes" not in metadata_of(result, "t")
    table = lake.table("t")
    assert ("x" in table.properties, table.properties["y"]) == (False, "3")
    assert [field.source_id for field in table.sort_order().fields] == [2]
    assert table.metadata.format_version == 3
    lake.materialize(frame_asset("t", "select 1 as a, 2 as b", metadata={"iceberg/sort_by": []}))
    assert lake.table("t").sort_order().fields == []


@pytest.mark.full
def test_options_of_a_new_table_reach_it(lake: Lake) -> None:
    metadata = {
        "iceberg/format_version": 3,
        "iceberg/sort_by": ["b desc nulls last", "a"],
        "iceberg/location": f"file:{lake.directory}/elsewhere",
        "iceberg/write_options": {"target-file-size-bytes": 1_000_000, "isolation-level": "serializable"},
    }
    for value in (0, 1, 2):  # each looks for conflicts with what came after the one before it
        lake.materialize(frame_asset("t", f"select {value} as a, 2 as b", metadata=metadata))
    assert lake.rows("t", "a") == [2]
    table = lake.table("t")
    assert table.metadata.format_version == 3
    assert table.location() == f"file:{lake.directory}/elsewhere"
    assert [str(field.direction) for field in table.sort_order().fields] == ["DESC", "ASC"]


@pytest.mark.full
def test_a_branch_is_written_and_main_stays(lake: Lake) -> None:
    lake.materialize(frame_asset("t", "select 1 as a"))
    lake.materialize(frame_asset("t", "select 2 as a", metadata={"iceberg/branch": "audit"}))
    assert lake.rows("t", "a") == [1]
    table = lake.table("t")
    branch = table.scan(snapshot_id=table.refs()["audit"].snapshot_id)
    assert branch.to_arrow().column("a").to_pylist() == [2]


@pytest.mark.full
def test_a_new_branch_keeps_what_main_has_beside_the_partition(lake: Lake) -> None:
    """The layout does not follow the days: a file holds rows of both, and the new branch starts with it."""
    metadata = {"partition_expr": "day", "iceberg/partition_by": []}
    days = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-04")
    both = "select explode(sequence(date '2024-01-01', date '2024-01-02')) as day, 'main' as v"
    policy = dg.BackfillPolicy.single_run()
    first = frame_asset("t", both, partitions_def=days, metadata=metadata, backfill_policy=policy)
    lake.materialize_range(first, first="2024-01-01", last="2024-01-02")
    branched = {**metadata, "iceberg/branch": "audit"}
    query = "select date '{key}' as day, 'audit' as v"
    lake.materialize(frame_asset("t", query, partitions_def=days, metadata=branched), partition_key="2024-01-02")
    rows = lake.session.sql("select v from lake.db.t.branch_audit order by day").collect()
    assert [row.v for row in rows] == ["main", "audit"]
    assert lake.rows("t", "v") == ["main", "main"]


@pytest.fixture
def case_sensitive_lake(lake: Lake) -> Iterator[Lake]:
    lake.session.conf.set("spark.sql.caseSensitive", "true")
    yield lake
    lake.session.conf.unset("spark.sql.caseSensitive")


@pytest.mark.by_spark
@pytest.mark.full
def test_names_that_differ_in_case_are_two_columns_where_the_session_says_so(case_sensitive_lake: Lake) -> None:
    lake = case_sensitive_lake
    lake.materialize(frame_asset("t", "select 1 as id, 2 as a, named_struct('x', 1) as s"))
    added = frame_asset("t", "select 1 as id, 3 as A, named_struct('X', 2) as s", metadata=MERGE)
    lake.materialize(added)
    assert lake.arrow("t").to_pylist() == [{"id": 1, "a": 2, "s": {"x": 1, "X": 2}, "A": 3}]
    lake.materialize(frame_asset("t", "select 1 as id, 4 as A, 5 as a, named_struct('X', 3) as s"))
    assert lake.arrow("t").to_pylist() == [{"id": 1, "a": 5, "s": {"x": None, "X": 3}, "A": 4}]
    lake.materialize(frame_asset("t", "select 6 as A, 1 as id", metadata=FULL))
    assert lake.arrow("t").to_pylist() == [{"A": 6, "id": 1}]
    error = lake.failure(frame_asset("t", "select 6 as a, 1 as id", metadata={"iceberg/schema_evolution": "strict"}))
    assert "found a difference: the column a of type int, which the table lacks" in str(error)


@pytest.mark.full
def test_a_branch_from_before_a_rename_is_brought_up_to_date_by_an_append(lake: Lake) -> None:
    days = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-04")
    kwargs: dict[str, Any] = {"partition_expr": "day", "iceberg/merge_keys": ["key"], "iceberg/renames": {"id": "key"}}

    def write(column: str, disposition: str, branch: str, where: str = "true") -> dg.AssetsDefinition:
        metadata = {**kwargs, "iceberg/write_disposition": disposition, "iceberg/branch": branch}
        if column == "id":
            del metadata["iceberg/renames"]
        query = f"select date '{{key}}' as day, 1 as {column}, '{branch}' as v where {where}"
        return frame_asset("t", query, partitions_def=days, metadata=metadata)

    lake.materialize(write("id", "replace", "main"), partition_key="2024-01-01")
    lake.materialize(write("id", "replace", "audit"), partition_key="2024-01-02")
    error = lake.failure(write("key", "merge", "audit"), partition_key="2024-01-02")
    assert "found that it would rename column id to key" in str(error)
    lake.materialize(write("key", "replace", "main"), partition_key="2024-01-01")
    error = lake.failure(write("key", "merge", "audit"), partition_key="2024-01-02")
    assert "found one from before the column was renamed" in str(error)
    lake.materialize(write("key", "append", "audit", where="false"), partition_key="2024-01-02")
    lake.materialize(write("key", "merge", "audit"), partition_key="2024-01-01")
    rows = lake.session.sql("select day, key, v from lake.db.t.branch_audit order by day").collect()
    assert [(row.day.day, row.key, row.v) for row in rows] == [(1, 1, "audit"), (2, 1, "audit")]


@pytest.mark.full
def test_a_tag_is_not_written(lake: Lake) -> None:
    lake.materialize(frame_asset("t", "select 1 as a"))
    lake.session.sql("alter table lake.db.t create tag done")
    error = lake.failure(frame_asset("t", "select 2 as a", metadata={"iceberg/branch": "done"}))
    assert "expected a branch 'done' (`iceberg/branch`), found a tag of that name" in str(error)


@pytest.mark.each_engine
@pytest.mark.full
def test_a_name_is_written_in_another_case(lake: Lake) -> None:
    """The path to a field may be written again with its new name."""
    metadata = {"iceberg/write_disposition": "append", "iceberg/renames": {"Amount": "amount", "s.A": "s.a"}}
    lake.materialize(
        frame_asset("t", "select 1 as Amount, named_struct('A', 1) as s", metadata=metadata | {"iceberg/renames": {}})
    )
    ids = [field.field_id for field in lake.table("t").schema().fields]
    for number in (2, 3):
        query = f"select {number} as amount, named_struct('a', {number}) as s"
        lake.materialize(frame_asset("t", query, metadata=metadata))
    schema = lake.table("t").schema()
    assert (schema.column_names, [field.field_id for field in schema.fields]) == (["amount", "s.a", "s"], ids)
    assert lake.arrow("t").sort_by("amount").to_pylist() == [{"amount": n, "s": {"a": n}} for n in (1, 2, 3)]


KEYED = dg.StaticPartitionsDefinition(["a", "b"])
MERGED = {"iceberg/write_disposition": "merge", "iceberg/merge_keys": ["id"]}


@pytest.mark.full
@pytest.mark.since("4.1")
@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"iceberg/write_disposition": "append"},
        MERGED,
        {**MERGED, "iceberg/merge": {"strategy": "delete_insert"}},
        {**MERGED, "iceberg/merge": {"strategy": "scd2"}},
        {"partition_expr": "k", "iceberg/partition_by": []},
    ],
    ids=str,
)
def test_new_rows_have_the_default_of_a_column_that_they_lack(classic_lake: Lake, metadata: dict[str, Any]) -> None:
    """Another engine has added it (Iceberg spec, "Default values"). The last case carries rows over."""
    lake, partitions = classic_lake, KEYED if "partition_expr" in metadata else None
    metadata = {**metadata, "iceberg/format_version": 3}

    def stored(rows: str) -> dg.AssetsDefinition:
        return frame_asset("t", values(rows), metadata=metadata, partitions_def=partitions)

    lake.materialize(stored("('a', 1L)"), partition_key=partitions and "a")
    if partitions:
        lake.session.sql("insert into lake.db.t select /*+ coalesce(1) */ * from values ('a', 7L), ('b', 8L)")
    add_column(lake, "t", "region", "string", "EU")
    for _ in range(2):
        result = lake.materialize(stored("('b', 2L)"), partition_key=partitions and "b")
    assert set(lake.rows("t", "region")) == {"EU"}
    if metadata.get("iceberg/merge") == {"strategy": "delete_insert"}:
        assert metadata_of(result, "t")["iceberg/merge_unchanged_rows"] == 1


@pytest.mark.full
@pytest.mark.parametrize("layout", [["region"], [], ["truncate(1, region)"]], ids=str)
@pytest.mark.parametrize("rules", [{}, {"iceberg/write_disposition": "merge", "iceberg/merge": {"sync": True}}])
def test_rows_belong_to_the_partition_of_their_default(
    classic_lake: Lake, layout: list[str], rules: dict[str, Any]
) -> None:
    lake = classic_lake
    lake.materialize(frame_asset("t", values("('a', 1L), ('b', 2L)"), metadata={"iceberg/format_version": 3}))
    add_column(lake, "t", "region", "string", "EU")
    metadata = {"partition_expr": "region", "iceberg/partition_by": layout, "iceberg/merge_keys": ["id"], **rules}
    for key in ("US", "EU"):
        query = f"select *, '{key}' as region from values ('c', 1L) t(k, id)"
        regions = dg.StaticPartitionsDefinition(["EU", "US"])
        asset = frame_asset("t", query, metadata=metadata, partitions_def=regions)
        lake.materialize(asset, partition_key=key)
        held = sorted((row["k"], row["region"]) for row in lake.arrow("t").to_pylist())
        assert held == ([("a", "EU"), ("b", "EU"), ("c", "US")] if key == "US" else [("c", "EU"), ("c", "US")])


def values(rows: str) -> str:
    return f"select * from values {rows} t(k, id)"
