"""Pending renames: until they are applied, everything uses the table's current names."""

from dataclasses import replace

import pytest

from dagster_iceberg_spark.errors import SchemaMismatchError
from dagster_iceberg_spark.plan.options.output_options import parse_write_options
from dagster_iceberg_spark.plan.schema.renames import StoredNames
from dagster_iceberg_spark.table.schema import ListType, MapType, Schema, StructType, parse_type
from dagster_iceberg_spark.table.scope import Dimension, PartitionScope
from dagster_iceberg_spark.table.updates import RenameColumn
from tests.core.table.samples import schema

STRING = parse_type("string")


def struct(**fields: str) -> StructType:
    return StructType(schema(**fields).fields)


def names(frame: Schema, table: Schema | None, **renames: str) -> StoredNames:
    return StoredNames.of(renames, frame, table, subject="nyc.flights")


def test_a_rename_is_pending_while_the_table_has_the_old_name() -> None:
    assert names(schema(b="int"), schema(a="int"), a="b").changes == (RenameColumn(("a",), "b"),)
    assert names(schema(b="int"), schema(A="int"), a="b").changes == (RenameColumn(("A",), "b"),)
    assert names(schema(b="int"), schema(b="int"), a="b").changes == ()
    assert names(schema(b="int"), None, a="b").changes == ()


def test_a_frame_may_write_the_new_name_in_another_case() -> None:
    found = names(schema(B="int", s=struct(Y="int")), schema(a="int", S=struct(x="int")), a="b", **{"s.x": "y"})
    assert found.of_schema(schema(B="int", s=struct(Y="int"))) == schema(a="int", s=struct(x="int"))
    assert found.column("B") == "a"
    is_exact = replace(schema(B="int"), is_case_sensitive=True)
    with pytest.raises(SchemaMismatchError, match="found neither"):
        names(is_exact, replace(schema(a="int"), is_case_sensitive=True), a="b")


def test_a_rename_may_change_the_case_alone() -> None:
    found = names(schema(amount="int"), schema(Amount="int"), Amount="amount")
    assert found.changes == (RenameColumn(("Amount",), "amount"),)
    assert found.of_schema(schema(amount="int")) == schema(Amount="int")
    assert names(schema(amount="int"), schema(amount="int"), Amount="amount").changes == ()
    with pytest.raises(SchemaMismatchError, match="found the column 'Amount'"):
        names(schema(Amount="int"), schema(Amount="int"), Amount="amount")


@pytest.mark.parametrize(
    ("frame", "table", "found"),
    [
        (schema(c="int"), schema(a="int"), "expected a DataFrame with 'b' in place of 'a' .* found neither"),
        (schema(a="int"), schema(a="int"), "expected a DataFrame with 'b' in place of 'a'"),
        (schema(a="int", b="int"), schema(b="int"), "expected a DataFrame with 'b' in place of 'a'"),
        (schema(b="int"), schema(a="int", b="int"), "expected a table with either 'a' or 'b' .* found both"),
    ],
)
def test_a_rename_is_refused_if_the_table_has_both_names(frame: Schema, table: Schema, found: str) -> None:
    with pytest.raises(SchemaMismatchError, match=found):
        names(frame, table, a="b")


def test_fields_of_structs_lists_and_maps_are_renamed_by_their_path() -> None:
    def columns(*fields: str) -> Schema:
        one, two, three = (struct(**{name: "int"}) for name in fields)
        return schema(s=one, l=ListType(two), m=MapType(STRING, three))

    renames = {"s.x": "new", "l.element.y": "new", "m.value.z": "new"}
    found = names(columns("new", "new", "new"), columns("x", "y", "z"), **renames)
    assert [".".join(item.path) for item in found.changes] == list(renames)
    assert found.of_schema(columns("new", "new", "new")) == columns("x", "y", "z")
    assert found.of_asset(columns("x", "y", "z")) == columns("new", "new", "new")


def test_options_and_scope_use_the_table_s_column_names() -> None:
    found = names(schema(b="int", id="int"), schema(a="int", id="int"), a="b")
    metadata = {
        "iceberg/partition_by": ["bucket(4, b)", "id"],
        "iceberg/merge_keys": ["b", "id"],
        "iceberg/sort_by": ["b desc"],
        "iceberg/required_columns": ["b"],
        "iceberg/identifier_fields": ["b"],
    }
    options = found.of_options(parse_write_options(metadata, subject="t"))
    assert [str(field) for field in options.partition_by or ()] == ["bucket(4, a)", "id"]
    assert options.merge_keys == ("a", "id")
    assert [field.column for field in options.sort_by or ()] == ["a"]
    assert options.required_columns == {"a": True}
    assert options.identifier_fields == ("a",)
    scope = PartitionScope((Dimension(None, "b"),))
    assert found.of_scope(scope).dimensions == (Dimension(None, "a"),)


def test_without_a_pending_rename_nothing_changes() -> None:
    options, scope, frame = parse_write_options({}, subject="t"), PartitionScope(), schema(a="int")
    nothing = StoredNames()
    assert nothing.of_options(options) is options
    assert nothing.of_scope(scope) is scope
    assert nothing.of_schema(frame) is frame
    assert nothing.of_asset(frame) is frame


def test_the_table_may_have_only_one_of_several_former_names() -> None:
    assert names(schema(c="int"), schema(b="int"), a="c", b="c").changes == (RenameColumn(("b",), "c"),)
    with pytest.raises(SchemaMismatchError, match="expected a table with either 'b' or 'a'"):
        names(schema(c="int"), schema(a="int", b="int"), a="c", b="c")
