"""Comparing a table with its definition, without a DataFrame."""

from typing import Any

import pytest

from dagster_iceberg_spark.errors import ConfigurationError, PartitioningError, TableOwnershipError
from dagster_iceberg_spark.plan.options.output_options import parse_write_options
from dagster_iceberg_spark.plan.write.comparison import DefinedTable, differences
from dagster_iceberg_spark.plan.write.write_request import TableRequest
from tests.core.table.samples import TABLE, schema, snapshot, spec, table

COLUMNS = schema(ts="timestamptz", carrier="string", delay="int")
OWNED = {"dagster.asset_key": "nyc/flights"}


def defined(
    *columns: str, types: dict[str, str] | None = None, docs: dict[str, str] | None = None, **options: Any
) -> DefinedTable:
    metadata = {f"iceberg/{key}": value for key, value in options.items()}
    request = TableRequest(
        TABLE,
        "nyc/flights",
        is_named_explicitly=False,
        options=parse_write_options(metadata, subject="a"),
        column_docs=docs or {},
    )
    return DefinedTable(request, columns, types)


def found(definition: DefinedTable, **changes: Any) -> tuple[str, ...]:
    changes.setdefault("properties", OWNED)
    state = table(COLUMNS, specs=[spec("day(ts)")], snapshots=[snapshot(7)], **changes)
    return differences(definition, state)


@pytest.mark.parametrize(
    "definition",
    [
        defined(),
        defined("ts"),
        defined("TS", partition_by=["days(ts)"]),
        defined(types={"ts": "timestamptz", "carrier": "string", "delay": "int"}),
        defined(types={"ts": "TIMESTAMP", "carrier": "string", "delay": "Integer"}),
        defined(types={"ts": "string", "carrier": "string", "delay": "string"}),  # the defaults of a column
        defined(takes_over="old/flights"),
    ],
)
def test_a_table_that_matches_its_definition_has_no_differences(definition: DefinedTable) -> None:
    assert found(definition) == ()


@pytest.mark.parametrize(
    ("definition", "difference"),
    [
        (defined("day"), "the table lacks the column 'day' of `partition_expr`"),
        (
            defined(write_disposition="merge", merge_keys=["id"]),
            "the table lacks the column 'id' of `iceberg/merge_keys`",
        ),
        (defined(partition_by=["bucket(4, tail)"]), "the table lacks the column 'tail' of `iceberg/partition_by`"),
        (defined(sort_by=["tail"]), "the table lacks the column 'tail' of `iceberg/sort_by`"),
        (defined(identifier_fields=["id"]), "the table lacks the column 'id' of `iceberg/identifier_fields`"),
        (defined(required_columns=["id"]), "the table lacks the column 'id' of `iceberg/required_columns`"),
        (
            defined(types={"ts": "timestamptz", "carrier": "string", "delay": "int", "tail": "string"}),
            "the table lacks the column 'tail' of `dagster/column_schema`",
        ),
        (
            defined(types={"ts": "timestamptz", "carrier": "string", "delay": "bigint"}),
            "the column 'delay' is int, `dagster/column_schema` says bigint",
        ),
        (
            defined(types={"ts": "timestamptz", "carrier": "string"}),
            "the table has the column 'delay', `dagster/column_schema` has not",
        ),
        (defined(partition_by=["day(ts)", "carrier"]), "add partition field carrier"),
        (defined(partition_by=[]), "drop partition field day(ts)"),
        (defined(sort_by=["delay desc"]), "sort files by delay"),
        (defined(table_properties={"write.format.default": "orc"}), "set write.format.default"),
        (defined(format_version=3), "set format-version"),
        (defined(branch="audit"), "create branch audit"),
        (defined(renames={"delay": "minutes"}), "rename column delay to minutes"),
        (defined(docs={"delay": "Minutes."}), "describe column delay"),
    ],
)
def test_a_difference_is_described(definition: DefinedTable, difference: str) -> None:
    assert found(definition) == (difference,)


def test_columns_with_a_pending_rename_are_found_by_their_old_names() -> None:
    definition = defined(
        "at",
        renames={"ts": "at"},
        partition_by=["day(at)"],
        types={"at": "timestamptz", "carrier": "string", "delay": "int"},
    )
    assert found(definition) == ("rename column ts to at",)


def test_a_table_under_the_former_key_changes_its_owner() -> None:
    former = {"properties": {"dagster.asset_key": "old/flights"}}
    assert found(defined(takes_over="old/flights"), **former) == ("set dagster.asset_key",)


def test_a_table_without_an_owner_gets_one() -> None:
    assert found(defined(), properties={}) == ("set dagster.asset_key",)


@pytest.mark.parametrize(
    ("definition", "changes", "error"),
    [
        (defined(), {"properties": {"dagster.asset_key": "other"}}, TableOwnershipError),
        (defined(location="s3://lake/elsewhere"), {}, ConfigurationError),
        (defined(partition_by=["hour(carrier)"]), {}, PartitioningError),
        (defined(partition_by=["carrier"], partition_evolution="error"), {}, PartitioningError),
        (defined(identifier_fields=["delay"]), {}, ConfigurationError),
        (defined(format_version=1), {}, ConfigurationError),
    ],
)
def test_a_comparison_refuses_whatever_the_next_write_would_refuse(
    definition: DefinedTable, changes: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error, match=r"flights"):
        found(definition, **changes)
