"""Replays: the same inputs, today's code, and whether the rows are the same.

docs/lineage.md: Does today's code make the same rows?
"""

import json
from typing import Any

import dagster as dg
import pytest
from click.testing import CliRunner, Result
from pyspark.sql import DataFrame

from dagster_iceberg_spark import IcebergSparkResource, errors
from dagster_iceberg_spark.cli.app import app
from dagster_iceberg_spark.features.code_changes.plan.replay_plan import ReplayedTable
from dagster_iceberg_spark.features.code_changes.replay import replay_run
from tests.lakes import Lake, annotation_of, frame_asset, hours_asset

DAYS = dg.DailyPartitionsDefinition("2013-01-01", end_date="2013-02-01")
DAY = "2013-01-01"

pytestmark = pytest.mark.spark


def doubled(lake: Lake, factor: str = "2", version: str = "1", **options: Any) -> dg.AssetsDefinition:
    metadata = {"partition_expr": "ts", **{f"iceberg/{key}": value for key, value in options.items()}}

    @dg.asset(io_manager_key="iceberg", partitions_def=DAYS, metadata=metadata, code_version=version)
    def doubled(hours: annotation_of(DataFrame, lake)) -> Any:  # type: ignore[valid-type]
        return hours.selectExpr("ts", f"v * {factor} as v", "cast(v as double) / 3 as third")

    return doubled


def replayed(lake: Lake, run_id: str, *assets: Any, **options: Any) -> dict[str, ReplayedTable]:
    definitions = dg.Definitions(list(assets), resources=lake.resources)
    tables = replay_run(definitions, run_id, report=lambda _: None, **options)
    return {table.asset: table for table in tables}


@pytest.mark.each_engine
@pytest.mark.feature("runs are replayed")
def test_a_run_is_replayed_from_the_snapshots_that_it_has_read(lake: Lake) -> None:
    run = lake.materialize(hours_asset(partitions_def=DAYS), doubled(lake), partition_key=DAY)
    later = hours_asset("hours", "5", partitions_def=DAYS)
    lake.materialize(later, partition_key=DAY)
    heads = {name: lake.table(name).metadata.refs for name in ("hours", "doubled")}

    same = replayed(lake, run.run_id, later, doubled(lake), compare=True)
    assert same["doubled"].is_same
    assert not same["hours"].is_same, "its code has changed"
    other = replayed(lake, run.run_id, later, doubled(lake, "3", "2"), compare=True)["doubled"]
    assert other.comparison is not None
    assert (other.comparison.before, other.comparison.after, other.comparison.differing) == (24, 24, ["v"])
    assert other.words() == "other values in v; code version 1 then, 2 now"
    assert {name: lake.table(name).metadata.refs for name in heads} == heads, "the branches are dropped"


@pytest.mark.full
def test_without_a_comparison_the_rows_stay_in_a_branch(lake: Lake) -> None:
    run = lake.materialize(hours_asset(partitions_def=DAYS), doubled(lake), partition_key=DAY)
    table = replayed(lake, run.run_id, hours_asset(partitions_def=DAYS), doubled(lake, "7"))["doubled"]
    rows = lake.table("doubled").scan().use_ref(table.branch).to_arrow()
    assert set(rows.column("v").to_pylist()) == {7}
    assert set(lake.rows("doubled", "v")) == {2}
    assert lake.instance.get_latest_materialization_event(dg.AssetKey("doubled")).run_id == run.run_id  # type: ignore[union-attr]


def values(lake: Lake, name: str, ref: str) -> list[Any]:
    return sorted(lake.table(name).scan().use_ref(ref).to_arrow().column("v").to_pylist())


@pytest.mark.full
@pytest.mark.parametrize("disposition", ["append", "merge", "replace", "overwrite_partitions"])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_write_starts_from_the_rows_that_the_run_had_found(
    classic_lake: Lake, disposition: str, *, is_first: bool
) -> None:
    metadata: dict[str, Any] = {"iceberg/write_disposition": disposition, "iceberg/partition_by": ["v"]}
    metadata |= {"iceberg/merge_keys": ["k"]} if disposition == "merge" else {}

    def rows(value: int) -> dg.AssetsDefinition:
        return frame_asset("rows", f"select {value} as v, {value} % 2 as k", metadata=metadata)

    runs = [classic_lake.materialize(rows(value)).run_id for value in (1, 2, 3)]
    run, value = (runs[0], 1) if is_first else (runs[1], 2)
    (kept,) = replayed(classic_lake, run, rows(value), compare=True, keep=True).values()
    assert kept.is_same
    before = classic_lake.table("rows").scan(snapshot_id=kept.snapshot_id).to_arrow().column("v").to_pylist()
    assert values(classic_lake, "rows", kept.branch) == sorted(before)
    (again,) = replayed(classic_lake, run, rows(9), compare=True).values()
    assert again.comparison is not None
    assert again.comparison.whole == "differs"
    assert kept.branch not in classic_lake.table("rows").metadata.refs


@pytest.mark.full
def test_new_columns_are_named_and_left_out(classic_lake: Lake) -> None:
    run = classic_lake.materialize(frame_asset("rows", "select 1 as v"))
    schema = classic_lake.table("rows").schema()
    (table,) = replayed(classic_lake, run.run_id, frame_asset("rows", "select 1 as v, 2 as W"), compare=True).values()
    assert (table.new_columns, table.is_same, table.words()) == (["W"], False, "the same rows; new columns: W")
    with pytest.raises(errors.ReplayFailedError, match=r"does not change them, found .*widen column v"):
        replayed(classic_lake, run.run_id, frame_asset("rows", "select 1L as v"), compare=True)
    assert classic_lake.table("rows").schema() == schema
    assert set(classic_lake.table("rows").metadata.refs) == {"main"}


@pytest.mark.full
def test_the_order_of_a_sum_is_no_difference(classic_lake: Lake) -> None:
    sums = "select id % 3 as k, {} as v from range(9) group by 1", "sum(id / 7)", "sum(id / 7 + 1e-15)"
    run = classic_lake.materialize(frame_asset("sums", sums[0].format(sums[1])))
    (table,) = replayed(classic_lake, run.run_id, frame_asset("sums", sums[0].format(sums[2])), compare=True).values()
    assert (table.is_same, table.words()) == (True, "the same rows, but for the last digits of v")


@pytest.mark.full
def test_a_range_of_partitions_and_an_input_that_reads_changes(lake: Lake) -> None:
    @dg.asset(
        io_manager_key="iceberg",
        metadata={"iceberg/write_disposition": "append"},
        ins={"hours": dg.AssetIn(metadata={"iceberg/read": "changes"})},
    )
    def seen(hours: annotation_of(DataFrame, lake)) -> Any:  # type: ignore[valid-type]
        return hours.select("ts", "v")

    hours = hours_asset(partitions_def=DAYS)
    lake.materialize(hours, partition_key="2013-01-09")
    first = lake.materialize_range(hours, first=DAY, last="2013-01-03")
    lake.materialize(hours, seen, selection=[seen])
    lake.materialize(hours, partition_key="2013-01-05")
    second = lake.materialize(hours, seen, selection=[seen])
    lake.materialize(hours, partition_key="2013-01-06")
    lake.materialize(hours, seen, selection=[seen])
    found = replayed(lake, second.run_id, hours, seen, compare=True)["seen"]
    assert found.is_same
    assert found.comparison is not None
    assert (found.comparison.before, found.comparison.after) == (120, 120)
    days = replayed(lake, first.run_id, hours, seen, compare=True)["hours"]
    assert days.is_same
    assert days.comparison is not None
    assert days.comparison.before == 72, "only the rows of the run's partitions are compared"


@pytest.mark.full
def test_dynamic_partitions_config_and_audits(classic_lake: Lake) -> None:
    carriers = dg.DynamicPartitionsDefinition(name="carriers")
    classic_lake.instance.add_dynamic_partitions("carriers", ["UA", "DL"])

    class Amount(dg.Config):
        amount: int = 1

    @dg.asset(
        io_manager_key="iceberg",
        partitions_def=carriers,
        metadata={"partition_expr": "carrier", "iceberg/audits": {"known": "carrier is not null"}},
    )
    def fares(context: dg.AssetExecutionContext, config: Amount) -> Any:
        rows = {"carrier": [context.partition_key], "amount": [config.amount]}
        return classic_lake.session.createDataFrame(list(zip(*rows.values(), strict=True)), list(rows))

    config = {"ops": {"fares": {"config": {"amount": 7}}}}
    run = classic_lake.materialize(
        fares, partition_key="UA", run_config={**config, "loggers": {"console": {"config": {"log_level": "ERROR"}}}}
    )
    classic_lake.materialize(fares, partition_key="UA", run_config={"ops": {"fares": {"config": {"amount": 8}}}})
    with_config = replayed(classic_lake, run.run_id, fares, compare=True, instance=classic_lake.instance)["fares"]
    assert with_config.is_same
    without = replayed(classic_lake, run.run_id, fares, compare=True)["fares"]
    assert without.comparison is not None
    assert without.comparison.differing == ["amount"], "the tables do not record the configuration"


@pytest.mark.full
def test_what_cannot_be_replayed(classic_lake: Lake) -> None:
    with pytest.raises(errors.UpstreamMissingError, match="Cannot replay run nothing: expected a table with a snapsho"):
        replayed(classic_lake, "nothing", frame_asset("rows", "select 1 as v"))
    run = classic_lake.materialize(frame_asset("rows", "select 1 as v"))
    with pytest.raises(errors.ReplayFailedError, match=r"Cannot replay the step rows: .* found .*broken"):
        replayed(classic_lake, run.run_id, frame_asset("rows", "select raise_error('broken') as v"))
    assert set(classic_lake.table("rows").metadata.refs) == {"main"}

    @dg.multi_asset(
        outs={"rows": dg.AssetOut(io_manager_key="iceberg"), "others": dg.AssetOut(io_manager_key="pickled")}
    )
    def both() -> tuple[Any, Any]:
        return classic_lake.session.sql("select 1 as v"), 2

    definitions = dg.Definitions([both], resources={**classic_lake.resources, "pickled": dg.mem_io_manager})
    with pytest.raises(errors.ConfigurationError, match="Cannot replay others: expected an asset that the run has st"):
        replay_run(definitions, run.run_id)


LOCATION = """
import dagster as dg
from dagster_iceberg_spark import IcebergPySparkIOManager, IcebergSparkResource, SqlCatalog
from tests.lakes import SPARK_CONF, frame_asset

catalog = SqlCatalog(uri="sqlite:///%(path)s/catalog.db", warehouse="%(path)s/wh")
spark = IcebergSparkResource(catalog=catalog, spark_config=SPARK_CONF, jars="provided")
rows = frame_asset("rows", "select %(value)s as v")
io_manager = IcebergPySparkIOManager(spark=spark, namespace="db")
defs = dg.Definitions(assets=[rows], resources={"iceberg": io_manager, "spark": spark})
"""


@pytest.mark.full
def test_the_command_line(classic_lake: Lake) -> None:
    run = classic_lake.materialize(frame_asset("rows", "select 1 as v"))
    (classic_lake.directory / "same.py").write_text(LOCATION % {"path": classic_lake.directory, "value": 1})
    (classic_lake.directory / "other.py").write_text(LOCATION % {"path": classic_lake.directory, "value": 2})

    def replay(file: str, *options: str) -> Result:
        path = str(classic_lake.directory / file)
        return CliRunner().invoke(app, ["replay", "--run", run.run_id, "-f", path, *options])

    same, other = replay("same.py", "--compare"), replay("other.py", "--compare", "--json")
    assert (same.exit_code, other.exit_code) == (0, 1), (same.output, other.output)
    assert "db.rows  whole table          1         1  the same rows" in same.stdout
    (document,) = json.loads(other.stdout)
    assert document["comparison"] == {"rows_before": 1, "rows_after": 1, "rows": "differs", "columns": {"v": "differs"}}
    kept = replay("other.py")
    assert kept.exit_code == 0, kept.output
    assert f"The rows are in the branch env_replay-{run.run_id} of each table." in kept.stdout


@pytest.mark.full
def test_assets_that_share_a_table_are_not_replayed_together(classic_lake: Lake) -> None:
    shared = [
        frame_asset(name, f"select '{name}' as v", metadata={"iceberg/table": "db.shared"}) for name in ("one", "other")
    ]
    run = classic_lake.materialize(*shared)
    with pytest.raises(errors.ConfigurationError, match="Cannot replay one and other: expected assets of a run with a"):
        replayed(classic_lake, run.run_id, *shared)


@pytest.mark.full
def test_checks_are_left_out_and_what_is_read_as_of_now_is_named(classic_lake: Lake) -> None:
    looked = []

    @dg.asset(io_manager_key="files")
    def elsewhere() -> int:
        return 1

    @dg.asset(io_manager_key="iceberg", deps=["source"])
    def copied(spark: IcebergSparkResource, pinned: DataFrame, elsewhere: int) -> DataFrame:
        return pinned.join(spark.spark_session.table("lake.db.source"), "id")

    @dg.asset_check(asset=copied)
    def check() -> dg.AssetCheckResult:
        looked.append(1)
        return dg.AssetCheckResult(passed=True)

    sources = [frame_asset(name, "select 1 as id") for name in ("source", "pinned")]
    resources = {**classic_lake.resources, "files": dg.FilesystemIOManager(base_dir=str(classic_lake.directory))}
    nobody_s = dg.AssetSpec("made_elsewhere")
    definitions = dg.Definitions([*sources, elsewhere, copied, nobody_s], asset_checks=[check], resources=resources)
    for names in (["source", "pinned", "elsewhere"], ["copied"]):
        run = definitions.resolve_implicit_global_asset_job_def().execute_in_process(
            asset_selection=[dg.AssetKey(name) for name in names], instance=classic_lake.instance
        )
    assert len(looked) == 1
    (table,) = replay_run(definitions, run.run_id, report=lambda _: None, compare=True)
    assert len(looked) == 1
    assert table.words() == "the same rows; read as of now: elsewhere, db.source"
