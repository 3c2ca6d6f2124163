"""Which files a merge reads, as Iceberg itself reports them to a REST catalog (`ReportMetricsRequest`)."""

import json
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from dagster_iceberg_spark import RestCatalog
from tests.lakes import Lake, frame_asset, open_lake
from tests.servers.conftest import emptied
from tests.servers.proxy import Answer, HttpProxy, Request
from tests.servers.rest import RestServer

pytestmark = [pytest.mark.server, pytest.mark.spark]
FILES: Final = 20
ROWS: Final = 100


class ListeningProxy(HttpProxy):
    """A catalog that keeps what it is told of scans.

    Attributes:
        scans: Of each scan of the table `t`, how many of its data files were read.
    """

    def __init__(self, uri: str) -> None:
        self.scans: list[int] = []
        super().__init__(uri)

    def answer_to(self, request: Request) -> Answer | None:
        if re.search(r"/tables/t/metrics$", request.path):
            report = json.loads(request.body)
            if report["report-type"] == "scan-report":
                self.scans.append(report["metrics"].get("result-data-files", {"value": 0})["value"])
        return self.forward(request)


@pytest.fixture
def listening(rest: RestServer) -> Iterator[ListeningProxy]:
    emptied(RestCatalog(uri=rest.uri))
    with closing(ListeningProxy(rest.uri)) as proxy:
        yield proxy


@pytest.fixture
def lake(listening: ListeningProxy, engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    remote = request.getfixturevalue("connect_server") if engine == "connect" else None
    yield from open_lake(RestCatalog(uri=listening.uri), tmp_path, remote)


def merged(keys: str, value: str, **merge: Any) -> Any:
    metadata = {"iceberg/write_disposition": "merge", "iceberg/merge_keys": ["id"], "iceberg/merge": merge}
    return frame_asset("t", f"select id, {value} as v from range({keys})", metadata=metadata)


@pytest.mark.sample(2)
@pytest.mark.parametrize("merge", [{}, {"strategy": "insert_only"}, {"strategy": "delete_insert"}], ids=str)
def test_a_merge_reads_the_files_that_its_keys_can_be_in(
    lake: Lake, listening: ListeningProxy, merge: dict[str, Any]
) -> None:
    lake.materialize(merged("0, 1", "0L"))
    for number in range(FILES):
        rows = lake.session.range(number * ROWS + 1, (number + 1) * ROWS + 1, 1, 1)
        rows.selectExpr("id", "0L as v").writeTo("lake.db.t").append()
    files = len(lake.table("t").inspect.files())
    assert files == FILES + 1
    listening.scans.clear()
    lake.materialize(merged("205, 215", "1L", **merge))
    assert listening.scans
    assert max(listening.scans) == 1, f"of {files} files: {listening.scans}"
    listening.scans.clear()
    lake.materialize(merged("205, 215", "1L", **merge))
    assert max(listening.scans) <= 1, f"of {files} files: {listening.scans}"
    assert lake.arrow("t").num_rows == FILES * ROWS + 1
