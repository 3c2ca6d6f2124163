"""The commit token: a step that is tried again finds what its earlier attempt has committed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from dagster_iceberg_spark import IcebergPySparkIOManager, SqlCatalog
from tests.conftest import Lake, frame_asset, metadata_of, open_lake

pytestmark = pytest.mark.spark

DAYS = dg.DailyPartitionsDefinition("2013-01-01", end_date="2013-02-01")


class Interrupted(IcebergPySparkIOManager):
    """Breaks off after the commit, as a process would that dies before Dagster records the materialization."""

    breaks: int = 1

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        super().handle_output(context, obj)
        if context.step_context.previous_attempt_count < self.breaks:
            message = "gone"
            raise ConnectionResetError(message)


@pytest.fixture
def kept_lake(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    """A lake whose instance is not ephemeral, so that there is something to resume."""
    remote = request.getfixturevalue("connect_server") if engine == "connect" else None
    catalog = SqlCatalog(uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "wh"))
    (tmp_path / "instance").mkdir()
    for lake in open_lake(catalog, tmp_path, remote):
        with dg.DagsterInstance.local_temp(str(tmp_path / "instance")) as instance:
            yield Lake(lake.spark, lake.io_manager, instance, lake.directory)


def interrupted(lake: Lake, *, breaks: int = 1) -> Lake:
    io_manager = Interrupted(spark=lake.spark, namespace="db", breaks=breaks)
    return Lake(lake.spark, io_manager, lake.instance, lake.directory)


@pytest.mark.parametrize("disposition", ["replace", "append", "merge"])
def test_a_retried_step_adopts_its_own_snapshot(kept_lake: Lake, disposition: str) -> None:
    metadata = {"iceberg/write_disposition": disposition, "iceberg/merge_keys": ["id"]}
    asset = frame_asset("t", "select 1 as id", metadata=metadata, retry_policy=dg.RetryPolicy(max_retries=1))
    result = interrupted(kept_lake).materialize(asset)
    assert result.success
    reported = metadata_of(result, "t")
    assert reported["iceberg/adopted"] is True
    assert reported["iceberg/snapshot_id"] == str(kept_lake.head("t").snapshot_id)
    assert kept_lake.rows("t", "id") == [1]
    assert len(kept_lake.summaries("t")) == 1


def test_a_new_run_appends_again(kept_lake: Lake) -> None:
    asset = frame_asset("t", "select 1 as id", metadata={"iceberg/write_disposition": "append"})
    for _ in range(2):
        kept_lake.materialize(asset)
    assert kept_lake.rows("t", "id") == [1, 1]


def test_a_resumed_run_adopts_what_its_parent_committed(kept_lake: Lake) -> None:
    asset = frame_asset("t", "select 1 as id", metadata={"iceberg/write_disposition": "append"})
    first = interrupted(kept_lake, breaks=9).materialize(asset, raise_on_error=False)
    assert not first.success
    tags = {"dagster/parent_run_id": first.run_id, "dagster/root_run_id": first.run_id}
    resumed = kept_lake.materialize(asset, tags={**tags, "dagster/is_resume_retry": "true"})
    assert metadata_of(resumed, "t")["iceberg/adopted"] is True
    assert kept_lake.rows("t", "id") == [1]
    deliberate = kept_lake.materialize(asset, tags=tags)
    assert "iceberg/adopted" not in metadata_of(deliberate, "t")
    assert kept_lake.rows("t", "id") == [1, 1]


def test_each_partition_has_a_token_of_its_own(kept_lake: Lake) -> None:
    asset = frame_asset(
        "t",
        "select {start} as ts",
        partitions_def=DAYS,
        metadata={"partition_expr": "ts"},
        retry_policy=dg.RetryPolicy(max_retries=1),
    )
    for key in ("2013-01-01", "2013-01-02"):
        assert interrupted(kept_lake).materialize(asset, partition_key=key).success
    tokens = [summary["dagster.commit_token"] for summary in kept_lake.summaries("t")]
    assert len(tokens) == len(set(tokens)) == 2


def test_a_replace_that_another_run_overwrote_is_written_again(kept_lake: Lake) -> None:
    first = interrupted(kept_lake, breaks=9).materialize(frame_asset("t", "select 1 as id"), raise_on_error=False)
    kept_lake.materialize(frame_asset("t", "select 2 as id"))
    tags = {"dagster/parent_run_id": first.run_id, "dagster/is_resume_retry": "true"}
    result = kept_lake.materialize(frame_asset("t", "select 1 as id"), tags=tags)
    assert "iceberg/adopted" not in metadata_of(result, "t")
    assert kept_lake.rows("t", "id") == [1]
    assert len(kept_lake.summaries("t")) == 3


def test_a_context_built_by_hand_writes_without_looking(kept_lake: Lake) -> None:
    context = dg.build_output_context(
        asset_key=dg.AssetKey("t"), definition_metadata={"iceberg/write_disposition": "append"}, resources={}
    )
    for _ in range(2):
        kept_lake.io_manager.handle_output(context, kept_lake.session.range(1))
        context = dg.build_output_context(
            asset_key=dg.AssetKey("t"), definition_metadata={"iceberg/write_disposition": "append"}, resources={}
        )
    assert kept_lake.rows("t", "id") == [0, 0]
