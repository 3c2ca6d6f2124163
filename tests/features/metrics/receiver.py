"""A receiver of metrics by OTLP over HTTP, which keeps what it gets."""

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality

from dagster_iceberg_spark.features.metrics.instruments import Instruments


@dataclass
class Receiver:
    """What a receiver has got.

    Args:
        status: The status of its responses.
    """

    endpoint: str = ""
    status: int = 200
    requests: list[ExportMetricsServiceRequest] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)

    def points(self, name: str) -> list[tuple[dict[str, str], Any]]:
        """Return the attributes and points of a metric in all requests. Each is what was counted since the last one."""
        metrics = [
            metric
            for request in self.requests
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
        ]
        points = []
        for metric in metrics:
            data = getattr(metric, str(metric.WhichOneof("data")))
            assert data.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
            points += [
                ({item.key: item.value.string_value for item in point.attributes}, point) for point in data.data_points
            ]
        return points

    def values(self, name: str) -> dict[tuple[str, ...], int]:
        """Return what a counter has counted by the values of its attributes, in the order of their names."""
        values = Counter[tuple[str, ...]]()
        for attributes, point in self.points(name):
            values[tuple(value for _, value in sorted(attributes.items()))] += int(point.as_int)
        return dict(values)


@contextmanager
def receiver() -> Iterator[Receiver]:
    """Run a receiver inside the block."""
    got = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.requests.append(ExportMetricsServiceRequest.FromString(body))
            got.headers.append(dict(self.headers))
            self.send_response(got.status)
            self.end_headers()
            self.wfile.write(ExportMetricsServiceResponse().SerializeToString())

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    got.endpoint = f"http://127.0.0.1:{server.server_port}/v1/metrics"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield got
    finally:
        server.shutdown()
        server.server_close()


def shut_down(instruments: Instruments) -> None:
    """Let nothing be exported any more, also at the end of the process."""
    provider: Any = instruments._provider
    provider.shutdown()
