"""The metrics of materializations and loads, as a receiver gets them.

docs/metrics.md: OpenTelemetry
"""

import dagster as dg
import pyarrow as pa
import pytest

from dagster_iceberg_spark import OpenTelemetryMetrics
from tests.features.metrics.receiver import receiver, shut_down
from tests.lakes import Lake, dying, frame_asset, resuming

pytestmark = pytest.mark.spark
numbers = frame_asset("numbers", "select /*+ coalesce(1) */ id from range(5)")


@dg.asset(name="readers", io_manager_key="iceberg", metadata={"iceberg/write_disposition": "append"})
def reading(numbers: pa.Table) -> pa.Table:
    return numbers


@pytest.mark.full
def test_outcomes_are_counted_and_measured(kept_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver() as got:
        metrics = OpenTelemetryMetrics(endpoint=got.endpoint, headers={"api-key": "secret"})
        lake = kept_lake.with_options(metrics=metrics)
        lake.materialize(numbers)
        lake.materialize(numbers, reading)
        failing = frame_asset("numbers", "select 'x' as id", metadata={"iceberg/schema_evolution": "strict"})
        lake.failure(failing)

        with dying(monkeypatch):
            failed = lake.materialize(numbers, raise_on_error=False)
        lake.materialize(numbers, tags=resuming(failed.run_id))
        shut_down(metrics.instruments())
    table, other = "lake.db.numbers", "lake.db.readers"
    outcomes = got.values("dagster_iceberg.materializations")
    assert outcomes.pop(("SystemError", table, "failed")) == 1
    assert outcomes.pop(("SchemaMismatchError", table, "failed")) == 1
    assert outcomes == {
        ("overwrite", table, "committed"): 2,
        ("overwrite", table, "adopted"): 1,
        ("append", other, "committed"): 1,
    }
    assert got.values("iceberg.commit.attempts") == outcomes
    assert sum(got.values("dagster_iceberg.retries").values()) == 0
    added = got.values("iceberg.commit.records.added")
    assert added == {keys: 5 * count for keys, count in outcomes.items()}
    assert got.values("iceberg.commit.records.removed")[("overwrite", table, "committed")] == 5
    assert got.values("iceberg.commit.data_files.added")[("append", other, "committed")] == 1
    assert min(got.values("iceberg.commit.file_size.added_bytes").values()) > 100
    assert sum(point.count for _, point in got.points("iceberg.commit.duration")) == 3, "what was adopted took no time"
    assert sum(point.sum for _, point in got.points("dagster_iceberg.write.duration")) > 10
    [(attributes, point)] = got.points("iceberg.scan.planning.duration")
    assert (attributes, point.count) == ({"iceberg.table.name": table}, 1)
    names = {key for request in got.requests for key in str(request).split('"')}
    assert not [name for name in names if "snapshot" in name]
    assert {header["api-key"] for header in got.headers} == {"secret"}


@pytest.mark.full
def test_a_receiver_that_is_down_stops_nobody(classic_lake: Lake) -> None:
    with receiver() as got:
        got.status = 400
        metrics = OpenTelemetryMetrics(endpoint=got.endpoint)
        lake = classic_lake.with_options(metrics=metrics)
        lake.materialize(numbers)
    assert got.requests
    lake.materialize(numbers)
    assert lake.rows("numbers") == [0, 1, 2, 3, 4]
    shut_down(metrics.instruments())
