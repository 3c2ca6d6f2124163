"""Records the metrics of an IO manager's tables."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dagster_iceberg_spark.assets.observers import ObservedTable, ObservedWrite, Observer
from dagster_iceberg_spark.features.metrics.instruments import Instruments


@dataclass(frozen=True, slots=True)
class MetricsObserver(Observer):
    """Records commits, failures and scans with instruments."""

    instruments: Instruments

    def wrote(self, write: ObservedWrite) -> Mapping[str, Any]:
        """Record the commit."""
        self.instruments.record_commit(write.table.name, write.commit)
        return {}

    def failed(self, table: ObservedTable, error: BaseException) -> None:
        """Count the failure."""
        self.instruments.record_failure(table.name, error)

    def read(self, table: ObservedTable, *, planning_seconds: float) -> None:
        """Record how long the scan took to plan."""
        self.instruments.record_planning(table.name, planning_seconds)

    def flush(self) -> None:
        """Export the metrics of the process."""
        self.instruments.flush()
