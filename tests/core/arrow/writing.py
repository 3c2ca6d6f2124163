"""A lake without a JVM: assets that return rows, written by Arrow."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest

from dagster_iceberg_spark import IcebergPySparkIOManager, IcebergSparkResource, SqlCatalog
from dagster_iceberg_spark.arrow.write.engine import ArrowEngine

if TYPE_CHECKING:
    from pyiceberg.table import Table

DAYS = dg.DailyPartitionsDefinition("2024-01-01")


@dataclass
class ArrowLake:
    """A catalog on SQLite and local files."""

    directory: Path
    instance: dg.DagsterInstance
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def io_manager(self) -> IcebergPySparkIOManager:
        given = {"namespace": "db", "engine": "arrow", **self.options}
        return IcebergPySparkIOManager(spark=self.spark, **given)

    @property
    def spark(self) -> IcebergSparkResource:
        catalog = SqlCatalog(uri=f"sqlite:///{self.directory}/catalog.db", warehouse=str(self.directory / "wh"))
        return IcebergSparkResource(catalog=catalog)

    def write(self, rows: Any, *, name: str = "t", key: str | None = None, **kwargs: Any) -> dg.ExecuteInProcessResult:
        """Materialize an asset that returns the rows, or what a function returns."""

        def returned() -> Any:
            return rows() if callable(rows) else rows

        asset: dg.AssetsDefinition = dg.asset(name=name, io_manager_key="iceberg", **kwargs)(returned)
        resources = {"iceberg": self.io_manager}
        return dg.materialize([asset], partition_key=key, resources=resources, instance=self.instance)

    def write_days(self, rows: Any, first: str, last: str, **metadata: Any) -> dg.ExecuteInProcessResult:
        """Materialize a range of daily partitions in one run."""
        tags = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}
        policy = dg.BackfillPolicy.single_run()

        @dg.asset(
            name="t",
            io_manager_key="iceberg",
            partitions_def=DAYS,
            backfill_policy=policy,
            metadata={"partition_expr": "at", **metadata},
        )
        def asset() -> Any:
            return rows

        resources = {"iceberg": self.io_manager}
        return dg.materialize([asset], tags=tags, resources=resources, instance=self.instance)

    def table(self, name: str = "t") -> "Table":
        return self.spark.pyiceberg_catalog.load_table(("db", name))

    def rows(self, *columns: str, name: str = "t") -> list[Any]:
        """Return the rows, sorted. For one column, return its values."""
        table = self.table(name).scan().to_arrow()
        picked = [table.column(column).to_pylist() for column in columns or table.column_names]
        return sorted(picked[0] if len(picked) == 1 else zip(*picked, strict=True))

    def operations(self, name: str = "t") -> Sequence[str]:
        return [item.summary.operation.value for item in self.table(name).snapshots() if item.summary is not None]

    def files(self, name: str = "t") -> list[Any]:
        return [task.file for task in self.table(name).scan().plan_files()]


def timed_writes(monkeypatch: pytest.MonkeyPatch, *, seconds: float) -> list[tuple[str, float, float]]:
    """Make each write by Arrow take longer. Return a list that gets its partitions, its beginning and its end."""
    spans, own_write = list[tuple[str, float, float]](), ArrowEngine.write

    def write(engine: ArrowEngine, *args: Any) -> Any:
        began = time.monotonic()
        time.sleep(seconds)
        counts = own_write(engine, *args)
        spans.append((engine.request.materialization.scope.describe(), began, time.monotonic()))
        return counts

    monkeypatch.setattr(ArrowEngine, "write", write)
    return spans


def metadata_of(result: dg.ExecuteInProcessResult, name: str = "t") -> dict[str, Any]:
    [materialization] = result.asset_materializations_for_node(name)
    return {key: value.value for key, value in materialization.metadata.items()}
