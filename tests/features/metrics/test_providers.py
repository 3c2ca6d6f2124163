"""Who gets the metrics of a process.

docs/metrics.md: OpenTelemetry
"""

import subprocess
import sys

import pytest

from dagster_iceberg_spark import ConfigurationError, IcebergPySparkIOManager, OpenTelemetryMetrics
from dagster_iceberg_spark.features.metrics.instruments import otlp_instruments, text_file_instruments
from tests.features.metrics.receiver import receiver, shut_down

OF_THE_PROCESS = """
from opentelemetry.metrics import set_meter_provider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from dagster_iceberg_spark import OpenTelemetryMetrics
reader = InMemoryMetricReader()
set_meter_provider(MeterProvider([reader]))
OpenTelemetryMetrics().instruments().record_planning("lake.db.t", 1.0)
print(reader.get_metrics_data().to_json())
"""
WITHOUT = """
import sys
import dagster as dg
from dagster_iceberg_spark import IcebergPySparkIOManager
IcebergPySparkIOManager()
assert not [name for name in sys.modules if name.startswith(("opentelemetry", "prometheus_client"))]
"""


def python(program: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_meter_provider_of_the_process_gets_them() -> None:
    assert '"iceberg.scan.planning.duration"' in python(OF_THE_PROCESS)


def test_without_metrics_no_package_is_loaded() -> None:
    python(WITHOUT)


def test_the_environment_names_the_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver() as got:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", got.endpoint)
        monkeypatch.setenv("OTEL_SERVICE_NAME", "nightly")
        otlp_instruments.cache_clear()
        instruments = OpenTelemetryMetrics().instruments()
        instruments.record_planning("lake.db.t", 1.5)
        instruments.flush()
        shut_down(instruments)
    [(attributes, point)] = got.points("iceberg.scan.planning.duration")
    assert (attributes, point.count, point.sum) == ({"iceberg.table.name": "lake.db.t"}, 1, 1500)
    resource = got.requests[0].resource_metrics[0].resource
    assert "nightly" in {item.value.string_value for item in resource.attributes}


def test_nobody_who_gets_them_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    otlp_instruments.cache_clear()
    with pytest.raises(ConfigurationError, match="expected an endpoint that receives them, found none"):
        OpenTelemetryMetrics().instruments()


def test_a_missing_package_is_an_error_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    text_file_instruments.cache_clear()
    with pytest.raises(ConfigurationError, match=r"install `dagster-iceberg-spark\[metrics\]`"):
        text_file_instruments("metrics.prom")


def test_headers_are_in_no_message() -> None:
    metrics = OpenTelemetryMetrics(endpoint="http://localhost:1", headers={"api-key": "s3cret"})
    assert "s3cret" not in repr(IcebergPySparkIOManager(metrics=metrics))
