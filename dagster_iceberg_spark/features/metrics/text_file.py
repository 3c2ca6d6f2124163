"""Adds metrics to a file in Prometheus' text format, as the textfile collector of the node exporter reads it.

The processes of runs are short, so that no server can scrape them. Each adds what it has counted to the same file.
"""

import logging
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from filelock import FileLock
from filelock import Timeout as LockTimeoutError
from opentelemetry.sdk.metrics.export import (
    HistogramDataPoint,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
)
from opentelemetry.sdk.metrics.export import Metric as Measured
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from dagster_iceberg_spark.features.metrics.instruments import deltas

_UNITS: Final = {"ms": "milliseconds", "By": "bytes"}
"""The suffixes of units (OpenTelemetry specification, "Prometheus and OpenMetrics compatibility")."""
_OWN: Final = re.compile(rb"^# TYPE (dagster_)?iceberg_", re.MULTILINE)
"""A line in a file of this package."""
_logger = logging.getLogger(__name__)

Sample = tuple[str, tuple[tuple[str, str], ...]]
"""The name and the labels of a sample."""


class TextFileExporter(MetricExporter):
    """Adds metrics to the numbers in a file.

    Args:
        path: The file. It is created with its directory.
    """

    def __init__(self, path: str) -> None:
        super().__init__(preferred_temporality=deltas())
        self._path = Path(path)

    def export(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **_: Any
    ) -> MetricExportResult:  # the arguments are OpenTelemetry's
        """Add the metrics to the file. If that fails, a warning says so, and nothing else happens."""
        measured = [
            metric
            for resource in metrics_data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        ]
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{self._path}.lock", timeout=timeout_millis / 1000):
                self._add(measured)
        except (OSError, ValueError, LockTimeoutError) as error:
            _logger.warning("Cannot add metrics to %s: %s", self._path, error)
            return MetricExportResult.FAILURE
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 10_000) -> bool:  # noqa: ARG002 - OpenTelemetry's signature
        """Do nothing: `export` has written everything."""
        return True

    def shutdown(self, timeout_millis: float = 30_000, **_: Any) -> None:
        """Do nothing: no file is open."""

    def _add(self, measured: Iterable[Measured]) -> None:
        families = {family.name: family for family in self._families()}
        for metric in measured:
            added = _family(metric)
            families[added.name] = _sum(families[added.name], added) if added.name in families else added
        registry = CollectorRegistry()
        registry.register(_Families(families.values()))
        draft = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        draft.write_bytes(generate_latest(registry))
        draft.replace(self._path)

    def _families(self) -> Sequence[Metric]:
        """Return the metrics in the file. A broken file of this package is put aside; another one is an error."""
        content = self._path.read_bytes() if self._path.exists() else b""
        try:
            return [*text_string_to_metric_families(content.decode())]
        except ValueError as error:
            if not _OWN.search(content):
                raise
            aside = self._path.with_name(f"{self._path.name}.broken")
            self._path.replace(aside)
            _logger.warning("Counting from zero in %s: it is broken (%s) and is now %s.", self._path, error, aside)
            return ()


class _Families(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _family(metric: Measured) -> Metric:
    """Return a metric as Prometheus names it."""
    unit = _UNITS.get(metric.unit or "", "")
    name = metric.name.replace(".", "_")
    name = f"{name}_{unit}" if unit and not name.endswith(unit) else name
    family = Metric(name, metric.description or "", "counter")
    for point in metric.data.data_points:
        labels = {key.replace(".", "_"): str(value) for key, value in (point.attributes or {}).items()}
        if isinstance(point, NumberDataPoint):
            family.add_sample(f"{name}_total", labels, point.value)
        elif isinstance(point, HistogramDataPoint):
            family.type = "histogram"
            for edge, count in _cumulative(point):
                family.add_sample(f"{name}_bucket", {**labels, "le": edge}, count)
            family.add_sample(f"{name}_sum", labels, point.sum)
            family.add_sample(f"{name}_count", labels, point.count)
    return family


def _cumulative(point: HistogramDataPoint) -> Iterator[tuple[str, int]]:
    """Yield the upper edges of the buckets, and how many values are not above them."""
    total = 0
    for edge, count in zip([*map(str, map(float, point.explicit_bounds)), "+Inf"], point.bucket_counts, strict=True):
        total += count
        yield edge, total


def _sum(family: Metric, added: Metric) -> Metric:
    """Return a metric whose samples are the sums of both."""
    values: dict[Sample, float] = {}
    for sample in (*family.samples, *added.samples):
        key = (sample.name, tuple(sorted(sample.labels.items())))
        values[key] = values.get(key, 0) + sample.value
    total = Metric(added.name, added.documentation, added.type)
    for (name, labels), value in values.items():
        total.add_sample(name, dict(labels), value)
    return total
