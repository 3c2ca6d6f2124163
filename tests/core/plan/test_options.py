"""Metadata and configuration, parsed once, with one precedence."""

import re
from typing import Any, get_args

import pytest

from dagster_iceberg_spark.errors import MetadataKeyError
from dagster_iceberg_spark.metadata import metadata_for_table
from dagster_iceberg_spark.plan.options import output_options as module
from dagster_iceberg_spark.plan.options.metadata_key import read_metadata
from dagster_iceberg_spark.plan.options.output_options import (
    WRITE_OPTION_NAMES,
    TableAddress,
    WriteDisposition,
    WriteOptions,
    addressing_keys,
    check_keys,
    output_keys,
    parse_write_options,
    result_keys,
)
from dagster_iceberg_spark.plan.write.merging import MergeRules, MergeStrategy
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.partitioning import SortField, parse_partition_field

PRECEDENCE = {
    "write_disposition": ("append", "replace", "merge", "replace"),
    "schema_evolution": ("strict", "add_columns", "strict", "add_columns"),
    "partition_evolution": ("error", "evolve", "error", "evolve"),
    "rows_outside_partition": ("drop", "error", "drop", "error"),
    "engine": ("arrow", "spark", "arrow", "auto"),
    "publish": ("release", "step", "release", "step"),
    "on_failure": ("drop", "keep", "drop", "keep"),
    "table_properties": ({"a": "run"}, {"a": "definition"}, {"a": "config"}, {}),
    "write_options": ({"write-format": "orc"}, {"write-format": "avro"}, {"write-format": "parquet"}, {}),
}
"""Each option of the IO manager, with the values of run, definition, configuration and default."""
MERGE_KEYS = {"iceberg/merge_keys": ["id"]}
_PREFIXED = {name for name in output_keys() if name.startswith("iceberg/")}


def parsed(definition: dict[str, Any], run: dict[str, Any] | None = None, **configuration: Any) -> WriteOptions:
    return parse_write_options({**MERGE_KEYS, **definition}, run, configuration, subject="nyc/flights")


@pytest.mark.parametrize("option", PRECEDENCE)
@pytest.mark.parametrize("first", range(4))
def test_run_overrides_definition_overrides_configuration_overrides_default(option: str, first: int) -> None:
    levels = PRECEDENCE[option]
    key = f"iceberg/{option}"
    run = {key: levels[0]} if first <= 0 else {}
    definition = {key: levels[1]} if first <= 1 else {}
    configuration = {option: levels[2]} if first <= 2 else {}
    assert getattr(parsed(definition, run, **configuration), option) == levels[first]


@pytest.mark.parametrize("option", PRECEDENCE)
def test_none_leaves_the_option_to_the_next_level(option: str) -> None:
    key, (_, definition, configured, _) = f"iceberg/{option}", PRECEDENCE[option]
    configuration: dict[str, Any] = {option: configured}
    assert getattr(parsed({key: definition}, {key: None}), option) == definition
    assert getattr(parsed({key: None}, **configuration), option) == configured


def test_every_option_of_the_configuration_is_in_the_table_of_precedence() -> None:
    assert {key.option for key in output_keys().values() if key.is_configurable} == set(PRECEDENCE)


def test_without_metadata_every_option_has_its_default() -> None:
    assert parse_write_options({}, subject="a") == WriteOptions()


def test_every_key_is_parsed() -> None:
    options = parsed(
        {
            "iceberg/partition_by": ["day(ts)", "bucket(8, id) as shard"],
            "iceberg/write_disposition": "merge",
            "iceberg/merge_keys": ("id", "day"),
            "iceberg/sort_by": ["ts desc nulls last", "`a b`", "id ASC", "c NULLS FIRST"],
            "iceberg/table_properties": {"write.parquet.compression-level": 3, "write.wap.enabled": True},
            "iceberg/write_options": {"target-file-size-bytes": 1024, "snapshot-property.team": "data"},
            "iceberg/format_version": "3",
            "iceberg/location": "s3://lake/t",
            "iceberg/branch": "audit",
        }
    )
    assert options.partition_by == (parse_partition_field("day(ts)"), parse_partition_field("bucket(8, id) as shard"))
    assert options.merge_keys == ("id", "day")
    assert options.sort_by == (
        SortField("ts", "desc", "last"), SortField("a b"), SortField("id"), SortField("c", "asc", "first"),
    )  # fmt: skip
    assert options.table_properties == {"write.parquet.compression-level": "3", "write.wap.enabled": "true"}
    assert options.write_options == {"target-file-size-bytes": "1024", "snapshot-property.team": "data"}
    assert (options.format_version, options.location, options.branch) == (3, "s3://lake/t", "audit")


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({}, None),
        ({"iceberg/partition_by": None}, None),
        ({"iceberg/partition_by": []}, ()),
        ({"iceberg/partition_by": "c"}, 1),
    ],
)
def test_no_partition_by_is_not_the_same_as_an_empty_one(metadata: dict[str, Any], expected: Any) -> None:
    found = parsed(metadata).partition_by
    assert found == expected if expected != 1 else found == (parse_partition_field("c"),)


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("iceberg/partition_bye", "did you mean `iceberg/partition_by`?"),
        ("iceberg/qqqq", "the keys are iceberg/table"),
        ("iceberg/Write_disposition", "did you mean `iceberg/write_disposition`?"),
        ("iceberg/merge_key", "did you mean `iceberg/merge_keys`?"),
        ("iceberg/", "Hint: "),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_known_one(key: str, nearest: str) -> None:
    for metadata in ({key: "x"}, {}):
        run = {} if metadata else {key: "x"}
        with pytest.raises(MetadataKeyError, match=re.escape(f"found `{key}`")) as caught:
            parse_write_options(metadata, run, subject="nyc/flights")
        assert nearest in str(caught.value)


def test_foreign_keys_and_reported_keys_are_ignored() -> None:
    check_keys(
        {"dagster/uri": 1, "owner": "me", "iceberg": 2, **dict.fromkeys(result_keys()), **dict.fromkeys(output_keys())},
        subject="a",
    )


@pytest.mark.parametrize(
    ("key", "value", "found"),
    [
        ("iceberg/partition_by", 3, "found 3, which is not a list"),
        ("iceberg/partition_by", ["day(ts)", 3], "found 3."),
        ("iceberg/partition_by", ["dayz(ts)"], "found unknown transform 'dayz'. Hint: did you mean 'day"),
        (
            "iceberg/partition_by",
            ["bucket(id)"],
            "expected a number of buckets and a column in bucket(n, column), found bucket(id).",
        ),
        (
            "iceberg/write_disposition",
            "overwrite",
            "expected one of replace, append, merge, overwrite_partitions, found 'overwrite'",
        ),
        ("iceberg/write_disposition", "apend", "Hint: did you mean 'append'?"),
        ("iceberg/merge_keys", {"id": 1}, "which is not a list"),
        ("iceberg/merge_keys", [""], "found ''"),
        ("iceberg/merge", {"strategy": "upsurt"}, "for `strategy`, found 'upsurt'. Hint: did you mean 'upsert'?"),
        (
            "iceberg/merge",
            "scd",
            "insert_only, delete_insert, scd2, replace_where for `strategy`, found 'scd'. Hint: did you mean 'scd2'?",
        ),
        ("iceberg/merge", {"hard_deletes": "gone"}, "found 'hard_deletes'. Hint: did you mean 'hard_delete'?"),
        ("iceberg/merge", ["upsert"], "expected a dict of options, or the name of a strategy, found ['upsert']"),
        ("iceberg/merge", {"null_keys": "ignore"}, "expected one of error, match for `null_keys`, found 'ignore'"),
        ("iceberg/merge", {"dedup_sort": ["v"]}, "expected `column`, `column asc` or `column desc` for `dedup_sort`"),
        ("iceberg/merge", {"hard_delete": 3}, "expected the name of a column for `hard_delete`, found 3"),
        ("iceberg/merge", {"update_columns": 3}, "expected a list of columns for `update_columns`, found 3"),
        ("iceberg/merge", {"exclude_columns": [3]}, "expected a list of columns for `exclude_columns`, found 3"),
        ("iceberg/merge", {"when_matched": True}, "SQL over `source` and `target` for `when_matched`, found True"),
        ("iceberg/merge", {"sync": "yes"}, "expected true or false for `sync`, found 'yes'"),
        ("iceberg/merge", {"strategy": "scd2", "boundary": "2024-01-31"}, "which has no zone"),
        ("iceberg/merge", {"strategy": "scd2", "retire": "some"}, "one of never, partitions, all for `retire`"),
        ("iceberg/merge", {"strategy": "scd2", "valid_from": ""}, "the name of a column for `valid_from`"),
        ("iceberg/merge", {"strategy": "scd2", "valid_to": "Valid_From"}, "a column of its own for each"),
        ("iceberg/merge", {"strategy": "scd2", "sync": True}, "`sync` with the strategy 'upsert' alone"),
        ("iceberg/merge", {"retire": "all"}, "`retire` with the strategy 'scd2' alone, found 'upsert'"),
        ("iceberg/merge", {"update_columns": ["a"], "exclude_columns": ["b"]}, "found both"),
        ("iceberg/merge", {"strategy": "insert_only", "sync": True}, "`sync` with the strategy 'upsert' alone"),
        ("iceberg/merge", {"strategy": "insert_only", "hard_delete": "gone"}, "with a strategy that deletes"),
        ("iceberg/schema_evolution", "stict", "did you mean 'strict'?"),
        ("iceberg/partition_evolution", True, "expected one of evolve, error, found True"),
        ("iceberg/rows_outside_partition", "ignore", "expected one of error, drop, found 'ignore'"),
        ("iceberg/engine", "duckdb", "expected one of auto, arrow, spark, found 'duckdb'"),
        ("iceberg/renames", ["a"], "found ['a'], which is not a dict"),
        ("iceberg/renames", {"a": "b", "b": "a"}, "found renames that lead back to 'a'"),
        ("iceberg/renames", {"a": "a"}, "found renames that lead back to 'a'"),
        ("iceberg/renames", {"s.a": "t.b"}, "found 't.b', which is elsewhere than 's.a'"),
        ("iceberg/renames", {"a": "b.c"}, "found 'b.c', which is elsewhere than 'a' (a name with a dot needs"),
        ("iceberg/required_columns", {"a": "yes"}, "whose values are not true or false"),
        ("iceberg/required_columns", 3, "found 3, which is not a list"),
        ("iceberg/columns", ["id"], "found ['id'], which is not a dict"),
        ("iceberg/columns", {"id": "number"}, "found 'number' for 'id'"),
        ("iceberg/contract", 3, "found 3"),
        ("iceberg/requires", "orders", "expected a contract and its versions, such as `orders >= 2`, found 'orders'"),
        ("iceberg/identifier_fields", [""], "found ''"),
        ("iceberg/sort_by", ["`a`.`b`"], "`iceberg/sort_by` of nyc/flights"),
        ("iceberg/sort_by", [" "], "`iceberg/sort_by` of nyc/flights"),
        ("iceberg/table_properties", ["a"], "found ['a'], which is not a dict"),
        ("iceberg/table_properties", {1: "a"}, "found 1."),
        ("iceberg/table_properties", {"owner": "me"}, "found the table property 'owner': Spark reserves it"),
        ("iceberg/table_properties", {"dagster.asset_key": "me"}, "'dagster.asset_key': this package sets it"),
        ("iceberg/table_properties", {"location": None}, "'location': use `iceberg/location`"),
        ("iceberg/table_properties", {"sort-order": "a"}, "'sort-order': use `iceberg/sort_by`"),
        ("iceberg/table_properties", {"current-snapshot-id": 1}, "'current-snapshot-id': Iceberg sets it"),
        ("iceberg/write_options", {"target-file-size": "1"}, "did you mean 'target-file-size-bytes'?"),
        ("iceberg/write_options", {"branch": "x"}, "found the write option 'branch'"),
        ("iceberg/write_options", {"snapshot-property.dagster.run_id": "x"}, "which the package writes itself"),
        ("iceberg/write_options", {"snapshot-property.Dagster.Run_Id": "x"}, "which the package writes itself"),
        ("iceberg/format_version", 4, "expected 1, 2 or 3"),
        ("iceberg/format_version", "two", "expected 1, 2 or 3"),
        ("iceberg/location", "", "found ''"),
        ("iceberg/branch", 3, "found 3"),
        ("iceberg/takes_over", ["old", "key"], "found ['old', 'key']"),
        ("iceberg/readers", ["hive"], "found 'hive'"),
        ("iceberg/concurrent_writes", "queue", "expected one of last_wins, first_wins, wait, found 'queue'"),
        ("iceberg/unread_types", 3, "found 3"),
        ("iceberg/defaults", {"a": [1]}, "expected a text, a number or a boolean for 'a', found [1]"),
        ("iceberg/audits", ["count(*) > 0"], "found ['count(*) > 0'], which is not a dict"),
        ("iceberg/audits", {"not empty": "count(*) > 0"}, "found the name 'not empty': Dagster allows letters"),
        (
            "iceberg/audits",
            {"a": {"conditon": "x > 0"}},
            "one of the options condition, unique, not_null, severity in 'a', found 'conditon'. Hint: did",
        ),
        (
            "iceberg/audits",
            {"a": {"severity": "warn"}},
            "expected one of condition, unique, not_null in 'a', found none",
        ),
        ("iceberg/audits", {"a": {"unique": "id", "not_null": "id"}}, "found unique and not_null"),
        ("iceberg/audits", {"a": {"unique": []}}, "found no columns in 'a'"),
        (
            "iceberg/audits",
            {"a": {"condition": "x > 0", "severity": "error!"}},
            "one of error, warn for `severity` in 'a'",
        ),
        ("iceberg/audits", {"a": " "}, "found ''"),
        ("iceberg/publish", "run", "expected one of step, release, found 'run'"),
        ("iceberg/maintenance", {"older_then": "1 day"}, "found 'older_then'. Hint: did you mean 'older_than'?"),
        ("iceberg/min_file_size", "16", "expected a size, such as `512 kB` or `16 MB`, found '16'"),
        ("iceberg/retain", "forever", "expected a duration, such as `12 hours` or `7 days`, found 'forever'"),
        ("iceberg/mirror", {"mode": "registr"}, "found 'registr'. Hint: did you mean 'register'?"),
        ("iceberg/mirror", {"compression": "brotli"}, "one of snappy, zstd, gzip, none for `compression`"),
        ("iceberg/mirror", {"tabel": "a.b"}, "expected one of the options table, mode, compression, found 'tabel'"),
        ("iceberg/mirror", {"table": "flights"}, "expected `namespace.table` for `table`, found 'flights'"),
        ("iceberg/mirror", "view", "expected a dict of settings, or false, found 'view'"),
        ("iceberg/on_failure", True, "expected one of keep, drop, found True"),
    ],
)
def test_an_invalid_value_is_refused_with_the_key_s_name(key: str, value: Any, found: str) -> None:
    with pytest.raises(MetadataKeyError) as caught:
        parsed({key: value})
    assert f"`{key}` of nyc/flights" in str(caught.value)
    assert found in str(caught.value)


def test_every_output_key_has_a_test_of_an_invalid_value() -> None:
    cases = next(m for m in test_an_invalid_value_is_refused_with_the_key_s_name.pytestmark if m.name == "parametrize")
    assert {key for key, *_ in cases.args[1]} == _PREFIXED - {"iceberg/table"}


@pytest.mark.parametrize("value", ["flights", "", "a..b", 3, ["a", "b"]])
def test_a_table_needs_a_namespace_and_a_name(value: Any) -> None:
    with pytest.raises(MetadataKeyError, match=r"^Cannot use `iceberg/table` of a: expected "):
        read_metadata(TableAddress, {"iceberg/table": value}, subject="a")


def test_addresses_are_read_from_the_definition() -> None:
    metadata = {"iceberg/table": "a.`b.c`", "schema": "x.y", "partition_expr": {"day": "ts", "carrier": "c"}}
    address = read_metadata(TableAddress, metadata, subject="a")
    assert address.table == TableIdentifier(("a",), "b.c")
    assert address.namespace == ("x", "y")
    assert address.partition_expr == {"day": "ts", "carrier": "c"}
    assert read_metadata(TableAddress, {"partition_expr": "ts"}, subject="a").partition_expr == "ts"


def test_a_missing_address_is_none() -> None:
    assert read_metadata(TableAddress, {}, subject="a") == TableAddress()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("schema", "a..b"),
        ("schema", 3),
        ("partition_expr", ["ts"]),
        ("partition_expr", {"day": None}),
        ("partition_expr", ""),
    ],
)
def test_an_invalid_address_is_refused(key: str, value: Any) -> None:
    with pytest.raises(MetadataKeyError, match=f"Cannot use `{key}` of a: expected"):
        read_metadata(TableAddress, {key: value}, subject="a")


@pytest.mark.parametrize("key", addressing_keys())
def test_run_metadata_cannot_change_the_table_s_address(key: str) -> None:
    with pytest.raises(MetadataKeyError, match=f"expected `{key}` in the asset's definition only"):
        parsed({}, {key: text_of(key, "a.b")})
    with pytest.raises(MetadataKeyError, match=f"`{key}`"):
        parsed({key: text_of(key, "a.b")}, {key: text_of(key, "a.c")})


@pytest.mark.parametrize("key", addressing_keys())
def test_run_metadata_may_repeat_the_definition(key: str) -> None:
    assert parsed({key: text_of(key, "a.b")}, {key: text_of(key, "a.b")}) == parsed({key: text_of(key, "a.b")})


def test_a_merge_needs_keys() -> None:
    with pytest.raises(
        MetadataKeyError, match="expected the columns that identify a row in `iceberg/merge_keys`, found none"
    ):
        parse_write_options({}, {"iceberg/write_disposition": "merge"}, subject="a")


@pytest.mark.parametrize("strategy", sorted({*get_args(MergeStrategy)} - {"replace_where"}))
def test_a_strategy_can_be_given_by_its_name_alone(strategy: str) -> None:
    assert parsed({"iceberg/merge": strategy}).merge == MergeRules(strategy=strategy)  # type: ignore[arg-type]


def test_replace_where_needs_no_keys() -> None:
    options = parse_write_options(
        {"iceberg/write_disposition": "merge", "iceberg/merge": {"strategy": "replace_where", "where": "v > 1"}},
        subject="nyc/flights",
    )
    assert (options.merges, options.merge.where, options.merge_keys) == (False, "v > 1", ())


@pytest.mark.parametrize(
    ("rules", "found"),
    [
        ("replace_where", "expected the strategy 'replace_where' together with `where`"),
        ({"where": "v > 1"}, "expected the strategy 'replace_where' together with `where`"),
        ({"strategy": "replace_where", "where": ""}, "expected a condition in SQL for `where`"),
        ({"strategy": "replace_where", "where": "v > 1", "null_keys": "match"}, "found `null_keys`"),
    ],
)
def test_replace_where_excludes_other_merge_options(rules: Any, found: str) -> None:
    with pytest.raises(MetadataKeyError) as caught:
        parsed({"iceberg/merge": rules})
    assert found in str(caught.value)


def test_a_disabled_merge_option_is_compatible_with_every_strategy() -> None:
    off = {"strategy": "insert_only", "sync": False, "hard_delete": None, "update_columns": None}
    assert parsed({"iceberg/merge": off}).merge == MergeRules(strategy="insert_only")


@pytest.mark.parametrize("name", sorted(WRITE_OPTION_NAMES))
def test_every_write_option_of_iceberg_is_passed_on(name: str) -> None:
    assert parsed({"iceberg/write_options": {name: False}}).write_options == {name: "false"}


@pytest.mark.parametrize("disposition", get_args(WriteDisposition))
def test_every_disposition_is_accepted(disposition: str) -> None:
    assert parsed({"iceberg/write_disposition": disposition}).write_disposition == disposition


FULL = {
    "partition_expr": {"day": "ts"},
    "schema": "nyc",
    "iceberg/table": "nyc.flights",
    "iceberg/partition_by": ["day(ts)"],
    "iceberg/write_disposition": "merge",
    "iceberg/merge_keys": ["id"],
    "iceberg/merge": {"strategy": "upsert", "null_keys": "match", "dedup_sort": "v desc", "sync": True},
    "iceberg/schema_evolution": "strict",
    "iceberg/partition_evolution": "error",
    "iceberg/rows_outside_partition": "drop",
    "iceberg/engine": "arrow",
    "iceberg/renames": {"a": "b"},
    "iceberg/required_columns": ["id"],
    "iceberg/columns": {"id": "long"},
    "iceberg/contract": "orders.odcs.yaml",
    "iceberg/requires": ["orders >= 2"],
    "iceberg/identifier_fields": ["id"],
    "iceberg/sort_by": ["id desc"],
    "iceberg/table_properties": {"a": "b", "c": None},
    "iceberg/write_options": {"write-format": "orc"},
    "iceberg/format_version": 3,
    "iceberg/location": "s3://lake/t",
    "iceberg/branch": "audit",
    "iceberg/publish": "release",
    "iceberg/on_failure": "drop",
    "iceberg/audits": {"some": "count(*) > 0", "key": {"unique": ["id"], "severity": "warn"}},
    "iceberg/takes_over": "old/flights",
    "iceberg/readers": ["spark", "trino"],
    "iceberg/concurrent_writes": "first_wins",
    "iceberg/unread_types": ["variant"],
    "iceberg/defaults": {"region": "EU"},
    "iceberg/maintenance": {"older_than": "30 days"},
    "iceberg/retain": "400 days",
    "iceberg/min_file_size": "16 MB",
    "iceberg/mirror": {"table": "analytics.flights", "mode": "register"},
}


def text_of(key: str, text: str) -> Any:
    """A value of a key that locates rows or names their owner."""
    return {"table": text} if key == "iceberg/mirror" else text


def arguments(metadata: dict[str, Any]) -> dict[str, Any]:
    return {key.removeprefix("iceberg/"): value for key, value in metadata.items()}


def test_the_typed_helper_builds_the_same_dict_as_by_hand() -> None:
    assert metadata_for_table(**arguments(FULL)) == FULL
    assert set(FULL) == set(output_keys())


@pytest.mark.parametrize("key", FULL)
def test_the_typed_helper_omits_options_that_are_not_given(key: str) -> None:
    if key != "iceberg/write_disposition":
        assert metadata_for_table(**arguments({key: FULL[key]})) == {key: FULL[key]}


def test_the_typed_helper_copies_its_arguments() -> None:
    given = {"partition_by": ("day(ts)",), "table_properties": {"a": "b"}}
    metadata = metadata_for_table(**given)  # type: ignore[arg-type]
    given["table_properties"]["a"] = "changed"  # type: ignore[index]
    assert metadata == {"iceberg/partition_by": ["day(ts)"], "iceberg/table_properties": {"a": "b"}}


@pytest.mark.parametrize(
    "bad",
    [
        {"partition_expr": ["ts"]},
        {"schema": ""},
        {"table": "flights"},
        {"partition_by": ["nope(ts)"]},
        {"write_disposition": "merge"},
        {"sort_by": [3]},
        {"format_version": 9},
    ],
    ids=str,
)
def test_the_typed_helper_refuses_invalid_values(bad: dict[str, Any]) -> None:
    with pytest.raises(MetadataKeyError, match="Cannot "):
        metadata_for_table(**bad)


def test_every_key_constant_is_a_known_key() -> None:
    constants = {value for name, value in vars(module).items() if name.isupper() and isinstance(value, str)}
    assert {value for value in constants if value.startswith("iceberg/") and value != "iceberg/"} <= _PREFIXED


def test_renames_may_list_several_former_names() -> None:
    given = {"a": "b", "b": "c", "x": "c", "s.a": "b", "t.a": "b"}
    options = parse_write_options({"iceberg/renames": given}, subject="a")
    assert options.renames == {"a": "c", "b": "c", "x": "c", "s.a": "b", "t.a": "b"}
    options = parse_write_options({"iceberg/renames": {"s.a": "s.b", "t.`x.y`": "`z.w`"}}, subject="a")
    assert options.renames == {"s.a": "b", "t.`x.y`": "z.w"}


@pytest.mark.parametrize(
    ("given", "version"),
    [
        ({"iceberg/table_properties": {"format-version": "2", "a": "b"}}, 2),
        ({"iceberg/table_properties": {"format-version": "2", "a": "b"}, "iceberg/format_version": 3}, 3),
        ({"iceberg/table_properties": {"format-version": None, "a": "b"}}, None),
    ],
)
def test_the_format_version_is_not_kept_as_a_table_property(given: dict[str, Any], version: int | None) -> None:
    """As a property it would be set again in every run."""
    options = parse_write_options(given, subject="nyc.flights")
    assert (options.format_version, options.table_properties) == (version, {"a": "b"})


@pytest.mark.parametrize("key", addressing_keys())
def test_none_in_run_metadata_keeps_the_definition_s_value(key: str) -> None:
    assert parsed({key: text_of(key, "a.b")}, {key: None}) == parsed({key: text_of(key, "a.b")})
