"""The events of Dagster's integration of OpenLineage, which makes its facets from the metadata of materializations."""

import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from tests.lakes import Lake, frame_asset

pytestmark = [pytest.mark.spark, pytest.mark.full]


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Mapping[str, Any]]]:
    """What a backend of OpenLineage receives."""
    received: list[Mapping[str, Any]] = []

    class Backend(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Backend)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("OPENLINEAGE_URL", f"http://127.0.0.1:{server.server_port}")
    yield received
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def emitting(events: list[Mapping[str, Any]], tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """An instance that sends its events to the backend, as its `dagster.yaml` says."""
    stored = {"module": "dagster._core.storage.event_log", "class": "InMemoryEventLogStorage"}
    storage = {
        "module": "dagster_openlineage",
        "class": "OpenLineageEventLogStorage",
        "config": {"wrapped": stored, "namespace": "warehouse"},
    }
    with dg.DagsterInstance.local_temp(str(tmp_path), overrides={"event_log_storage": storage}) as instance:
        yield instance


def test_openlineage_has_the_columns_and_their_lineage(
    classic_lake: Lake, emitting: dg.DagsterInstance, events: list[Mapping[str, Any]]
) -> None:
    orders = frame_asset("orders", "select 1 as id, 2.5D as price", key_prefix="shop")

    @dg.asset(io_manager_key="iceberg", ins={"orders": dg.AssetIn(key_prefix="shop")})
    def totals(orders: Any) -> Any:
        return orders.where("id > 0").selectExpr("price * 2 as total", "1 as one")

    dg.materialize([orders, totals], resources=classic_lake.resources, instance=emitting)
    outputs = [output for event in events for output in event.get("outputs", ())]
    (facets,) = (output["facets"] for output in outputs if output["name"] == "totals" and output.get("facets"))
    assert [field["name"] for field in facets["schema"]["fields"]] == ["total", "one"]
    lineage = {name: field["inputFields"] for name, field in facets["columnLineage"]["fields"].items()}
    (price,) = lineage["total"]
    assert (price["namespace"], price["name"], price["field"]) == ("warehouse", "shop/orders", "price")
    assert lineage["one"] == []
