"""Options of an input, and where they may be set."""

from typing import Any

import pytest

from dagster_iceberg_spark.errors import MetadataKeyError
from dagster_iceberg_spark.plan.read.read_options import INPUT_KEYS, ReadOptions, parse_read_options
from tests.core.table.samples import utc


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({}, ReadOptions()),
        ({"columns": ["a", "b"], "other": 1, "dagster/x": 2}, ReadOptions(columns=("a", "b"))),
        ({"columns": "a"}, ReadOptions(columns=("a",))),
        ({"iceberg/snapshot_id": 42}, ReadOptions(snapshot_id=42)),
        ({"iceberg/snapshot_id": "42"}, ReadOptions(snapshot_id=42)),
        ({"iceberg/as_of": "2024-01-31T12:00:00Z"}, ReadOptions(as_of=utc(2024, 1, 31, 12))),
        (
            {"iceberg/as_of": "2024-01-31T12:00:00+00:00", "iceberg/ref": "b"},
            ReadOptions(as_of=utc(2024, 1, 31, 12), ref="b"),
        ),
        ({"iceberg/as_of": utc(2024, 1, 31)}, ReadOptions(as_of=utc(2024, 1, 31))),
        ({"iceberg/as_of": None, "iceberg/ref": None, "iceberg/snapshot_id": None, "columns": None}, ReadOptions()),
    ],
)
def test_the_metadata_of_an_input_is_read(metadata: dict[str, Any], expected: ReadOptions) -> None:
    assert parse_read_options(metadata, subject="flights") == expected


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"iceberg/snapshot": 1}, "found `iceberg/snapshot`. Hint: did you mean `iceberg/snapshot_id`?"),
        ({"iceberg/write_disposition": "append"}, "found `iceberg/write_disposition`. Hint: "),
        ({"iceberg/snapshot_id": 1, "iceberg/ref": "b"}, "expected `iceberg/snapshot_id` alone"),
        ({"iceberg/snapshot_id": 1, "iceberg/as_of": "x"}, "found `iceberg/snapshot_id` and `iceberg/as_of`"),
        ({"iceberg/snapshot_id": "newest"}, "expected a snapshot's id, found 'newest'"),
        ({"iceberg/snapshot_id": True}, "expected a snapshot's id, found True"),
        ({"iceberg/snapshot_id": 1.5}, "expected a snapshot's id, found 1.5"),
        ({"iceberg/as_of": "2024-01-31"}, "expected an instant with its zone"),
        ({"iceberg/as_of": "yesterday"}, "found 'yesterday'"),
        ({"iceberg/as_of": 3}, "found 3"),
        ({"columns": []}, "expected a list with at least one column name, found []"),
        ({"columns": ["a", 1]}, "found ['a', 1]"),
        ({"columns": {"a": 1}}, "`columns` of the metadata of flights"),
    ],
)
def test_invalid_input_metadata_is_refused(metadata: dict[str, Any], message: str) -> None:
    with pytest.raises(MetadataKeyError) as caught:
        parse_read_options(metadata, subject="flights")
    assert message in str(caught.value)


def test_an_unknown_key_without_a_close_match_is_refused_with_all_keys() -> None:
    with pytest.raises(MetadataKeyError, match=f"Hint: the keys are {', '.join(INPUT_KEYS)}"):
        parse_read_options({"iceberg/zzzzzzzzzzzzzzzzzzzzzzzzzzzzzz": 1}, subject="flights")


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"iceberg/as_of_run": "4f3c"}, ReadOptions(as_of_run="4f3c")),
        ({"iceberg/as_of_release": "2026-11"}, ReadOptions(as_of_release="2026-11")),
        ({"iceberg/row_filter": "a > 1"}, ReadOptions(row_filter="a > 1")),
        ({"iceberg/limit": 0}, ReadOptions(limit=0)),
        ({"iceberg/missing": "empty"}, ReadOptions(missing="empty")),
    ],
)
def test_each_key_sets_its_own_option(metadata: dict[str, Any], expected: ReadOptions) -> None:
    assert parse_read_options(metadata, subject="flights") == expected


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"iceberg/as_of_run": "r", "iceberg/ref": "b"}, "expected `iceberg/as_of_run` alone"),
        ({"iceberg/as_of_release": "r", "iceberg/as_of": "x"}, "expected `iceberg/as_of_release` alone"),
        ({"iceberg/limit": -1}, "expected a number of rows, found -1"),
        (
            {"iceberg/limit": 1, "iceberg/read": "changes"},
            "expected no limit where `iceberg/read` is `changes`, found 1. Hint: leave it out: rows beyond a limit",
        ),
        ({"iceberg/missing": "skip"}, "expected one of error, empty, found 'skip'"),
        ({"iceberg/row_filter": ""}, "expected a condition in SQL, found ''"),
    ],
)
def test_an_invalid_value_is_refused(metadata: dict[str, Any], message: str) -> None:
    with pytest.raises(MetadataKeyError) as caught:
        parse_read_options(metadata, subject="flights")
    assert message in str(caught.value)


FIXED = {"iceberg/snapshot_id": 1, "columns": ["a"]}


@pytest.mark.parametrize(
    ("config", "tags", "expected"),
    [
        (None, {"dagster/run_key": "x"}, ReadOptions(columns=("a",), snapshot_id=1)),
        (None, {"iceberg/as_of_run": "r"}, ReadOptions(columns=("a",), as_of_run="r")),
        ({"ref": "b", "as_of": None}, {"iceberg/as_of_run": "r"}, ReadOptions(columns=("a",), ref="b")),
        ({"snapshot_id": "7"}, None, ReadOptions(columns=("a",), snapshot_id=7)),
    ],
)
def test_the_run_s_choice_of_snapshot_replaces_the_definition_s(
    config: dict[str, Any] | None, tags: dict[str, str] | None, expected: ReadOptions
) -> None:
    assert parse_read_options(FIXED, subject="flights", config=config, tags=tags) == expected


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        ({"iceberg/as_off": "x"}, "Cannot use the run's tags: expected a key of an input, found `iceberg/as_off`"),
        ({"iceberg/asof": "x"}, "found `iceberg/asof`. Hint: did you mean `iceberg/as_of`?"),
        ({"iceberg/limit": "3"}, "found `iceberg/limit`"),
        ({"iceberg/as_of": "noon"}, "Cannot use `iceberg/as_of` of the run's tags"),
    ],
)
def test_an_invalid_tag_is_refused(tags: dict[str, str], message: str) -> None:
    with pytest.raises(MetadataKeyError) as caught:
        parse_read_options({}, subject="flights", tags=tags)
    assert message in str(caught.value)


def test_a_wrongly_prefixed_key_gets_a_hint() -> None:
    with pytest.raises(MetadataKeyError, match="did you mean `columns`"):
        parse_read_options({"iceberg/columns": ["a"]}, subject="flights")
