"""Older snapshots in a catalog that shows only the newest, without its server."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import requests
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import LongType, NestedField

from dagster_iceberg_spark.catalog.clients.nessie import version_of, with_history
from dagster_iceberg_spark.catalog.look import _state_of
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.snapshot import Snapshot

NAME = ("db", "t")
API = "http://nessie/api"


class Nessie(RestCatalog):
    """A catalog whose history is a list of metadata files, newest first, two per page."""

    def __init__(self, locations: list[str], **properties: str) -> None:
        self.properties = {"nessie.core-base-uri": f"{API}/", **properties}
        self.locations, self.asked, self.status = locations, list[Any](), 200
        self._session = self  # type: ignore[assignment]

    def get(self, url: str, params: dict[str, Any]) -> requests.Response:
        self.asked.append((url, dict(params)))
        start = int(params.get("page-token", 0))
        entries = [
            {"operations": [{"type": "DELETE", "key": {"elements": ["db", "u"]}}, _put(location)]}
            for location in self.locations[start : start + 2]
        ]
        answer = requests.Response()
        answer.status_code = self.status
        more = start + 2 < len(self.locations)
        page = {"logEntries": [*entries, {"operations": None}], "hasMore": more, "token": str(start + 2)}
        answer.json = lambda **_: page  # type: ignore[method-assign]
        return answer


def _put(location: str) -> dict[str, Any]:
    return {"type": "PUT", "key": {"elements": list(NAME)}, "content": {"metadataLocation": location}}


@pytest.fixture
def versions(tmp_path: Path) -> list[Table]:
    """The versions of a table after each of four appends, newest first, and the empty table."""
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("db")
    found = [catalog.create_table(NAME, Schema(NestedField(1, "id", LongType())))]
    for number in range(4):
        table = catalog.load_table(NAME)
        table.append(pa.table({"id": [number]}))
        found.append(catalog.load_table(NAME))
    return found[::-1]


def shown(versions: list[Table], *, of: int = 0) -> Table:
    """The newest version as Nessie shows it: with only its own snapshot, which has no parent."""
    return Table(NAME, alone(versions[of]), versions[of].metadata_location, versions[of].io, history(versions))


def alone(version: Table) -> TableMetadata:
    head = version.current_snapshot()
    snapshots = [] if head is None else [head.model_copy(update={"parent_snapshot_id": None})]
    properties = {"nessie.commit.id": "c0ffee", "nessie.commit.ref": "main"}
    return version.metadata.model_copy(update={"snapshots": snapshots, "properties": properties})


def history(versions: list[Table]) -> Nessie:
    return Nessie([version.metadata_location for version in versions])


def line(table: Table, back_to: Any) -> list[int | None]:
    state = with_history(_state_of(table, TableIdentifier(("db",), "t")), table, back_to)
    oldest = list(state.ancestors())[-1]
    return [*(item.snapshot_id for item in state.ancestors()), oldest.parent_snapshot_id]


def ids(versions: list[Table]) -> list[int]:
    return [item.metadata.current_snapshot_id for item in versions if item.metadata.current_snapshot_id is not None]


def test_the_history_goes_back_to_the_requested_or_the_first_snapshot(versions: list[Table]) -> None:
    table, known = shown(versions), ids(versions)
    assert line(table, lambda snapshot: snapshot.snapshot_id == known[2]) == [*known[:3], None]
    assert line(table, lambda snapshot: False) == [*known, None]
    catalog: Any = table.catalog
    assert catalog.asked[0][0] == f"{API}/v2/trees/main%40c0ffee/history"


@pytest.mark.parametrize("back_to", [None, lambda snapshot: True])
def test_a_history_that_is_shown_needs_no_request(versions: list[Table], back_to: Any) -> None:
    table = shown(versions)
    assert line(table, back_to) == [ids(versions)[0], None]
    assert table.catalog.asked == []  # type: ignore[attr-defined]


def test_a_snapshot_that_is_not_the_next_one_s_parent_is_skipped(versions: list[Table]) -> None:
    """As if two writers had created the first snapshot and one of the snapshots was lost."""
    table, known = shown(versions, of=1), ids(versions)
    twin: Any = Nessie([versions[index].metadata_location for index in (1, 0, 2, 3, 4)])
    table = Table(NAME, table.metadata, table.metadata_location, table.io, twin)
    assert line(table, lambda snapshot: False) == [*known[1:], None]


def test_the_history_is_marked_incomplete_at_missing_files(versions: list[Table]) -> None:
    table, known = shown(versions), ids(versions)
    Path(versions[2].metadata_location.removeprefix("file://")).unlink()

    def older(snapshot: Snapshot) -> bool:
        return False

    assert line(table, older) == [*known[:2], 0]


def test_an_earlier_version_of_the_table_shows_its_snapshot(versions: list[Table]) -> None:
    table, known = shown(versions), ids(versions)
    found = version_of(table, known[2])
    assert found.metadata.current_snapshot_id == known[2]
    assert found.snapshot_by_id(known[2]) is not None
    assert version_of(table, 7) is table


def test_a_refused_history_request_is_an_error(versions: list[Table]) -> None:
    table: Any = shown(versions)
    table.catalog.status = 401
    with pytest.raises(requests.HTTPError):
        line(table, lambda snapshot: False)


@pytest.mark.parametrize("lacks", ["the API", "the commit", "a history"])
def test_a_catalog_without_a_history_is_used_as_is(versions: list[Table], lacks: str) -> None:
    table = versions[0] if lacks == "a history" else shown(versions)
    if lacks == "the API":
        table.catalog.properties.clear()
    if lacks == "the commit":
        table.metadata.properties.clear()
    state = _state_of(table, TableIdentifier(("db",), "t"))
    assert with_history(state, table, lambda snapshot: False) is state
    assert version_of(table, 7) is table
    assert lacks == "a history" or table.catalog.asked == []  # type: ignore[attr-defined]
