"""The table's definition compared with the existing table."""

import re
from dataclasses import replace
from typing import Any

import pytest

from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.plan.options.output_options import WriteOptions, parse_write_options
from dagster_iceberg_spark.plan.write.definition import (
    ACCEPT_ANY_SCHEMA,
    WAP_SETTINGS,
    check_columns,
    check_marker,
    check_place,
    check_validity,
    identifier_changes,
    is_switched_on,
    order_changes,
    property_changes,
    protected_columns,
    refuse_any_schema,
    refuse_staging,
    required_by_definition,
    stored_columns,
)
from dagster_iceberg_spark.plan.write.write_request import TableRequest
from dagster_iceberg_spark.table.partitioning import SortField
from dagster_iceberg_spark.table.schema import Schema
from dagster_iceberg_spark.table.updates import RemoveProperties, SetIdentifierFields, SetProperties, SetSortOrder
from tests.core.table.samples import TABLE, schema, snapshot, spec, table

FRAME = schema(id="long", at="timestamptz", gone="boolean", v="int")
STORED = schema(id="long!", at="timestamptz", v="int")
MERGE = {"write_disposition": "merge", "merge_keys": ["id"]}


def options(**given: Any) -> WriteOptions:
    return parse_write_options({f"iceberg/{name}": value for name, value in given.items()}, subject="a")


def test_different_properties_are_set_and_none_removes_them() -> None:
    asked = TableRequest(
        TABLE,
        "nyc/flights",
        is_named_explicitly=False,
        options=options(table_properties={"a": "1", "b": "2", "c": None, "d": None}, format_version=3),
    )
    state = table(STORED, properties={"dagster.asset_key": "nyc/flights", "b": "2", "c": "3"})
    assert list(property_changes(asked, state)) == [
        SetProperties({"format-version": "3", "a": "1"}),
        RemoveProperties(("c",)),
    ]
    assert list(property_changes(asked, replace(state, properties={"b": "2", "a": "1"}, format_version=3))) == [
        SetProperties({"dagster.asset_key": "nyc/flights"})
    ]


@pytest.mark.parametrize(
    ("stored", "wanted", "expected"),
    [
        (None, {}, False),
        ({"p": "true"}, {}, True),
        ({"p": "TRUE"}, {}, True),
        ({"p": "true"}, {"p": "false"}, False),
        ({"p": "true"}, {"p": None}, False),
        ({}, {"p": True}, True),
    ],
)
def test_a_switch_has_the_value_that_the_write_will_set(
    stored: dict[str, str] | None, wanted: dict[str, Any], expected: bool
) -> None:
    state = None if stored is None else table(STORED, properties=stored)
    assert is_switched_on("p", options(table_properties=wanted), state) == expected


def test_a_table_that_accepts_any_schema_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="under which Spark checks neither columns nor NULL"):
        refuse_any_schema(options(), table(STORED, properties={ACCEPT_ANY_SCHEMA: "true"}), subject="t")


@pytest.mark.parametrize("name", WAP_SETTINGS)
def test_a_session_with_wap_settings_is_refused(name: str) -> None:
    refuse_staging(dict.fromkeys(WAP_SETTINGS), subject="t")
    with pytest.raises(ConfigurationError, match=f"expected a session without `{re.escape(name)}`, .* found 'audit'"):
        refuse_staging({name: "audit"}, subject="t")


@pytest.mark.parametrize(
    ("wanted", "stored", "changed"),
    [
        (None, (SortField("v"),), None),
        (["V"], (SortField("v"),), None),
        (["v"], (SortField("v", "asc", "first"),), None),
        (["v desc"], (SortField("v"),), (SortField("v", "desc"),)),
        ([], (SortField("v"),), ()),
    ],
)
def test_a_different_sort_order_is_set(wanted: Any, stored: tuple[SortField, ...], changed: Any) -> None:
    state = replace(table(replace(STORED, is_case_sensitive=False), specs=[spec("day(at)")]), sort_order=stored)
    asked = options() if wanted is None else options(sort_by=wanted)
    expected = [] if changed is None else [SetSortOrder(changed, is_partitioned=True)]
    assert list(order_changes(asked, state)) == expected


def test_identifier_fields_are_required_columns_of_the_table() -> None:
    state = table(STORED)
    assert list(identifier_changes(options(), state, subject="t")) == []
    assert list(identifier_changes(options(identifier_fields=["id"]), state, subject="t")) == [
        SetIdentifierFields(("id",), ())
    ]
    assert (
        list(
            identifier_changes(
                options(identifier_fields=["id"]), replace(state, identifier_fields=("id",)), subject="t"
            )
        )
        == []
    )
    for name, found in {"v": "may hold NULL", "no": "it lacks"}.items():
        with pytest.raises(ConfigurationError, match=f"`iceberg/identifier_fields`, found {name!r}, which {found}"):
            list(identifier_changes(options(identifier_fields=[name]), state, subject="t"))


def test_columns_used_by_the_layout_are_protected() -> None:
    state = replace(
        table(STORED, specs=[spec("day(at)"), spec("bucket(4, id)", spec_id=1)]), sort_order=(SortField("v"),)
    )
    assert protected_columns(options(identifier_fields=["id"]), None, state) == {
        "at": "by which older files of the table are partitioned",
        "id": "by which the table is partitioned",
        "v": "by which the table's files are sorted",
    }


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"format_version": 1}, "a table of format version 1 (`iceberg/format_version`), found version 2"),
        (
            {"location": "s3://elsewhere"},
            "a table at s3://elsewhere (`iceberg/location`), found one at file:///lake/nyc/flights",
        ),
        ({"branch": "v1"}, "a branch 'v1' (`iceberg/branch`), found a tag of that name"),
    ],
)
def test_another_location_or_an_older_format_is_refused(asked: dict[str, Any], found: str) -> None:
    state = table(STORED, snapshots=[snapshot(7)], refs={"main": 7, "v1": 7})
    check_place(options(location="file:/lake/nyc/flights/", format_version=2), state, subject="t")
    with pytest.raises(ConfigurationError, match=re.escape(f"Cannot write t: expected {found}")):
        check_place(options(**asked), state, subject="t")


def test_a_merge_stores_validity_columns_but_not_marker_columns() -> None:
    rules = {"strategy": "scd2", "is_current": "now", "hard_delete": "gone"}
    assert stored_columns(options(**MERGE, merge=rules), FRAME).names == (
        "id",
        "at",
        "v",
        "valid_from",
        "valid_to",
        "now",
    )
    assert stored_columns(options(), FRAME) == FRAME


@pytest.mark.parametrize(
    ("column", "kind", "expected"),
    [
        ("valid_from", "timestamptz", None),
        ("valid_from", "string", "a timestamp in 'valid_from'"),
        ("valid_to", "timestamptz", "a DataFrame without the column 'valid_to'"),
        ("now", "timestamptz", "a DataFrame without the column 'now'"),
    ],
)
def test_a_frame_may_not_contain_columns_that_the_merge_fills(column: str, kind: str, expected: str | None) -> None:
    asked = options(**MERGE, merge={"strategy": "scd2", "is_current": "now"})
    frame = Schema((*FRAME, *schema(**{column: kind})))
    if expected is None:
        check_validity(asked, frame, subject="t")
        return
    with pytest.raises(
        ConfigurationError, match=f"Cannot merge into t: expected {expected}, .* found one of type {kind}"
    ):
        check_validity(asked, frame, subject="t")


@pytest.mark.parametrize(
    ("needed", "key"),
    [
        ({"merge_keys": ["gone"]}, "iceberg/merge_keys"),
        ({"sort_by": ["gone desc"]}, "iceberg/sort_by"),
        ({"partition_by": ["gone"]}, "iceberg/partition_by"),
        ({"required_columns": ["gone"]}, "iceberg/required_columns"),
        ({"merge": {"hard_delete": "gone", "update_columns": ["Gone"]}}, "iceberg/merge: update_columns"),
    ],
)
def test_a_marker_column_cannot_have_another_use(needed: dict[str, Any], key: str) -> None:
    asked = options(**{**MERGE, "merge": {"hard_delete": "gone"}, **needed})
    with pytest.raises(
        ConfigurationError, match=f"`hard_delete` of `iceberg/merge` .* found 'gone', which `{key}` names"
    ):
        check_marker(asked, (), FRAME, subject="t")


@pytest.mark.parametrize("asked", [{"required_columns": ["id", "v"]}, {"identifier_fields": ["id", "v"]}], ids=str)
def test_required_columns_of_the_definition_apply_to_an_existing_table(asked: dict[str, Any]) -> None:
    assert required_by_definition(options(**asked), FRAME, table(STORED)) == ("v",)
    assert required_by_definition(options(**asked), FRAME, None) == ()


@pytest.mark.parametrize(
    ("named", "key"),
    [
        ({"identifier_fields": ["no"]}, "identifier_fields"),
        ({"required_columns": ["no"]}, "required_columns"),
        ({"sort_by": ["no"]}, "sort_by"),
        ({**MERGE, "merge_keys": ["no"]}, "merge_keys"),
        ({**MERGE, "merge": {"hard_delete": "no"}}, "merge: hard_delete"),
        ({**MERGE, "merge": {"dedup_sort": "no desc"}}, "merge: dedup_sort"),
        ({**MERGE, "merge": {"update_columns": ["no"]}}, "merge: update_columns"),
    ],
)
def test_a_column_in_neither_frame_nor_table_is_named(named: dict[str, Any], key: str) -> None:
    found = f"the column 'no' of `iceberg/{key}`, found a DataFrame with the columns id, at, gone, v"
    with pytest.raises(ConfigurationError, match=found):
        check_columns(options(**named), FRAME, table(STORED), subject="t")
