"""The IO manager, with what observes its tables: metrics, column lineage and mirrors."""

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from dagster_iceberg_spark.assets.observers import Observer
from dagster_iceberg_spark.assets.table_io_manager import TableIOManager
from dagster_iceberg_spark.features.contracts.observer import ContractObserver
from dagster_iceberg_spark.features.file_sizes.observer import FileSizeObserver
from dagster_iceberg_spark.features.lineage.observer import ColumnLineageObserver
from dagster_iceberg_spark.features.metrics.config import MetricsConfig, NoMetrics
from dagster_iceberg_spark.features.mirror.config import MirrorConfig, NoMirror


class IcebergPySparkIOManager(TableIOManager):
    """Stores the DataFrames that assets return as Iceberg tables, and loads them for downstream assets.

    Example:
        >>> import dagster as dg
        >>> from dagster_iceberg_spark import IcebergPySparkIOManager
        >>> defs = dg.Definitions(assets=[], resources={"iceberg": IcebergPySparkIOManager()})
    """

    column_lineage: bool = Field(
        default=True,
        description="Whether a materialization reports the upstream columns that each column is derived from "
        "(`dagster/column_lineage`), from the plan of the DataFrame.",
    )
    metrics: MetricsConfig = Field(
        default=NoMetrics(),
        description="Where metrics of writes and reads go: `OpenTelemetryMetrics` or `PrometheusMetrics`. Needs the "
        "extra `metrics`. Default: nowhere.",
    )
    mirror: MirrorConfig = Field(
        default=NoMirror(),
        description="Where the tables are mirrored: a `DuckLakeMirror`. Needs the extra `ducklake`. Default: nowhere.",
    )

    def __init__(self, **data: Any) -> None:
        """Take the fields as keywords. Without `spark`, tables go to an embedded catalog and local files.

        An `environment` that is an EnvVar which is not set stands for production.
        """
        super().__init__(**data)

    def observers(self) -> Sequence[Observer]:
        """Return what observes the tables. A field builds each, unless assets configure it alone."""
        return (
            self.metrics.observer(),
            ColumnLineageObserver(is_reported=self.column_lineage),
            ContractObserver(),
            FileSizeObserver(),
            self.mirror.observer(),
        )
