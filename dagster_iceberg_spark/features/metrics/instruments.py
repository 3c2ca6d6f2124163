"""The instruments: what is counted and measured, under which names, and the meter providers that export it.

The names of `iceberg.*` and their attributes are those of Iceberg's reporter for OpenTelemetry
(https://github.com/apache/iceberg/pull/16250). Snapshot ids are never attributes: each would begin a new time series.
"""

import importlib
import os
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Final

from dagster_iceberg_spark.distribution import PACKAGE_VERSION
from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.table.snapshot import Commit

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import AggregationTemporality, MetricExporter

SCOPE: Final = "dagster_iceberg_spark"
TABLE: Final = "iceberg.table.name"
OPERATION: Final = "iceberg.operation"
OUTCOME: Final = "outcome"
ERROR_TYPE: Final = "error.type"
"""The name of an attribute in OpenTelemetry's semantic conventions."""

MATERIALIZATIONS: Final = "dagster_iceberg.materializations"
RETRIES: Final = "dagster_iceberg.retries"
WRITE_DURATION: Final = "dagster_iceberg.write.duration"
COMMIT_DURATION: Final = "iceberg.commit.duration"
COMMIT_ATTEMPTS: Final = "iceberg.commit.attempts"
PLANNING_DURATION: Final = "iceberg.scan.planning.duration"

_WRITE_BOUNDARIES_MS: Final = (100, 500, 1_000, 5_000, 15_000, 60_000, 300_000, 900_000, 3_600_000)

COMMIT_COUNTERS: Final[Mapping[str, tuple[str, str, str]]] = {
    "iceberg.commit.records.added": ("added-records", "", "Records added by commits"),
    "iceberg.commit.records.removed": ("deleted-records", "", "Records removed by commits"),
    "iceberg.commit.data_files.added": ("added-data-files", "", "Data files added by commits"),
    "iceberg.commit.data_files.removed": ("deleted-data-files", "", "Data files removed by commits"),
    "iceberg.commit.delete_files.added": ("added-delete-files", "", "Delete files added by commits"),
    "iceberg.commit.delete_files.removed": ("removed-delete-files", "", "Delete files removed by commits"),
    "iceberg.commit.file_size.added_bytes": ("added-files-size", "By", "Bytes of the files added by commits"),
    "iceberg.commit.file_size.removed_bytes": ("removed-files-size", "By", "Bytes of the files removed by commits"),
}
"""The counters of what a commit adds and removes: the key of the snapshot's summary, the unit, and a description."""


class Instruments:
    """The instruments of one meter provider.

    Args:
        provider: The provider.
    """

    def __init__(self, provider: "MeterProvider") -> None:
        meter = provider.get_meter(SCOPE)
        self._provider = provider
        self._counters = {
            name: meter.create_counter(name, unit=unit, description=description)
            for name, (_, unit, description) in COMMIT_COUNTERS.items()
        }
        self._attempts = meter.create_counter(COMMIT_ATTEMPTS, description="Attempts of commits")
        self._commit_duration = meter.create_histogram(COMMIT_DURATION, unit="ms", description="Time spent on commits")
        self._write_duration = meter.create_histogram(
            WRITE_DURATION,
            unit="ms",
            description="Time spent on writing the files of a materialization",
            explicit_bucket_boundaries_advisory=_WRITE_BOUNDARIES_MS,
        )
        self._planning_duration = meter.create_histogram(
            PLANNING_DURATION, unit="ms", description="Time spent on planning the scan of an input"
        )
        self._materializations = meter.create_counter(
            MATERIALIZATIONS, description="Materializations, by their outcome"
        )
        self._retries = meter.create_counter(RETRIES, description="Writes that were planned again")

    def record_commit(self, table: str, commit: Commit) -> None:
        """Record a materialization that has committed.

        Its outcome is `committed`, `staged` if its rows wait for a release, or `adopted` if an earlier attempt, which
        died, had committed it.

        Args:
            table: The table, with its catalog.
            commit: The commit.
        """
        outcome = "adopted" if commit.is_adopted else "staged" if commit.staged_branch else "committed"
        attributes = {TABLE: table, OPERATION: commit.snapshot.operation, OUTCOME: outcome}
        self._materializations.add(1, attributes)
        self._attempts.add(1 + commit.retries, attributes)
        self._retries.add(commit.retries, attributes)
        for name, counter in self._counters.items():
            counter.add(commit.snapshot.count(COMMIT_COUNTERS[name][0]), attributes)
        if not commit.is_adopted:
            self._commit_duration.record(commit.commit_seconds * 1000, attributes)
            self._write_duration.record(commit.write_seconds * 1000, attributes)

    def record_failure(self, table: str, error: BaseException) -> None:
        """Record a materialization that has failed.

        Args:
            table: The table, with its catalog.
            error: Why it has failed. Its class becomes an attribute.
        """
        self._materializations.add(1, {TABLE: table, OUTCOME: "failed", ERROR_TYPE: type(error).__name__})

    def record_planning(self, table: str, seconds: float) -> None:
        """Record how long it took to plan the files of a scan. Spark plans the scans of its DataFrames itself.

        Args:
            table: The table, with its catalog.
            seconds: The time, in seconds.
        """
        self._planning_duration.record(seconds * 1000, {TABLE: table})

    def flush(self) -> None:
        """Export what was recorded, if the provider exports."""
        flush = getattr(self._provider, "force_flush", None)
        if flush is not None:
            flush()


_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""The environment variables of OpenTelemetry that name a receiver."""
_TEMPORALITY: Final = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"
_MODULES: Final = ("filelock", "opentelemetry.exporter.otlp.proto.http.metric_exporter", "prometheus_client")
_INTERVAL_MS: Final = 15_000
_TIMEOUT_SECONDS: Final = 5.0


@cache
def otlp_instruments(endpoint: str | None, headers: tuple[tuple[str, str], ...]) -> Instruments:
    """Return instruments whose metrics are sent by OTLP over HTTP.

    Without an endpoint, the meter provider of the process gets them, as OpenTelemetry expects of libraries. If the
    process has none, the environment variables of OpenTelemetry name the endpoint.

    Args:
        endpoint: The URL that receives metrics, such as `http://localhost:4318/v1/metrics`, or None.
        headers: The headers of each request.

    Raises:
        ConfigurationError: The extra `metrics` is not installed, or no receiver is configured.
    """
    _require_packages()
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.metrics import get_meter_provider
    from opentelemetry.sdk.metrics import MeterProvider

    if endpoint is None and isinstance(get_meter_provider(), MeterProvider):
        return Instruments(get_meter_provider())
    if endpoint is None and not any(map(os.environ.get, _ENDPOINTS)):
        raise ConfigurationError.refusing(
            "export",
            "metrics",
            expected="an endpoint that receives them",
            found="none",
            hint=f"set `endpoint` of OpenTelemetryMetrics, or {_ENDPOINTS[1]}, or the meter provider of the process.",
        )
    return _instruments(
        OTLPMetricExporter(
            endpoint=endpoint,
            headers=dict(headers) or None,
            timeout=_TIMEOUT_SECONDS,
            preferred_temporality=None if _TEMPORALITY in os.environ else deltas(),
        )
    )


@cache
def text_file_instruments(path: str) -> Instruments:
    """Return instruments whose metrics are added to a file in Prometheus' text format.

    Args:
        path: The file.
    """
    _require_packages()
    from dagster_iceberg_spark.features.metrics.text_file import TextFileExporter

    return _instruments(TextFileExporter(path))


def deltas() -> "dict[type, AggregationTemporality]":
    """Return the temporality of processes that are short: each export has what was counted since the last one.

    Cumulative values of several processes would look like one counter that is reset again and again.
    """
    from opentelemetry.sdk.metrics import Counter, Histogram
    from opentelemetry.sdk.metrics.export import AggregationTemporality

    return {Counter: AggregationTemporality.DELTA, Histogram: AggregationTemporality.DELTA}


def _instruments(exporter: "MetricExporter") -> Instruments:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    own = Resource.create({"service.name": SCOPE, "service.version": PACKAGE_VERSION})
    resource = own.merge(OTELResourceDetector().detect())  # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win
    reader = PeriodicExportingMetricReader(
        exporter, export_interval_millis=_INTERVAL_MS, export_timeout_millis=_TIMEOUT_SECONDS * 1000
    )
    return Instruments(MeterProvider([reader], resource=resource))


def _require_packages() -> None:
    try:
        for module in _MODULES:
            importlib.import_module(module)
    except ImportError as error:
        raise ConfigurationError.missing_package(
            "export",
            "metrics",
            package="for OpenTelemetry and Prometheus",
            found=str(error),
            install="dagster-iceberg-spark[metrics]",
        ) from error
