"""Commits a change of a mirror as one DuckLake snapshot, in one transaction of the metadata's database.

The tables and their columns are those of the DuckLake specification 1.0, "Tables". DuckDB cannot make these commits:
`ducklake_add_data_files` maps columns by name, and adds a file again without complaint.
"""

import datetime as dt
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dagster_iceberg_spark.errors import CommitConflictError, ConfigurationError
from dagster_iceberg_spark.features.mirror.database import (
    Database,
    batches,
    columns_of,
    find_object,
    ids_of_files,
    partition_of,
)
from dagster_iceberg_spark.features.mirror.plan import (
    AUTHOR,
    RECORD_TAG,
    FileChange,
    MirrorChange,
    MirrorDeletes,
    MirroredObject,
    MirrorFile,
    TableChange,
    ViewChange,
    changed_columns,
    quoted_name,
)

_OWNED_ROWS: Final = {
    "table": (
        ("ducklake_table", "table_id"),
        ("ducklake_column", "table_id"),
        ("ducklake_column_tag", "table_id"),
        ("ducklake_data_file", "table_id"),
        ("ducklake_delete_file", "table_id"),
        ("ducklake_partition_info", "table_id"),
        ("ducklake_tag", "object_id"),
    ),
    "view": (("ducklake_view", "view_id"), ("ducklake_tag", "object_id")),
}
"""Where the rows of a table or a view are that end with it."""


def commit_change(database: Database, change: MirrorChange) -> int:
    """Commit a change.

    Returns:
        The id of the DuckLake snapshot.

    Raises:
        CommitConflictError: The view or the table is no longer as it was when the change was decided.
    """
    with database.transaction():
        if find_object(database, change.mirror.table) != change.base:
            raise CommitConflictError.refusing(
                "mirror",
                change.record.table,
                expected=f"{change.mirror.table} as it was a moment ago in the {database.lake}",
                found="a change by another writer",
            )
        commit = _Commit.begin(database)
        if isinstance(change.content, ViewChange):
            commit.show_view(change, change.content)
        else:
            commit.show_table(change, change.content)
        commit.end(change)
        return commit.snapshot_id


@dataclass(slots=True)
class _Commit:
    """A DuckLake snapshot that is being made."""

    database: Database
    snapshot_id: int
    schema_version: int
    next_catalog_id: int
    next_file_id: int
    changes: list[str] = field(default_factory=list)
    changed_schemas: set[int] = field(default_factory=set)

    @classmethod
    def begin(cls, database: Database) -> "_Commit":
        """Continue the newest snapshot."""
        ((snapshot_id, *counters),) = database.rows(
            "SELECT snapshot_id, schema_version, next_catalog_id, next_file_id FROM ducklake_snapshot "
            "ORDER BY snapshot_id DESC LIMIT 1"
        )
        schema_version, next_catalog_id, next_file_id = map(int, counters)
        return cls(database, int(snapshot_id) + 1, schema_version, next_catalog_id, next_file_id)

    def end(self, change: MirrorChange) -> None:
        """Record the snapshot."""
        if self.changed_schemas:
            self.schema_version += 1
        self.database.insert(
            "ducklake_schema_versions",
            [
                {"begin_snapshot": self.snapshot_id, "schema_version": self.schema_version, "table_id": table_id}
                for table_id in sorted(self.changed_schemas)
            ],
        )
        self._insert(
            "ducklake_snapshot",
            snapshot_id=self.snapshot_id,
            snapshot_time=dt.datetime.now(dt.timezone.utc).isoformat(sep=" "),
            schema_version=self.schema_version,
            next_catalog_id=self.next_catalog_id,
            next_file_id=self.next_file_id,
        )
        self._insert(
            "ducklake_snapshot_changes",
            snapshot_id=self.snapshot_id,
            changes_made=",".join(self.changes),
            author=AUTHOR,
            commit_message=change.message,
            commit_extra_info=change.extra_info,
        )

    def show_view(self, change: MirrorChange, view: ViewChange) -> None:
        """Replace the view, as DuckLake does: another view takes the name."""
        self._end_object(change.base)
        view_id = self._catalog_id()
        self.changed_schemas.add(view_id)
        self.changes.append(f"created_view:{_quoted_name(change)}")
        self._begin(
            "ducklake_view",
            view_id=view_id,
            view_uuid=str(uuid.uuid4()),
            schema_id=self._schema_id(change),
            view_name=change.mirror.table.name,
            dialect="duckdb",
            sql=view.query,
            column_aliases="",
        )
        self._tag(view_id, change)

    def show_table(self, change: MirrorChange, table: TableChange) -> None:
        """Change the table, or create it."""
        if change.is_new or change.base is None:
            self._end_object(change.base)
            table_id = self._create_table(change)
        else:
            table_id = change.base.object_id
            self._end_rows("ducklake_tag", "object_id", [table_id], "key = ?", RECORD_TAG)
        self._change_columns(table_id, table, is_new=change.is_new)
        partition_id = self._change_partitioning(table_id, table.partition_columns)
        self._change_files(table_id, table.files, partition_id, change)
        self._tag(table_id, change)

    def _end_object(self, known: MirroredObject | None) -> None:
        if known is None:
            return
        for owned, column in _OWNED_ROWS[known.kind]:
            self._end_rows(owned, column, [known.object_id])
        self.changed_schemas.add(known.object_id)
        self.changes.append(f"dropped_{known.kind}:{known.object_id}")

    def _create_table(self, change: MirrorChange) -> int:
        table_id, table_uuid, name = self._catalog_id(), str(uuid.uuid4()), change.mirror.table.name
        self.changes.append(f"created_table:{_quoted_name(change)}")
        self.changed_schemas.add(table_id)
        self._begin(
            "ducklake_table",
            table_id=table_id,
            table_uuid=table_uuid,
            schema_id=self._schema_id(change),
            table_name=name,
            path=directory_of(name),
            path_is_relative=True,
        )
        self._insert("ducklake_table_stats", table_id=table_id, record_count=0, next_row_id=0, file_size_bytes=0)
        # DuckLake's compaction would replace files that are Iceberg's.
        self._insert("ducklake_metadata", key="auto_compact", value="false", scope="table", scope_id=table_id)
        return table_id

    def _change_columns(self, table_id: int, table: TableChange, *, is_new: bool) -> None:
        known = () if is_new else columns_of(self.database, table_id)
        ended, begun = changed_columns(known, table.columns)
        if not (ended or begun):
            return
        self._end_rows("ducklake_column", "column_id", sorted(ended), "table_id = ?", table_id)
        self.database.insert(
            "ducklake_column",
            [
                {
                    "column_id": column.column_id,
                    "begin_snapshot": self.snapshot_id,
                    "table_id": table_id,
                    "column_order": place + 1,
                    "column_name": column.name,
                    "column_type": column.type,
                    "initial_default": column.initial_default,
                    "default_value": "NULL",
                    "nulls_allowed": column.is_nullable,
                    "parent_column": column.parent_id,
                    "default_value_type": "literal",
                    "default_value_dialect": "duckdb",
                }
                for place, column in begun
            ],
        )
        self._alter(table_id)

    def _change_partitioning(self, table_id: int, columns: Sequence[int]) -> int | None:
        partition_id, known = partition_of(self.database, table_id)
        if tuple(columns) == known:
            return partition_id
        self._end_rows("ducklake_partition_info", "table_id", [table_id])
        self._alter(table_id)
        if not columns:
            return None
        partition_id = self._catalog_id()
        self._begin("ducklake_partition_info", partition_id=partition_id, table_id=table_id)
        self.database.insert(
            "ducklake_partition_column",
            [
                {
                    "partition_id": partition_id,
                    "table_id": table_id,
                    "partition_key_index": index,
                    "column_id": column_id,
                    "transform": "identity",
                }
                for index, column_id in enumerate(columns)
            ],
        )
        return partition_id

    def _alter(self, table_id: int) -> None:
        """Record that a table changes, unless it is new or was recorded already."""
        if table_id not in self.changed_schemas:
            self.changes.append(f"altered_table:{table_id}")
            self.changed_schemas.add(table_id)

    def _change_files(self, table_id: int, files: FileChange, partition_id: int | None, change: MirrorChange) -> None:
        ended = ids_of_files(self.database, table_id, sorted(files.ended))
        rows, size = self._sizes(ended.values())
        for owned in ("ducklake_data_file", "ducklake_delete_file"):
            self._end_rows(owned, "data_file_id", sorted(ended.values()), "table_id = ?", table_id)
        self._end_rows("ducklake_delete_file", "path", sorted(files.ended_deletes), "table_id = ?", table_id)
        if files.added:
            self.changes.append(f"inserted_into_table:{table_id}")
        added_rows = self._add_data_files(table_id, files.added, partition_id)
        has_deletes = self._add_delete_files(table_id, files.added_deletes, change)
        if ended or files.ended_deletes or has_deletes:
            self.changes.append(f"deleted_from_table:{table_id}")
        self.database.execute(
            "UPDATE ducklake_table_stats SET record_count = record_count + ?, next_row_id = next_row_id + ?, "
            "file_size_bytes = file_size_bytes + ? WHERE table_id = ?",
            *(added_rows - rows, added_rows, sum(file.size_bytes for file in files.added) - size, table_id),
        )

    def _sizes(self, file_ids: Iterable[int]) -> tuple[int, int]:
        """Return the rows and the bytes of data files."""
        rows = size = 0
        for batch in batches(file_ids):
            ((some_rows, some_bytes),) = self.database.rows(
                "SELECT coalesce(sum(record_count), 0), coalesce(sum(file_size_bytes), 0) FROM ducklake_data_file "
                f"WHERE data_file_id IN ({_marks(batch)})",
                *batch,
            )
            rows, size = rows + int(some_rows), size + int(some_bytes)
        return rows, size

    def _add_data_files(self, table_id: int, files: Sequence[MirrorFile], partition_id: int | None) -> int:
        """Add data files. Return their rows."""
        ((row_id,),) = self.database.rows("SELECT next_row_id FROM ducklake_table_stats WHERE table_id = ?", table_id)
        first, rows = int(row_id), 0
        data_files: list[dict[str, Any]] = []
        for file in files:
            data_files.append(
                {
                    "data_file_id": self._file_id(),
                    "table_id": table_id,
                    "begin_snapshot": self.snapshot_id,
                    "path": file.path,
                    "path_is_relative": False,
                    "file_format": "parquet",
                    "record_count": file.rows,
                    "file_size_bytes": file.size_bytes,
                    "footer_size": file.footer_bytes,
                    "row_id_start": first + rows,
                    "partition_id": None if file.partition is None else partition_id,
                    "encryption_key": file.encryption_key,
                }
            )
            rows += file.rows
        self.database.insert("ducklake_data_file", data_files)
        ids = [item["data_file_id"] for item in data_files]
        self.database.insert("ducklake_file_column_stats", _statistics(table_id, ids, files))
        self.database.insert("ducklake_file_partition_value", _partition_values(table_id, ids, files))
        return rows

    def _add_delete_files(self, table_id: int, deletes: Sequence[MirrorDeletes], change: MirrorChange) -> bool:
        """Add the delete files of data files that the table has. Return whether there are any."""
        ids = ids_of_files(self.database, table_id, sorted({item.data_path for item in deletes}))
        covered = [item for item in deletes if item.data_path in ids]
        self.database.insert(
            "ducklake_delete_file",
            [
                {
                    "delete_file_id": self._file_id(),
                    "table_id": table_id,
                    "begin_snapshot": self.snapshot_id,
                    "data_file_id": ids[item.data_path],
                    "path": item.path,
                    "path_is_relative": False,
                    "format": "parquet",
                    "delete_count": item.rows,
                    "file_size_bytes": item.size_bytes,
                }
                for item in covered
            ],
        )
        twice = covered and self.database.rows(
            "SELECT data_file_id FROM ducklake_delete_file WHERE table_id = ? AND end_snapshot IS NULL "
            "GROUP BY data_file_id HAVING count(*) > 1 LIMIT 1",
            table_id,
        )
        if twice:
            raise ConfigurationError.refusing(
                "mirror",
                change.record.table,
                expected="at most one delete file for each data file",
                found="several, of which DuckDB would apply only one",
                hint='compact the table, or use the mode "view" or "copy".',
            )
        return bool(covered)

    def _schema_id(self, change: MirrorChange) -> int:
        """Return the id of the schema, which is created if it does not exist."""
        (name,) = change.mirror.table.namespace
        known = self.database.rows(
            "SELECT schema_id FROM ducklake_schema WHERE lower(schema_name) = lower(?) AND end_snapshot IS NULL", name
        )
        if known:
            return int(known[0][0])
        schema_id = self._catalog_id()
        self.changes.insert(0, f"created_schema:{quoted_name(name)}")
        self._begin(
            "ducklake_schema",
            schema_id=schema_id,
            schema_uuid=str(uuid.uuid4()),
            schema_name=name,
            path=directory_of(name),
            path_is_relative=True,
        )
        return schema_id

    def _tag(self, object_id: int, change: MirrorChange) -> None:
        self._begin("ducklake_tag", object_id=object_id, key=RECORD_TAG, value=change.record.text())

    def _begin(self, table: str, **row: Any) -> None:
        """Insert a row that is current from this snapshot on."""
        self._insert(table, begin_snapshot=self.snapshot_id, **row)

    def _insert(self, table: str, **row: Any) -> None:
        self.database.insert(table, [row])

    def _end_rows(self, table: str, column: str, values: Sequence[Any], *condition: Any) -> None:
        """End the current rows whose column has one of the values. The condition is SQL and its parameters."""
        also = f" AND {condition[0]}" if condition else ""
        for batch in batches(values):
            self.database.execute(
                f"UPDATE {table} SET end_snapshot = ? WHERE end_snapshot IS NULL AND {column} IN ({_marks(batch)})"
                f"{also}",
                *(self.snapshot_id, *batch, *condition[1:]),
            )

    def _catalog_id(self) -> int:
        self.next_catalog_id += 1
        return self.next_catalog_id - 1

    def _file_id(self) -> int:
        self.next_file_id += 1
        return self.next_file_id - 1


def directory_of(name: str) -> str:
    """Return the directory of a schema or a table below the one that contains it, with a slash at its end."""
    safe = name if all(letter.isalnum() or letter in "-_." for letter in name) else uuid.uuid5(uuid.NAMESPACE_OID, name)
    return f"{safe}/"


def _statistics(table_id: int, ids: Sequence[int], files: Sequence[MirrorFile]) -> Iterator[Mapping[str, Any]]:
    for file_id, file in zip(ids, files, strict=True):
        for column in file.statistics:
            yield {
                "data_file_id": file_id,
                "table_id": table_id,
                "column_id": column.column_id,
                "column_size_bytes": column.size_bytes,
                "value_count": column.values,
                "null_count": column.nulls,
                "min_value": column.bounds[0],
                "max_value": column.bounds[1],
                "contains_nan": column.has_nan,
            }


def _partition_values(table_id: int, ids: Sequence[int], files: Sequence[MirrorFile]) -> Iterator[Mapping[str, Any]]:
    for file_id, file in zip(ids, files, strict=True):
        for index, value in enumerate(file.partition or ()):
            yield {
                "data_file_id": file_id,
                "table_id": table_id,
                "partition_key_index": index,
                "partition_value": value,
            }


def _quoted_name(change: MirrorChange) -> str:
    return ".".join(map(quoted_name, change.mirror.table.parts))


def _marks(values: Sequence[Any]) -> str:
    return ", ".join("?" * len(values))
