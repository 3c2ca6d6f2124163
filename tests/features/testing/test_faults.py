"""Faults for the pipelines of users.

docs/testing.md: Is the pipeline idempotent?
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from dagster_iceberg_spark import IcebergSparkResource
from dagster_iceberg_spark.testing import Lake, assert_rows

FAULTS = ("dies_after_commit", "loses_answer", "conflicts")
APPEND = {"iceberg/write_disposition": "append"}


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    lake = Lake(tmp_path / "lake")
    yield lake
    lake.close()


def counting(calls: list[str]) -> list[dg.AssetsDefinition]:
    @dg.asset(io_manager_key="iceberg", metadata=APPEND)
    def first() -> pa.Table:
        calls.append("first")
        return pa.table({"a": [1]})

    @dg.asset(io_manager_key="iceberg", metadata=APPEND)
    def second(first: pa.Table) -> pa.Table:
        calls.append("second")
        return first

    return [first, second]


@pytest.mark.parametrize(
    ("fault", "calls"),
    [
        ("dies_after_commit", ["first", "first", "second", "second"]),
        ("loses_answer", ["first", "second"]),
        ("conflicts", ["first", "second"]),
    ],
)
def test_each_table_is_struck_and_written_once(lake: Lake, fault: str, calls: list[str]) -> None:
    called: list[str] = []
    assets = counting(called)
    with getattr(lake, fault)():
        assert lake.materialize(*assets).success
    assert called == calls
    for asset in assets:
        assert_rows(lake.rows(asset), [{"a": 1}])
        assert len(lake.table(asset).snapshots()) == 1


def test_a_pipeline_that_is_not_idempotent_is_found(lake: Lake) -> None:
    sent: list[str] = []

    @dg.asset(io_manager_key="iceberg", metadata=APPEND)
    def billed() -> pa.Table:
        sent.append("invoice")
        return pa.table({"a": [1]})

    with lake.dies_after_commit():
        lake.materialize(billed)
    assert sent == ["invoice", "invoice"]


def test_a_fault_ends_with_its_block(lake: Lake) -> None:
    calls: list[str] = []
    (first, _) = counting(calls)
    with lake.conflicts(times=2):
        result = lake.materialize(first)
    (event,) = result.asset_materializations_for_node("first")
    assert event.metadata["iceberg/retries"].value == 2
    result = lake.materialize(first)
    (event,) = result.asset_materializations_for_node("first")
    assert event.metadata["iceberg/retries"].value == 0
    assert len(lake.rows(first)) == 2


def test_more_conflicts_than_attempts_fail_and_commit_nothing(lake: Lake) -> None:
    (first, _) = counting([])
    with lake.conflicts(times=5):
        result = lake.materialize(first, raise_on_error=False)
    assert not result.success
    assert lake.table(first).snapshots() == []


@pytest.mark.spark
@pytest.mark.parametrize("fault", FAULTS)
def test_spark_is_struck_as_arrow_is(classic_directory: Path, tmp_path: Path, fault: str) -> None:
    from tests.lakes import SPARK_CONF

    lake = Lake(tmp_path / "lake", spark_config=SPARK_CONF)

    @dg.asset(io_manager_key="iceberg", metadata=APPEND)
    def numbers(spark: IcebergSparkResource) -> Any:
        return spark.spark_session.range(2)

    with getattr(lake, fault)():
        assert lake.materialize(numbers).success
    assert_rows(lake.rows(numbers), [{"id": 0}, {"id": 1}])
    assert_rows(lake.spark.spark_session.table("lake.public.numbers"), [{"id": 0}, {"id": 1}])
    assert len(lake.table(numbers).snapshots()) == 1
    lake.close()
