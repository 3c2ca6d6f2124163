"""From the JSON of a table's metadata to its state."""

from typing import Any

import pytest

from dagster_iceberg_spark.catalog.document import Snapshots, is_in_current_form, table_state
from dagster_iceberg_spark.table.partitioning import SortField
from tests.core.table.samples import TABLE

SNAPSHOT = {
    "snapshot-id": 7,
    "parent-snapshot-id": 6,
    "timestamp-ms": 1000,
    "schema-id": 1,
    "summary": {"operation": "append", "added-records": "3"},
}
DOCUMENT: dict[str, Any] = {
    "location": "file:///lake/nyc/flights",
    "format-version": 2,
    "current-schema-id": 1,
    "schemas": [
        {"schema-id": 0, "fields": [{"id": 1, "name": "at", "required": False, "type": "timestamptz"}]},
        {
            "schema-id": 1,
            "identifier-field-ids": [2],
            "fields": [
                {"id": 1, "name": "ts", "required": False, "type": "timestamptz"},
                {"id": 2, "name": "key", "required": True, "type": "string"},
            ],
        },
    ],
    "partition-specs": [
        {"spec-id": 0, "fields": []},
        {"spec-id": 1, "fields": [{"source-id": 1, "field-id": 1000, "transform": "day", "name": "ts_day"}]},
    ],
    "default-spec-id": 1,
    "sort-orders": [
        {"order-id": 0, "fields": []},
        {
            "order-id": 1,
            "fields": [{"source-id": 2, "transform": "identity", "direction": "desc", "null-order": "nulls-last"}],
        },
    ],
    "default-sort-order-id": 1,
    "properties": {"owner": "someone"},
    "snapshots": [SNAPSHOT],
    "snapshot-log": [{"timestamp-ms": 1000, "snapshot-id": 7}],
    "refs": {"main": {"snapshot-id": 7, "type": "branch"}, "v1": {"snapshot-id": 7, "type": "tag"}},
}


def test_a_document_has_the_state_of_the_table() -> None:
    state = table_state(DOCUMENT, TABLE, Snapshots({7: SNAPSHOT}))
    assert (state.identifier, state.location, state.format_version) == (TABLE, "file:///lake/nyc/flights", 2)
    assert state.schema.names == ("ts", "key")
    assert [(field.column, field.transform.name) for field in state.spec.live_fields] == [("ts", "day")]
    assert state.identifier_fields == ("key",)
    assert state.sort_order == (SortField("key", "desc", "last", "identity"),)
    assert state.properties == {"owner": "someone"}
    assert dict(state.refs) == {"main": 7, "v1": 7}
    assert state.branches == {"main"}
    assert state.snapshot_log == ((1000, 7),)


def test_a_snapshot_is_made_from_its_document() -> None:
    found = table_state(DOCUMENT, TABLE, Snapshots({7: SNAPSHOT})).snapshots[7]
    assert (found.snapshot_id, found.parent_snapshot_id, found.committed_at_ms, found.schema_id) == (7, 6, 1000, 1)
    assert (found.operation, found.summary) == ("append", {"added-records": "3"})


def test_a_snapshot_is_made_when_it_is_asked_for() -> None:
    made = []

    def documented(source: Any) -> Any:
        made.append(source)
        return SNAPSHOT

    snapshots = Snapshots({6: "six", 7: "seven"}, documented)
    assert (len(snapshots), list(snapshots), made) == (2, [6, 7], [])
    assert snapshots[7].snapshot_id == 7
    assert made == ["seven"]


def test_a_column_that_is_gone_has_no_name() -> None:
    spec = {"spec-id": 1, "fields": [{"source-id": 9, "field-id": 1000, "transform": "identity", "name": "gone"}]}
    state = table_state({**DOCUMENT, "partition-specs": [spec]}, TABLE, Snapshots({}))
    assert [field.column for field in state.spec.fields] == ["?"]


@pytest.mark.parametrize("missing", ["schemas", "partition-specs", "sort-orders", "refs"])
def test_writers_of_version_1_may_use_older_forms(missing: str) -> None:
    assert is_in_current_form(DOCUMENT)
    assert not is_in_current_form({key: value for key, value in DOCUMENT.items() if key != missing})


def test_a_table_without_snapshots_needs_no_refs() -> None:
    assert is_in_current_form({**DOCUMENT, "snapshots": [], "refs": {}})
