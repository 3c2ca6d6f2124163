"""The meter providers that export the metrics, one in a process for each configuration."""

import importlib
import os
from functools import cache
from typing import TYPE_CHECKING, Final

from dagster_iceberg_spark.distribution import PACKAGE_VERSION
from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.features.metrics.instruments import SCOPE, Instruments

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import AggregationTemporality, MetricExporter

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

    Raises:
        ConfigurationError: The extra `metrics` is not installed.
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
