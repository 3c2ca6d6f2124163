"""Metrics in a file in Prometheus' text format.

docs/metrics.md: Prometheus
"""

import subprocess
import sys
from pathlib import Path

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from prometheus_client.parser import text_string_to_metric_families

from dagster_iceberg_spark.features.metrics.instruments import Instruments
from dagster_iceberg_spark.features.metrics.text_file import TextFileExporter

ADDING = """
import sys
from dagster_iceberg_spark import PrometheusMetrics
instruments = PrometheusMetrics(path=sys.argv[1]).instruments()
for _ in range(3):
    instruments.record_planning("lake.db.t", 0.2)
    instruments.record_failure("lake.db.t", KeyError())
    instruments.flush()
"""


def samples(path: Path) -> dict[str, float]:
    families = text_string_to_metric_families(path.read_text(encoding="utf-8"))
    return {
        f"{sample.name}{sorted(sample.labels.items())}": sample.value
        for family in families
        for sample in family.samples
    }


def instruments_of(path: Path) -> Instruments:
    return Instruments(MeterProvider([PeriodicExportingMetricReader(TextFileExporter(str(path)))]))


@pytest.mark.full
def test_processes_add_to_the_same_numbers(tmp_path: Path) -> None:
    path = tmp_path / "metrics" / "iceberg.prom"
    processes = [subprocess.Popen([sys.executable, "-c", ADDING, str(path)]) for _ in range(3)]
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    found = samples(path)
    table = ("iceberg_table_name", "lake.db.t")
    failed = [("error_type", "KeyError"), table, ("outcome", "failed")]
    assert found[f"dagster_iceberg_materializations_total{failed}"] == 9
    assert found[f"iceberg_scan_planning_duration_milliseconds_count{[table]}"] == 9
    assert found[f"iceberg_scan_planning_duration_milliseconds_sum{[table]}"] == pytest.approx(1800)
    assert found[f"iceberg_scan_planning_duration_milliseconds_bucket{[table, ('le', '100.0')]}"] == 0
    assert found[f"iceberg_scan_planning_duration_milliseconds_bucket{[table, ('le', '250.0')]}"] == 9
    assert found[f"iceberg_scan_planning_duration_milliseconds_bucket{[table, ('le', '+Inf')]}"] == 9


@pytest.mark.parametrize("content", ["this is { no metric", "a_total 1\n{"])
def test_the_file_of_somebody_else_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture, content: str) -> None:
    path = tmp_path / "other.prom"
    path.write_text(content, encoding="utf-8")
    instruments = instruments_of(path)
    instruments.record_planning("lake.db.t", 1.0)
    instruments.flush()
    assert path.read_text(encoding="utf-8") == content
    assert f"Cannot add metrics to {path}" in caplog.text


@pytest.mark.parametrize("damage", [b"\niceberg_scan{", b"\xff\xfe", b'\niceberg_x{a="'])
def test_a_broken_file_is_put_aside_and_counting_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: bytes
) -> None:
    path = tmp_path / "iceberg.prom"
    instruments = instruments_of(path)
    for _ in range(2):
        instruments.record_planning("lake.db.t", 1.0)
        instruments.flush()
        path.write_bytes(broken := path.read_bytes() + damage)
    instruments.record_planning("lake.db.t", 1.0)
    instruments.flush()
    assert samples(path)["iceberg_scan_planning_duration_milliseconds_count[('iceberg_table_name', 'lake.db.t')]"] == 1
    assert (tmp_path / "iceberg.prom.broken").read_bytes() == broken
    assert f"Counting from zero in {path}: it is broken" in caplog.text


def test_a_directory_that_cannot_be_written_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    instruments = instruments_of(tmp_path / "file" / "iceberg.prom")
    instruments.record_planning("lake.db.t", 1.0)
    instruments.flush()
    assert "Cannot add metrics to" in caplog.text
