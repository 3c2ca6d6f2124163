"""Equality deletes, which streaming engines write, but neither Spark nor pyiceberg."""

import time
import uuid
from typing import Any

import pyarrow as pa
from pyarrow import parquet
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AddSnapshotUpdate, AssertRefSnapshotId, SetSnapshotRefUpdate
from pyiceberg.typedef import Record
from pyiceberg.types import IntegerType, ListType, StructType


class _DeletesWriter(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    def _with_partition(self, format_version: Any) -> Schema:
        """Return the entry's columns. Ids are ints (Iceberg spec, "Manifests"), but pyiceberg 0.12 writes longs."""
        entry = super()._with_partition(format_version)
        ids = ListType(element_id=136, element_type=IntegerType(), element_required=True)
        return Schema(
            *(
                field.model_copy(update={"field_type": _with_type(field.field_type, 135, ids)})
                if isinstance(field.field_type, StructType)
                else field
                for field in entry.fields
            )
        )

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def _with_type(struct: StructType, field_id: int, kind: ListType) -> StructType:
    return StructType(
        *(
            field.model_copy(update={"field_type": kind}) if field.field_id == field_id else field
            for field in struct.fields
        )
    )


def delete_by_equality(table: Table, rows: pa.Table) -> None:
    """Commit the deletion of all rows that have these values, as Flink does.

    Args:
        table: An unpartitioned table.
        rows: Values of some of its columns.
    """
    metadata, base, place = table.metadata, table.current_snapshot(), f"{table.location()}/{uuid.uuid4()}"
    assert base is not None
    ids = [table.schema().find_field(name).field_id for name in rows.column_names]
    fields = [
        field.with_metadata({"PARQUET:field_id": str(number)}) for field, number in zip(rows.schema, ids, strict=True)
    ]
    with table.io.new_output(f"{place}.parquet").create() as file:
        parquet.write_table(rows.cast(pa.schema(fields)), file)
    deletes = DataFile.from_args(
        content=DataFileContent.EQUALITY_DELETES,
        file_path=f"{place}.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=rows.num_rows,
        file_size_in_bytes=len(table.io.new_input(f"{place}.parquet")),
        equality_ids=ids,
    )
    snapshot_id, number = metadata.new_snapshot_id(), metadata.next_sequence_number()
    output = table.io.new_output(f"{place}-m0.avro")
    with _DeletesWriter(table.spec(), table.schema(), output, snapshot_id, "deflate") as manifest:
        manifest.add_entry(
            ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=snapshot_id, data_file=deletes)
        )
    listing = table.io.new_output(f"{place}-snap.avro")
    with write_manifest_list(2, listing, snapshot_id, base.snapshot_id, number, "deflate") as manifests:
        manifests.add_manifests([*base.manifests(table.io), manifest.to_manifest_file()])
    count = str(rows.num_rows)
    snapshot = {
        "snapshot-id": snapshot_id,
        "parent-snapshot-id": base.snapshot_id,
        "sequence-number": number,
        "timestamp-ms": int(time.time() * 1000),
        "manifest-list": listing.location,
        "summary": {"operation": "delete", "added-equality-deletes": count, "total-equality-deletes": count},
        "schema-id": table.schema().schema_id,
    }
    head = {"ref-name": "main", "type": "branch", "snapshot-id": snapshot_id}
    table.catalog.commit_table(
        table,
        (AssertRefSnapshotId.model_validate({"ref": "main", "snapshot-id": base.snapshot_id}),),
        (AddSnapshotUpdate(snapshot=Snapshot.model_validate(snapshot)), SetSnapshotRefUpdate.model_validate(head)),
    )
