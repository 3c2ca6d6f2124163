"""What Dagster shows of a materialization.

docs/lineage.md: What did a materialization read, and what came before?
"""

import datetime as dt
from typing import Any

import dagster as dg
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, NestedField, StringType

from dagster_iceberg_spark.errors import CommitConflictError
from tests.lakes import Lake, around_write, frame_asset, hours_asset, metadata_of

DAYS = dg.DailyPartitionsDefinition("2013-01-01", end_date="2013-02-01")

pytestmark = pytest.mark.spark


def tags_of(result: dg.ExecuteInProcessResult, node: str) -> dict[str, str]:
    return dict(result.asset_materializations_for_node(node)[0].tags or {})


@pytest.mark.each_engine
def test_a_materialization_reports_the_standard_keys_and_its_commit(lake: Lake) -> None:
    lake.materialize(hours_asset(partitions_def=DAYS), partition_key="2013-01-01")
    parent = lake.head("hours")
    result = lake.materialize(hours_asset(partitions_def=DAYS), partition_key="2013-01-01")
    reported, table = metadata_of(result, "hours"), lake.table("hours")
    files = table.inspect.files().to_pylist()
    assert reported["dagster/table_name"] == "lake.db.hours"
    assert reported["dagster/uri"] == table.location()
    assert reported["dagster/storage_kind"] == "iceberg"
    assert reported["dagster/partition_row_count"] == 24
    assert [(column.name, column.type) for column in reported["dagster/column_schema"].columns] == [
        ("ts", "timestamptz"),
        ("v", "int"),
    ]
    assert reported["iceberg/snapshot_id"] == str(lake.head("hours").snapshot_id)
    assert reported["iceberg/parent_snapshot_id"] == str(parent.snapshot_id)
    assert (reported["iceberg/added_rows"], reported["iceberg/deleted_rows"]) == (24, 24)
    assert reported["iceberg/added_files"] == len(files)
    assert reported["iceberg/added_bytes"] == sum(file["file_size_in_bytes"] for file in files)
    assert reported["iceberg/operation"] == "overwrite"
    assert reported["iceberg/retries"] == 0
    assert reported["iceberg/write_seconds"] > 0


@pytest.mark.full
def test_a_materialization_shows_its_inputs_and_the_newest_snapshots(lake: Lake) -> None:
    upstream = hours_asset(partitions_def=DAYS)

    @dg.asset(io_manager_key="iceberg", partitions_def=DAYS, metadata={"partition_expr": "ts"})
    def copied(hours: Any) -> Any:
        return hours

    first = lake.materialize(upstream, partition_key="2013-01-01")
    for _ in range(2):
        result = lake.materialize(upstream, copied, selection=[copied], partition_key="2013-01-01")
    reported, read = metadata_of(result, "copied"), lake.head("hours")
    (row,) = reported["iceberg/inputs"].splitlines()[2:]
    committed_at = dt.datetime.fromtimestamp(read.timestamp_ms / 1000, dt.timezone.utc)
    link = f"[{first.run_id[:8]}](/runs/{first.run_id})"
    assert row == f"| hours | db.hours | {read.snapshot_id} | {committed_at:%Y-%m-%d %H:%M:%S} | 2013-01-01 | {link} |"
    newest, older = reported["iceberg/history"].splitlines()[2:]
    assert f"| {lake.head('copied').snapshot_id} | replace | 2013-01-01 | 24 | 24 | copied | [" in newest
    assert "| replace | 2013-01-01 | 24 | 0 | copied | [" in older


@pytest.mark.full
def test_what_an_attempt_changed_is_reported_by_the_one_that_commits(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.materialize(frame_asset("t", "select 1 as a"))
    refusals = [CommitConflictError("as another writer was first")]

    def write(genuine: Any, _: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return genuine()

    around_write(monkeypatch, write)
    result = lake.materialize(frame_asset("t", "select 1 as a, 2 as b"))
    reported = metadata_of(result, "t")
    assert (reported["iceberg/retries"], reported["iceberg/table_changes"]) == (1, ["add column b int"])


def test_the_data_version_is_the_snapshot_unless_there_is_a_code_version(lake: Lake) -> None:
    plain = lake.materialize(frame_asset("plain", "select 1 as id"))
    coded = lake.materialize(frame_asset("coded", "select 1 as id", code_version="v1"))
    snapshot_id = str(lake.head("plain").snapshot_id)
    assert tags_of(plain, "plain")["dagster/data_version"] == snapshot_id
    assert tags_of(coded, "coded")["dagster/data_version"] != str(lake.head("coded").snapshot_id)


@pytest.mark.full
@pytest.mark.parametrize(("policy", "is_snapshot"), [("snapshot", True), ("dagster", False)])
def test_the_data_version_s_policy_is_configurable(lake: Lake, policy: str, is_snapshot: bool) -> None:
    asset = frame_asset("t", "select 1 as id", code_version="v1" if is_snapshot else None)
    result = lake.with_options(data_version=policy).materialize(asset)
    version = tags_of(result, "t")["dagster/data_version"]
    assert (version == str(lake.head("t").snapshot_id)) is is_snapshot


def test_the_log_names_the_place_of_a_new_table(lake: Lake) -> None:
    result = lake.materialize(frame_asset("t", "select 1 as id"))
    messages = [entry.user_message for entry in lake.instance.all_logs(result.run_id)]
    created = [message for message in messages if message.startswith("Created db.t at ")]
    assert len(created) == 1
    assert str(lake.directory) in created[0]
    assert any(message.startswith("Committed snapshot ") for message in messages)


def test_what_others_have_written_into_a_table_is_shown_as_text(classic_lake: Lake) -> None:
    """Nothing is of a kind that the UI renders, but for descriptions of columns and the history, without markup."""
    hostile = "<img src=x onerror=alert(1)> [x](javascript:alert(1)) ://evil"
    catalog = classic_lake.spark.pyiceberg_catalog
    catalog.create_namespace("db")
    schema = Schema(NestedField(1, "id", IntegerType(), doc=hostile), NestedField(2, hostile, StringType()))
    table = catalog.create_table(("db", "t"), schema, properties={"note": hostile})
    foreign = {"dagster.asset_key": hostile, "dagster.run_id": "x](javascript:alert(1))", "engine-name": hostile}
    table.append(schema.as_arrow().empty_table(), snapshot_properties=foreign)
    metadata = {"iceberg/write_disposition": "append", "iceberg/table_properties": {"comment": hostile}}
    result = classic_lake.materialize(frame_asset("t", f"select 1 as id, 'a' as `{hostile}`", metadata=metadata))
    [materialization] = result.asset_materializations_for_node("t")
    inert = (
        dg.TextMetadataValue,
        dg.IntMetadataValue,
        dg.FloatMetadataValue,
        dg.BoolMetadataValue,
        dg.JsonMetadataValue,
        dg.TableSchemaMetadataValue,
    )
    rendered = [key for key, value in materialization.metadata.items() if not isinstance(value, inert)]
    assert rendered == ["iceberg/history"]
    escaped = r"\<img src=x onerror=alert(1)\> \[x\](javascript:alert(1)) \://evil"
    own, others = str(materialization.metadata["iceberg/history"].value).splitlines()[2:]
    assert others.endswith(f"| 0 | 0 | {escaped} |  |")
    assert own.endswith(f"| t | [{result.run_id[:8]}](/runs/{result.run_id}) |")
    columns: Any = materialization.metadata["dagster/column_schema"].value
    [first, second] = columns.columns
    assert second.name == hostile
    assert first.description == escaped
