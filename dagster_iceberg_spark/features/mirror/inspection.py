"""Compares a mirror with its Iceberg table, without changing anything."""

from collections.abc import Iterator

from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.features.mirror.creation import options_of
from dagster_iceberg_spark.features.mirror.database import Database, opened
from dagster_iceberg_spark.features.mirror.objects import (
    changed_by_others,
    data_files_of,
    excludes_compaction,
    find_object,
    scheduled_files,
)
from dagster_iceberg_spark.features.mirror.options import Mirror
from dagster_iceberg_spark.features.mirror.plan import MirroredObject, MirrorRecord
from dagster_iceberg_spark.features.mirror.source import Source, newest
from dagster_iceberg_spark.features.mirror.table_mirror import DuckLake
from dagster_iceberg_spark.table.identifier import TableIdentifier


def mirror_record(lake: DuckLake, mirror: Mirror) -> MirrorRecord | None:
    """Return what a mirror shows, or None if there is none yet.

    Raises:
        ConfigurationError: The database cannot be opened.
        CatalogUnavailableError: It does not answer.
    """
    if not lake.may_exist:
        return None
    with opened(lake) as database:
        known = find_object(database, mirror.table) if database.has_ducklake else None
    return None if known is None else known.record


def mirror_problems(
    lake: DuckLake, mirror: Mirror, catalog: CatalogDescription, identifier: TableIdentifier
) -> list[str]:
    """Return in sentences how a mirror differs from its Iceberg table, and what endangers the files of the table.

    Raises:
        ConfigurationError: The database cannot be opened.
        CatalogUnavailableError: The database, the Iceberg catalog or the store does not answer.
        UpstreamMissingError: The Iceberg table does not exist.
    """
    source = newest(catalog, identifier)
    if source is None:
        return []
    if not lake.may_exist:
        return [f"The {lake} does not exist yet."]
    with opened(lake) as database:
        known = find_object(database, mirror.table) if database.has_ducklake else None
        if known is None:
            return [f"The {lake} does not have {mirror.table} yet."]
        if known.record is None:
            return [f"{mirror.table} in the {lake} is no mirror."]
        return list(_problems(database, mirror, known, known.record, source))


def _problems(
    database: Database, mirror: Mirror, known: MirroredObject, record: MirrorRecord, source: Source
) -> Iterator[str]:
    if not source.record(mirror.mode).shows_same(record):
        yield (
            f"{mirror.table} is a {record.mode} mirror of snapshot {record.snapshot_id}, schema {record.schema_id}. "
            f"Expected a {mirror.mode} mirror of snapshot {source.head.snapshot_id}, schema "
            f"{source.table.metadata.current_schema_id}."
        )
    changed_at = changed_by_others(database, known)
    if changed_at is not None:
        yield f"Another writer has changed {mirror.table}, in snapshot {changed_at} of the DuckLake."
    if record.mode == "view" and record.metadata_location not in source.metadata_files():
        yield f"Iceberg may have deleted the metadata file that {mirror.table} shows: {record.metadata_location}."
    if record.mode == "register":
        yield from _problems_of_files(database, mirror, known, source.at(record.snapshot_id))
    scheduled = scheduled_files(database, options_of(database).data_path)
    if scheduled:
        yield (
            f"DuckLake is about to delete files that it does not own: {len(scheduled)}, such as {scheduled[0]}. Do not "
            "call `ducklake_cleanup_old_files` before `dagster-iceberg-spark mirror sync` has taken them off its list."
        )


def _problems_of_files(
    database: Database, mirror: Mirror, known: MirroredObject, mirrored: Source | None
) -> Iterator[str]:
    if mirrored is None:
        yield f"The snapshot that {mirror.table} shows has expired, so its files may be gone."
    elif data_files_of(database, known.object_id).keys() != mirrored.data_paths():
        yield f"The files of {mirror.table} are not those of the snapshot that it shows."
    if not excludes_compaction(database, known.object_id):
        yield f"Another writer has set `auto_compact` of {mirror.table}. DuckLake's compaction would replace its files."
