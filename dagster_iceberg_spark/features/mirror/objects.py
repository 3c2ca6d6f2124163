"""Finds what a DuckLake has: a view or a table by name, its columns, and its files."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, TypeVar

from dagster_iceberg_spark.features.mirror.database import Database
from dagster_iceberg_spark.features.mirror.plan import AUTHOR, RECORD_TAG, Column, MirroredObject, MirrorRecord
from dagster_iceberg_spark.table.identifier import TableIdentifier

_VALUES_AT_ONCE: Final = 500
_ValueT = TypeVar("_ValueT")

# DuckDB ignores the case of names.
_OBJECT: Final = """
SELECT '{kind}', o.{kind}_id, t.value, t.begin_snapshot
FROM ducklake_schema s
JOIN ducklake_{kind} o ON o.schema_id = s.schema_id AND o.end_snapshot IS NULL
LEFT JOIN ducklake_tag t ON t.object_id = o.{kind}_id AND t.key = ? AND t.end_snapshot IS NULL
WHERE lower(s.schema_name) = lower(?) AND s.end_snapshot IS NULL AND lower(o.{kind}_name) = lower(?)
"""
_BOTH_KINDS: Final = f"{_OBJECT.format(kind='table')} UNION ALL {_OBJECT.format(kind='view')}"


def find_object(database: Database, name: TableIdentifier) -> MirroredObject | None:
    """Return the view or the table of a name, or None if the name is free."""
    wanted = (RECORD_TAG, ".".join(name.namespace), name.name)
    for kind, object_id, value, begin in database.rows(_BOTH_KINDS, *wanted, *wanted):
        record = None if value is None else MirrorRecord.parse(value)
        return MirroredObject(int(object_id), kind, record, None if begin is None else int(begin))
    return None


def columns_of(database: Database, table_id: int) -> tuple[Column, ...]:
    """Return the columns of a table, each before the fields inside of it."""
    rows = database.rows(
        "SELECT column_id, column_name, column_type, parent_column, nulls_allowed, initial_default "
        "FROM ducklake_column WHERE table_id = ? AND end_snapshot IS NULL ORDER BY column_order",
        table_id,
    )
    return tuple(
        Column(int(column_id), name, kind, None if parent is None else int(parent), bool(nulls), default)
        for column_id, name, kind, parent, nulls, default in rows
    )


def partition_of(database: Database, table_id: int) -> tuple[int | None, tuple[int, ...]]:
    """Return the id of the partitioning of a table's new files, or None, and the columns that partition them."""
    rows = database.rows(
        "SELECT i.partition_id, c.column_id FROM ducklake_partition_info i JOIN ducklake_partition_column c "
        "ON c.partition_id = i.partition_id AND c.table_id = i.table_id "
        "WHERE i.table_id = ? AND i.end_snapshot IS NULL ORDER BY c.partition_key_index",
        table_id,
    )
    return (int(rows[0][0]) if rows else None), tuple(int(column_id) for _, column_id in rows)


def data_files_of(database: Database, table_id: int) -> dict[str, int]:
    """Return the ids of a table's data files by path."""
    rows = database.rows(
        "SELECT path, data_file_id FROM ducklake_data_file WHERE table_id = ? AND end_snapshot IS NULL", table_id
    )
    return {path: int(file_id) for path, file_id in rows}


def delete_files_of(database: Database, table_id: int) -> dict[str, int]:
    """Return the ids of a table's data files that have deletes, by the path of the delete file."""
    rows = database.rows(
        "SELECT path, data_file_id FROM ducklake_delete_file WHERE table_id = ? AND end_snapshot IS NULL", table_id
    )
    return {path: int(file_id) for path, file_id in rows}


def ids_of_files(database: Database, table_id: int, paths: Iterable[str]) -> dict[str, int]:
    """Return the ids of these data files by path. Those that the table does not have are left out."""
    found: dict[str, int] = {}
    for batch in batches(paths):
        rows = database.rows(
            "SELECT path, data_file_id FROM ducklake_data_file WHERE table_id = ? AND end_snapshot IS NULL "
            f"AND path IN ({', '.join('?' * len(batch))})",
            table_id,
            *batch,
        )
        found.update({path: int(file_id) for path, file_id in rows})
    return found


def excludes_compaction(database: Database, table_id: int) -> bool:
    """Return whether DuckLake's compaction of the whole DuckLake leaves a table out."""
    rows = database.rows(
        "SELECT value FROM ducklake_metadata WHERE key = 'auto_compact' AND scope = 'table' AND scope_id = ?", table_id
    )
    return [value for (value,) in rows] == ["false"]


def scheduled_files(database: Database, data_path: str) -> list[str]:
    """Return the files that DuckLake is about to delete although they are not below its own data path."""
    own = f"{data_path.rstrip('/')}/"
    rows = database.rows("SELECT path, path_is_relative FROM ducklake_files_scheduled_for_deletion")
    return sorted(path for path, is_relative in rows if not is_relative and not path.startswith(own))


def changed_by_others(database: Database, known: MirroredObject) -> int | None:
    """Return the first DuckLake snapshot in which another writer has changed a mirror, or None."""
    rows = database.rows(
        "SELECT snapshot_id, changes_made FROM ducklake_snapshot_changes WHERE snapshot_id > ? "
        "AND (author IS NULL OR author <> ?) ORDER BY snapshot_id",
        known.recorded_at or 0,
        AUTHOR,
    )
    suffix = f":{known.object_id}"
    changed = (int(snapshot) for snapshot, made in rows if any(item.endswith(suffix) for item in made.split(",")))
    return next(changed, None)


def batches(values: Iterable[_ValueT]) -> Iterator[list[_ValueT]]:
    """Yield the values in lists that are short enough for one statement."""
    remaining = iter(values)
    while batch := list(islice(remaining, _VALUES_AT_ONCE)):
        yield batch
