"""Commits to a SQL catalog on the metadata document: what it changes, and what it leaves to pyiceberg."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import StaticTable
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemovePropertiesUpdate,
    RemoveSnapshotRefUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
)

from dagster_iceberg_spark.catalog import document_commit
from dagster_iceberg_spark.catalog.document_commit import StagedMetadata, stage, table_to_commit_to
from dagster_iceberg_spark.catalog.look import pointed_document
from dagster_iceberg_spark.table.identifier import TableIdentifier
from tests.core.arrow.writing import ArrowLake

T = TableIdentifier(("db",), "t")


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[ArrowLake]:
    with dg.DagsterInstance.ephemeral() as instance:
        lake = ArrowLake(tmp_path, instance)
        for value in (1, 2):
            lake.write(pa.table({"v": [value]}), metadata={"iceberg/write_disposition": "append"})
        yield lake


def staged(lake: ArrowLake, *updates: Any, requirements: tuple[Any, ...] = ()) -> StagedMetadata | None:
    catalog: Any = lake.spark.pyiceberg_catalog
    found = pointed_document(catalog, T)
    assert found is not None
    return stage(catalog, *found, requirements, updates)


def document(metadata: StagedMetadata | None) -> dict[str, Any]:
    assert metadata is not None
    found: dict[str, Any] = json.loads(Path(metadata.location.removeprefix("file://")).read_text())
    return found


def ref(name: str, snapshot_id: int, **more: int) -> SetSnapshotRefUpdate:
    fields = {"ref-name": name, "type": SnapshotRefType.BRANCH, "snapshot-id": snapshot_id, **more}
    return SetSnapshotRefUpdate.model_validate(fields)


def added(lake: ArrowLake, *, after: int) -> AddSnapshotUpdate:
    """A copy of the newest snapshot, so many sequence numbers later."""
    newest = lake.table().snapshots()[-1]
    number = (newest.sequence_number or 0) + after
    snapshot = newest.model_copy(update={"snapshot_id": 7, "sequence_number": number})
    return AddSnapshotUpdate(snapshot=snapshot)


def test_a_snapshot_and_a_branch_are_what_pyiceberg_reads(lake: ArrowLake) -> None:
    first = lake.table().snapshots()[0].snapshot_id
    before = json.loads(Path(lake.table().metadata_location.removeprefix("file://")).read_text())
    found = staged(lake, added(lake, after=1), ref("main", 7), ref("old", first, **{"max-ref-age-ms": 5}))
    changed = document(found)
    metadata: Any = TableMetadataUtil.parse_obj(changed)
    assert (metadata.current_snapshot_id, metadata.last_sequence_number, len(metadata.snapshots)) == (7, 3, 3)
    assert (metadata.refs["old"].snapshot_id, metadata.refs["old"].max_ref_age_ms) == (first, 5)
    assert [entry.snapshot_id for entry in metadata.snapshot_log][-1] == 7
    assert metadata.metadata_log[-1].metadata_file == lake.table().metadata_location
    same = set(before) - {"snapshots", "refs", "current-snapshot-id", "last-sequence-number", "last-updated-ms"}
    same -= {"snapshot-log", "metadata-log"}
    assert {key: changed[key] for key in same} == {key: before[key] for key in same}


def test_a_branch_that_is_dropped_leaves_its_snapshot(lake: ArrowLake) -> None:
    first = lake.table().snapshots()[0].snapshot_id
    lake.table().manage_snapshots().create_branch(first, "old").commit()
    changed = document(staged(lake, RemoveSnapshotRefUpdate.model_validate({"ref-name": "old"})))
    assert (list(changed["refs"]), len(changed["snapshots"])) == (["main"], 2)


@pytest.mark.parametrize("moved", ["main", "uuid", "sequence number", "expired"])
def test_a_table_that_has_moved_is_a_conflict(lake: ArrowLake, moved: str) -> None:
    head = lake.table().metadata.current_snapshot_id
    requirements: dict[str, Any] = {
        "main": AssertRefSnapshotId.model_validate({"ref": "main", "snapshot-id": 5}),
        "uuid": AssertTableUUID.model_validate({"uuid": "00000000-0000-0000-0000-000000000001"}),
    }
    updates = (
        [added(lake, after=0)] if moved == "sequence number" else [ref("old", 5 if moved == "expired" else head or 0)]
    )
    known = (requirements[moved],) if moved in requirements else ()
    with pytest.raises(CommitFailedException):
        staged(lake, *updates, requirements=known)
    assert len(list((lake.directory / "wh/db/t/metadata").glob("*.metadata.json"))) == 3


def test_what_else_a_commit_changes_is_left_to_pyiceberg(lake: ArrowLake) -> None:
    assert staged(lake, RemovePropertiesUpdate(removals=["a"])) is None
    lake.table().transaction().set_properties({"write.metadata.compression-codec": "zstd"}).commit_transaction()
    assert staged(lake, ref("old", lake.table().metadata.current_snapshot_id or 0)) is None


def test_properties_are_set_and_metadata_is_compressed(lake: ArrowLake) -> None:
    found = document(staged(lake, SetPropertiesUpdate(updates={"a": "b"}), SetPropertiesUpdate(updates={"c": "d"})))
    assert found["properties"] == {**lake.table().properties, "a": "b", "c": "d"}
    lake.table().transaction().set_properties({"write.metadata.compression-codec": "gzip"}).commit_transaction()
    compressed = staged(lake, ref("old", lake.table().metadata.current_snapshot_id or 0))
    assert compressed is not None
    assert compressed.location.endswith(".gz.metadata.json")
    table = StaticTable.from_metadata(compressed.location)
    assert {"main", "old"} == table.metadata.refs.keys()


def test_rows_of_format_3_get_ids_that_no_other_rows_have(lake: ArrowLake) -> None:
    found = document(staged(lake, ref("old", lake.table().metadata.current_snapshot_id or 0)))
    given = {**found, "format-version": 3, "next-row-id": 40}

    def changed(first: int) -> dict[str, Any]:
        update = added(lake, after=1)
        fields = {"first_row_id": first, "added_rows": 2}
        update = AddSnapshotUpdate(snapshot=update.snapshot.model_copy(update=fields))
        return dict(document_commit._changes(given, [update], "before", None))

    assert changed(40)["next-row-id"] == 42
    with pytest.raises(CommitFailedException, match="the ids of the rows"):
        changed(39)


def test_a_table_to_commit_to_has_the_heads_of_its_branches(lake: ArrowLake) -> None:
    table = table_to_commit_to(lake.spark.catalog_description, T, action="write")
    assert [item.snapshot_id for item in table.snapshots()] == [lake.table().metadata.current_snapshot_id]
    assert table.scan().to_arrow().column("v").to_pylist() == [2, 1]
