"""Converts a table's metadata file (Iceberg spec, "Table Metadata Fields") to the values of `table/`.

The JSON document is used directly. A long history costs the parsing of the JSON, but no objects that are not needed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.partitioning import PartitionField, PartitionSpec, SortField, parse_transform
from dagster_iceberg_spark.table.schema import Schema, parse_schema
from dagster_iceberg_spark.table.snapshot import MAIN_BRANCH, RefRetention, Snapshot, TableState

Document = Mapping[str, Any]

_CURRENT_FORM = ("schemas", "partition-specs", "sort-orders")
"""Fields that writers of format version 1 may leave out, because they write the older forms instead."""


def document_of(item: BaseModel) -> Document:
    """Return a part of a table's metadata as a JSON document."""
    return item.model_dump(mode="json", by_alias=True)


class Snapshots(Mapping[int, Snapshot]):
    """Snapshots by id. Each is converted on demand, because few of a long history are needed."""

    def __init__(self, by_id: Mapping[int, Any], documented: Callable[[Any], Document] = dict) -> None:
        """Store the sources of the snapshots, and the function that returns the document of a source."""
        self._by_id = by_id
        self._documented = documented

    def __getitem__(self, snapshot_id: int) -> Snapshot:
        return snapshot_of(self._documented(self._by_id[snapshot_id]))

    def __iter__(self) -> Iterator[int]:
        return iter(self._by_id)

    def __len__(self) -> int:
        return len(self._by_id)


def is_in_current_form(document: Document) -> bool:
    """Return whether the document has all lists that `table_state` reads."""
    has_refs = "refs" in document or not document.get("snapshots")
    return has_refs and all(key in document for key in _CURRENT_FORM)


def table_state(document: Document, identifier: TableIdentifier, snapshots: Snapshots) -> TableState:
    """Return the state of the table in the document, with snapshots, which the document may leave out."""
    schemas = {item["schema-id"]: parse_schema(item) for item in document["schemas"]}
    current = schemas[document["current-schema-id"]]
    identifiers = next(
        item.get("identifier-field-ids", ()) for item in document["schemas"] if item["schema-id"] == current.schema_id
    )
    orders = {item["order-id"]: item["fields"] for item in document["sort-orders"]}
    refs = document.get("refs") or {}
    return TableState(
        identifier=identifier,
        location=document["location"],
        format_version=document["format-version"],
        schema=current,
        specs={item["spec-id"]: _spec(item, (current, *schemas.values())) for item in document["partition-specs"]},
        default_spec_id=document["default-spec-id"],
        properties=dict(document.get("properties") or {}),
        snapshots=snapshots,
        refs={name: ref["snapshot-id"] for name, ref in refs.items()},
        branches=frozenset({MAIN_BRANCH, *(name for name, ref in refs.items() if ref["type"] == "branch")}),
        schemas=schemas,
        identifier_fields=tuple(sorted(current.name_of(item) or "?" for item in identifiers)),
        sort_order=tuple(_sort_field(item, current) for item in orders[document["default-sort-order-id"]]),
        snapshot_log=tuple((item["timestamp-ms"], item["snapshot-id"]) for item in document.get("snapshot-log") or ()),
        retention={name: _retention(ref) for name, ref in refs.items()},
        uuid=str(document.get("table-uuid") or ""),
    )


def _retention(document: Document) -> RefRetention:
    names = ("max-ref-age-ms", "max-snapshot-age-ms", "min-snapshots-to-keep")
    return RefRetention(*(document.get(name) for name in names))


def _spec(document: Document, schemas: Iterable[Schema]) -> PartitionSpec:
    candidates = tuple(schemas)
    return PartitionSpec(
        tuple(
            PartitionField(
                column=next((name for schema in candidates if (name := schema.name_of(field["source-id"]))), "?"),
                transform=parse_transform(field["transform"]),
                name=field["name"],
            )
            for field in document["fields"]
        ),
        document["spec-id"],
    )


def _sort_field(document: Document, schema: Schema) -> SortField:
    return SortField(
        schema.name_of(document["source-id"]) or "?",
        document["direction"],
        "first" if document["null-order"] == "nulls-first" else "last",
        document["transform"],
    )


def snapshot_of(document: Document) -> Snapshot:
    """Return the snapshot in a document."""
    summary = dict(document.get("summary") or {})
    return Snapshot(
        snapshot_id=document["snapshot-id"],
        parent_snapshot_id=document.get("parent-snapshot-id"),
        committed_at_ms=document["timestamp-ms"],
        operation=summary.pop("operation", "unknown"),
        summary=summary,
        schema_id=document.get("schema-id"),
        sequence_number=document.get("sequence-number"),
        first_row_id=document.get("first-row-id"),
    )
