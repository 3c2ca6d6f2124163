"""What happens when a frame's columns are not the table's."""

import dagster as dg
import pytest

from tests.conftest import Lake, frame_asset, metadata_of

pytestmark = pytest.mark.spark


def test_new_columns_are_added_and_missing_ones_are_null(lake: Lake) -> None:
    append = {"iceberg/write_disposition": "append"}
    lake.materialize(frame_asset("t", "select 1 as a, 2 as b", metadata=append))
    result = lake.materialize(frame_asset("t", "select 3 as a, 'x' as c", metadata=append))
    assert lake.rows("t", "a") == [1, 3]
    assert lake.arrow("t").sort_by("a").to_pylist() == [{"a": 1, "b": 2, "c": None}, {"a": 3, "b": None, "c": "x"}]
    assert metadata_of(result, "t")["iceberg/table_changes"] == ["add column c string"]
    assert len(lake.summaries("t")) == 2


def test_types_widen_where_iceberg_lets_them(lake: Lake) -> None:
    append = {"iceberg/write_disposition": "append"}
    first = "select 1 as i, cast(1.5 as float) as f, cast(1 as decimal(5, 2)) as d"
    second = "select 5000000000 as i, 2.5D as f, cast(2 as decimal(9, 2)) as d"
    for query in (first, second, first):
        lake.materialize(frame_asset("t", query, metadata=append))
    assert [str(field.field_type) for field in lake.table("t").schema().fields] == ["long", "double", "decimal(9, 2)"]
    assert lake.rows("t", "i") == [1, 1, 5_000_000_000]


def test_fields_of_structs_are_added(lake: Lake) -> None:
    append = {"iceberg/write_disposition": "append"}
    lake.materialize(frame_asset("t", "select 1 as id, named_struct('a', 1) as s", metadata=append))
    lake.materialize(frame_asset("t", "select 2 as id, named_struct('a', 1, 'b', 'x') as s", metadata=append))
    assert lake.arrow("t").sort_by("id").column("s").to_pylist() == [{"a": 1, "b": None}, {"a": 1, "b": "x"}]


@pytest.mark.parametrize(
    ("stored", "written", "found"),
    [
        ("1", "5000000000", "long"),
        ("1", "'text'", "string"),
        ("1.5D", "1.5", "decimal"),
        ("timestamp '2013-01-01 00:00:00'", "timestamp_ntz '2013-01-01 00:00:00'", "timestamp"),
        ("date '2013-01-01'", "timestamp '2013-01-01 00:00:00'", "timestamptz"),
        ("cast(1 as decimal(10, 2))", "cast(1 as decimal(10, 3))", "decimal(10, 3)"),
    ],
)
def test_what_would_lose_something_is_refused(lake: Lake, stored: str, written: str, found: str) -> None:
    strict = {"iceberg/schema_evolution": "strict"}
    lake.materialize(frame_asset("t", f"select {stored} as c, 1 as other"))
    error = lake.failure(frame_asset("t", f"select {written} as c, 1 as other", metadata=strict))
    assert error.class_name == "SchemaMismatchError"
    assert found in str(error)
    assert not error.allow_retries
    assert len(lake.summaries("t")) == 1


def test_strict_refuses_a_new_column_and_changes_nothing(lake: Lake) -> None:
    strict = lake.with_options(schema_evolution="strict")
    strict.materialize(frame_asset("t", "select 1 as a"))
    error = strict.failure(frame_asset("t", "select 1 as a, 2 as b"))
    assert "add column b" in str(error)
    assert [field.name for field in lake.table("t").schema().fields] == ["a"]


@pytest.mark.parametrize(
    "query",
    [
        "select 1 as a, 2 as A",
        "select make_dt_interval(1) as a",
        "select parse_json('1') as a",
        "select null as a",
    ],
    ids=["case", "interval", "variant", "void"],
)
def test_a_frame_that_no_table_can_hold_creates_none(lake: Lake, query: str) -> None:
    assert lake.failure(frame_asset("t", query)).class_name == "SchemaMismatchError"
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


def test_options_of_a_new_table_reach_it(lake: Lake) -> None:
    metadata = {
        "iceberg/format_version": 3,
        "iceberg/sort_by": ["b desc nulls last", "a"],
        "iceberg/location": f"file:{lake.directory}/elsewhere",
        "iceberg/write_options": {"target-file-size-bytes": 1_000_000},
    }
    lake.materialize(frame_asset("t", "select 1 as a, 2 as b", metadata=metadata))
    table = lake.table("t")
    assert table.metadata.format_version == 3
    assert table.location() == f"file:{lake.directory}/elsewhere"
    assert [str(field.direction) for field in table.sort_order().fields] == ["DESC", "ASC"]


def test_a_branch_is_written_and_main_stays(lake: Lake) -> None:
    lake.materialize(frame_asset("t", "select 1 as a"))
    lake.materialize(frame_asset("t", "select 2 as a", metadata={"iceberg/branch": "audit"}))
    assert lake.rows("t", "a") == [1]
    table = lake.table("t")
    branch = table.scan(snapshot_id=table.refs()["audit"].snapshot_id)
    assert branch.to_arrow().column("a").to_pylist() == [2]
