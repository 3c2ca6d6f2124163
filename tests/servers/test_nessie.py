"""Project Nessie: a catalog that shows a table's newest snapshot alone."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from dagster_iceberg_spark import IcebergPySparkIOManager, IcebergSparkResource
from dagster_iceberg_spark.spark.write import engine, writer
from tests.lakes import Lake, frame_asset, metadata_of, open_lake, resuming
from tests.servers import combinations
from tests.servers.conftest import emptied
from tests.servers.nessie import Nessie

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.timeout(900)]

DAYS = dg.DailyPartitionsDefinition("2024-03-01")
APPEND = {"iceberg/write_disposition": "append"}


class BreaksOff(IcebergPySparkIOManager):
    """Breaks off after the commit, as a process would that dies before Dagster records the materialization."""

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        super().handle_output(context, obj)
        message = "gone"
        raise ConnectionResetError(message)


@pytest.fixture
def lake(
    engine: str, kept_instance: dg.DagsterInstance, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Lake]:
    remote = request.getfixturevalue("connect_server") if engine == "connect" else None
    with ExitStack() as stack:
        catalog = emptied(combinations.nessie(combinations.Asked(request, tmp_path, stack)))
        for opened in open_lake(catalog, tmp_path, remote):
            yield Lake(opened.spark, opened.io_manager, kept_instance, opened.directory)


def append_by_pyiceberg(lake: Lake, *ids: int) -> None:
    lake.table("t").append(pa.table({"id": pa.array(ids, pa.int64())}))


def after_the_write(then: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let it happen between the engine's next commit and the look for it."""

    def write(*args: Any) -> Any:
        counts = writer.write(*args)
        monkeypatch.setattr(engine, "write", writer.write)
        then()
        return counts

    monkeypatch.setattr(engine, "write", write)


def test_a_commit_is_found_behind_another_writer_s(lake: Lake, nessie: Nessie, monkeypatch: pytest.MonkeyPatch) -> None:
    asset = frame_asset("t", "select 1L as id", metadata=APPEND)
    lake.materialize(asset)
    after_the_write(lambda: append_by_pyiceberg(lake, 7, 8), monkeypatch)
    result = lake.materialize(asset)
    own = nessie.summaries("db.t")[1]
    metadata = metadata_of(result, "t")
    assert own["dagster.run_id"] == result.run_id
    assert (metadata["iceberg/added_rows"], metadata["iceberg/retries"]) == (1, 0)
    assert metadata["iceberg/snapshot_id"] != str(lake.head("t").snapshot_id)
    assert len(nessie.summaries("db.t")) == 3
    assert lake.rows("t", "id") == [1, 1, 7, 8]


@pytest.mark.sample(2)
@pytest.mark.parametrize("others", [0, 1])
def test_a_resumed_append_is_found_behind_another_writer_s(lake: Lake, nessie: Nessie, others: int) -> None:
    asset = frame_asset("t", "select 1L as id", metadata=APPEND)
    lake.materialize(asset)
    broken = Lake(lake.spark, BreaksOff(spark=lake.spark, namespace="db"), lake.instance, lake.directory)
    first = broken.materialize(asset, raise_on_error=False)
    for _ in range(others):
        append_by_pyiceberg(lake, 7)
    resumed = lake.materialize(asset, tags=resuming(first.run_id))
    assert metadata_of(resumed, "t")["iceberg/adopted"] is True
    assert [item.get("dagster.run_id") for item in nessie.summaries("db.t")][1] == first.run_id
    assert lake.rows("t", "id") == [1, 1] + [7] * others


@pytest.mark.sample(1)
def test_rows_of_each_partition_are_counted_behind_another_writer_s(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    asset = frame_asset(
        "t",
        "select {start} as ts, id from range(2)",
        partitions_def=DAYS,
        metadata={"partition_expr": "ts"},
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    other = frame_asset(
        "t", "select {start} as ts, id from range(5)", partitions_def=DAYS, metadata={"partition_expr": "ts"}
    )
    lake.materialize(other, partition_key="2024-03-01")
    after_the_write(lambda: lake.materialize(other, partition_key="2024-03-09"), monkeypatch)
    result = lake.materialize_range(asset, first="2024-03-03", last="2024-03-04")
    assert metadata_of(result, "t", "2024-03-03")["dagster/partition_row_count"] == 2
    assert len(lake.rows("t", "id")) == 5 + 5 + 2


@pytest.mark.sample(1)
def test_an_older_snapshot_is_not_read_and_the_error_says_why(lake: Lake, nessie: Nessie) -> None:
    asset = frame_asset("t", "select 1L as id", metadata=APPEND)
    first = metadata_of(lake.materialize(asset), "t")["iceberg/snapshot_id"]
    lake.materialize(asset)

    @dg.asset(ins={"t": dg.AssetIn(metadata={"iceberg/snapshot_id": first})})
    def reader(t: DataFrame) -> None:
        t.collect()

    result = lake.materialize(reader, asset.to_source_asset(), selection=[reader], raise_on_error=False)
    [failure] = [event for event in result.all_events if event.is_step_failure]
    message = str(failure.step_failure_data.error)
    assert f"expected the snapshot {first}" in message
    assert "shows only the newest" in message


@pytest.mark.sample(1)
def test_the_check_passes(lake: Lake) -> None:
    report = lake.spark.check()
    assert report.is_fit, report.document()


@pytest.mark.sample(1)
def test_a_tag_of_nessie_reads_the_past(lake: Lake, nessie: Nessie, tmp_path: Path) -> None:
    asset = frame_asset("t", "select 1L as id", metadata=APPEND)
    lake.materialize(asset)
    tag = f"before-{tmp_path.name}"
    nessie.tag(tag)
    lake.materialize(asset)
    past = lake.spark.catalog.model_copy(update={"uri": f"{nessie.uri}/{tag}"})
    read: list[int] = []

    @dg.asset
    def reader(t: pa.Table) -> None:
        read.extend(t.column("id").to_pylist())

    spark = IcebergSparkResource(catalog=past, spark_config=lake.spark.spark_config, jars="provided")
    of_tag = Lake(spark, IcebergPySparkIOManager(spark=spark, namespace="db"), lake.instance, lake.directory)
    of_tag.materialize(reader, asset.to_source_asset(), selection=[reader])
    assert read == [1]
    assert lake.rows("t", "id") == [1, 1]


@pytest.mark.sample(1)
def test_an_iceberg_branch_is_refused_and_nothing_is_written(lake: Lake, nessie: Nessie) -> None:
    lake.materialize(frame_asset("t", "select 1L as id", metadata=APPEND))
    for option in ({"iceberg/branch": "dev"}, {"iceberg/audits": {"some": "count(*) > 0"}}):
        error = lake.failure(frame_asset("t", "select 2L as id", metadata={**APPEND, **option}))
        assert error.class_name == "ConfigurationError", error
    assert lake.rows("t", "id") == [1]
    assert len(nessie.summaries("db.t")) == 1
