"""A receiver of metrics by OTLP over HTTP, which keeps what it gets."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

from dagster_iceberg_spark.metrics.instruments import Instruments


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
        """Return the attributes and points of a metric in the newest request that has it."""
        for request in reversed(self.requests):
            found = [
                metric
                for resource in request.resource_metrics
                for scope in resource.scope_metrics
                for metric in scope.metrics
                if metric.name == name
            ]
            if found:
                kind = found[0].WhichOneof("data")
                points = getattr(found[0], str(kind)).data_points
                return [({item.key: item.value.string_value for item in point.attributes}, point) for point in points]
        return []

    def values(self, name: str) -> dict[tuple[str, ...], int]:
        """Return the values of a counter by the values of its attributes, in the order of their names."""
        return {
            tuple(value for _, value in sorted(attributes.items())): int(point.as_int)
            for attributes, point in self.points(name)
        }


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
