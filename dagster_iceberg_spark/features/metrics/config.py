"""Where metrics go."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import Field

from dagster_iceberg_spark.assets.observers import ObservedTable, ObservedWrite, Observer
from dagster_iceberg_spark.config.configuration import Configuration, Properties
from dagster_iceberg_spark.features.metrics.instruments import Instruments, otlp_instruments, text_file_instruments


@dataclass(frozen=True, slots=True)
class MetricsObserver(Observer):
    """Records commits, failures and scans with instruments."""

    action: ClassVar = "record the metrics of the write"
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


class Metrics(Configuration):
    """Base class of what exports metrics."""

    @abstractmethod
    def instruments(self) -> Instruments | None:
        """Return the instruments of this process, or None without metrics."""

    def observer(self) -> Observer:
        """Return what records the metrics of an IO manager's tables."""
        instruments = self.instruments()
        return Observer() if instruments is None else MetricsObserver(instruments)


class NoMetrics(Metrics):
    """No metrics."""

    kind: Literal["none"] = Field(default="none", description="No metrics.")

    def instruments(self) -> None:
        """Return None."""


class OpenTelemetryMetrics(Metrics):
    """Metrics for OpenTelemetry, sent by OTLP over HTTP.

    Example:
        >>> from dagster_iceberg_spark import OpenTelemetryMetrics
        >>> OpenTelemetryMetrics(endpoint="http://localhost:4318/v1/metrics").kind
        'opentelemetry'
    """

    kind: Literal["opentelemetry"] = Field(default="opentelemetry", description="Metrics for OpenTelemetry.")
    endpoint: str | None = Field(
        default=None,
        description="URL that receives metrics, such as `http://localhost:4318/v1/metrics`. Default: the meter "
        "provider of the process, or else what the environment variables of OpenTelemetry say, such as "
        "`OTEL_EXPORTER_OTLP_ENDPOINT`.",
    )
    headers: Properties = Field(default={}, description="Headers of each request, such as an API key.")

    def instruments(self) -> Instruments:
        """Return the instruments of this process."""
        return otlp_instruments(self.endpoint, tuple(sorted(self.headers.items())))


class PrometheusMetrics(Metrics):
    """Metrics in a file in Prometheus' text format, for the textfile collector of the node exporter.

    Example:
        >>> from dagster_iceberg_spark import PrometheusMetrics
        >>> PrometheusMetrics(path="/var/lib/node_exporter/iceberg.prom").kind
        'prometheus'
    """

    kind: Literal["prometheus"] = Field(default="prometheus", description="A file in Prometheus' text format.")
    path: str = Field(
        description="File to which the processes of runs add what they count, such as "
        "`/var/lib/node_exporter/iceberg.prom`."
    )

    def instruments(self) -> Instruments:
        """Return the instruments of this process."""
        return text_file_instruments(self.path)


MetricsConfig: TypeAlias = Annotated[NoMetrics | OpenTelemetryMetrics | PrometheusMetrics, Field(discriminator="kind")]
