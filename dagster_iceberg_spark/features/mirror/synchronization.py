"""Makes a DuckLake show the newest snapshot of an Iceberg table.

What the DuckLake shows is compared with what Iceberg has, so that a second attempt changes nothing, and that an attempt
after failures, a rollback or a compaction catches up with all of it in one DuckLake snapshot. The order is:

1. read what the DuckLake shows,
2. look at the Iceberg table,
3. decide the change, and write copies if there are any,
4. commit it, if the DuckLake still shows what it did in 1.

So the mirror never goes back to an older snapshot, whatever else mirrors the table at the same time.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import tenacity

from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.errors import CommitConflictError, ConfigurationError
from dagster_iceberg_spark.features.mirror.copies import Copier
from dagster_iceberg_spark.features.mirror.creation import LakeOptions, opened_ducklake, options_of
from dagster_iceberg_spark.features.mirror.database import (
    Database,
    batches,
    changed_by_others,
    data_files_of,
    delete_files_of,
    excludes_compaction,
    find_object,
    open_database,
    scheduled_files,
)
from dagster_iceberg_spark.features.mirror.ducklake_columns import mirror_columns
from dagster_iceberg_spark.features.mirror.ducklake_commit import commit_change
from dagster_iceberg_spark.features.mirror.options import Mirror
from dagster_iceberg_spark.features.mirror.plan import (
    FileChange,
    MirrorChange,
    MirroredObject,
    MirrorRecord,
    TableChange,
    ViewChange,
    scan_query,
)
from dagster_iceberg_spark.features.mirror.source import Source, newest
from dagster_iceberg_spark.features.mirror.table_mirror import DuckLake
from dagster_iceberg_spark.table.identifier import TableIdentifier, directory_place
from dagster_iceberg_spark.timeouts import FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS

_ATTEMPTS: Final = 10


@dataclass(frozen=True, slots=True)
class MirrorState:
    """What a mirror shows.

    Args:
        snapshot_id: The Iceberg snapshot, or None if the table has none yet.
        ducklake_snapshot_id: The DuckLake snapshot that was committed, or None if the mirror was current already.
        seconds: How long that took.
    """

    snapshot_id: int | None
    ducklake_snapshot_id: int | None
    seconds: float


def synchronize(
    lake: DuckLake, mirror: Mirror, catalog: CatalogDescription, identifier: TableIdentifier
) -> MirrorState:
    """Make the mirror of a table show its newest snapshot.

    Raises:
        CommitConflictError: Other writers have changed the mirror again and again.
    """
    began = time.monotonic()
    with opened_ducklake(lake) as (database, options):
        keep_files(database, options)
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(CommitConflictError),
            stop=tenacity.stop_after_attempt(_ATTEMPTS),
            wait=tenacity.wait_random_exponential(multiplier=FIRST_WAIT_SECONDS, max=LONGEST_WAIT_SECONDS),
            reraise=True,
        )
        shown, committed = retrying(_attempt, database, options, mirror, catalog, identifier)
    return MirrorState(shown, committed, time.monotonic() - began)


def _attempt(
    database: Database, options: LakeOptions, mirror: Mirror, catalog: CatalogDescription, identifier: TableIdentifier
) -> tuple[int | None, int | None]:
    """Return the Iceberg snapshot that the mirror shows now, and the DuckLake snapshot that was committed for it."""
    base = find_object(database, mirror.table)
    source = newest(catalog, identifier)
    if source is None:
        return None, None
    record = source.record(mirror.mode)
    _refuse_foreign(database.lake, mirror, base, record)
    _refuse_shared_directory(options, source)
    is_changed = base is not None and changed_by_others(database, base) is not None
    if base is not None and record.is_served_by(base.record) and not is_changed:
        return source.head.snapshot_id, None
    if mirror.mode != "register":
        source.require_scans()
    known = base if base is not None and record.continues(base.record) and not is_changed else None
    with _content(database, options, mirror, known, source) as content:
        change = MirrorChange(mirror, base, record, source.origin, content, is_rebuilt=is_changed)
        return source.head.snapshot_id, commit_change(database, change)


@contextmanager
def _content(
    database: Database, options: LakeOptions, mirror: Mirror, known: MirroredObject | None, source: Source
) -> Iterator[ViewChange | TableChange]:
    """Yield what changes. `known` is the table that the mirror continues, or None if it is made anew."""
    if mirror.mode == "view":
        yield ViewChange(scan_query(source.table.metadata_location))
        return
    columns = mirror_columns(source.schema, table=str(source.identifier))
    if mirror.mode == "copy":
        with _copy(database, options, mirror, known, source) as files:
            yield TableChange(columns, (), files)
        return
    if options.is_encrypted:
        raise ConfigurationError.refusing(
            "register the files of",
            str(source.identifier),
            expected="a DuckLake whose files are not encrypted",
            found=f"an encrypted {database.lake}",
            hint='use the mode "copy", or another DuckLake.',
        )
    partition_columns = tuple(field.field_id for _, field in source.partition_fields)
    yield TableChange(columns, partition_columns, _register(database, known, source))


def _register(database: Database, known: MirroredObject | None, source: Source) -> FileChange:
    if known is None:
        return source.registered_change((), source.live_files(), ())
    deletes = delete_files_of(database, known.object_id)
    gone, new = source.differences(known.record)
    if gone is not None:
        return source.registered_change([file.file_path for file in gone], new, deletes)
    # The mirrored snapshot has expired: all files are compared with those of the DuckLake.
    registered = data_files_of(database, known.object_id)
    live = {file.file_path for file in new}
    return source.registered_change(
        registered.keys() - live, [file for file in new if file.file_path not in registered], deletes
    )


@contextmanager
def _copy(
    database: Database, options: LakeOptions, mirror: Mirror, known: MirroredObject | None, source: Source
) -> Iterator[FileChange]:
    gone, new = source.differences(None if known is None else known.record)
    if known is not None and known.record is not None and gone is not None:
        # A compaction changes no rows. One that moves files to another spec moves their copies too.
        partitions = [{source.partition_of(file) for file in files} for files in (gone, new)]
        if partitions[0] == partitions[1] and source.only_compacted_since(known.record.snapshot_id):
            yield FileChange()
            return
    paths = () if known is None else data_files_of(database, known.object_id)
    with Copier(database.lake, options, source, mirror).change(gone, new, paths) as files:
        yield files


def keep_files(database: Database, options: LakeOptions) -> None:
    """Take files of Iceberg off the list of files that DuckLake deletes. An expiry in the DuckLake puts them there.

    The DuckLake does not own files that are not below its data path. Only Iceberg knows whether it needs them.
    """
    scheduled = scheduled_files(database, options.data_path)
    if scheduled:
        with database.transaction():
            for batch in batches(scheduled):
                marks = ", ".join("?" * len(batch))
                database.execute(f"DELETE FROM ducklake_files_scheduled_for_deletion WHERE path IN ({marks})", *batch)


def _refuse_shared_directory(options: LakeOptions, source: Source) -> None:
    """Refuse a data path around or inside of the table: each side removes files below its own that it does not know."""
    places = [directory_place(path) for path in (options.data_path, source.table.location())]
    if places[0].startswith(places[1]) or places[1].startswith(places[0]):
        raise ConfigurationError.refusing(
            "mirror",
            str(source.identifier),
            expected=f"a `data_path` of the DuckLake apart from the table at {source.table.location()}",
            found=options.data_path,
            hint="create another DuckLake with another `data_path`.",
        )


def _refuse_foreign(lake: DuckLake, mirror: Mirror, base: MirroredObject | None, record: MirrorRecord) -> None:
    """Refuse to replace what another writer has made, and what mirrors another table."""
    if base is None or (base.record is not None and base.record.mirrors_same_table(record)):
        return
    of = f"a mirror of {base.record.catalog}.{base.record.table}" if base.record else "no mirror"
    raise ConfigurationError.refusing(
        "mirror",
        record.table,
        expected=f"{mirror.table} in the {lake} to be free, or a mirror of this table",
        found=f"a {base.kind} that is {of}",
        hint='name another one with `{"table": "schema.name"}` in `iceberg/mirror`.',
    )


def mirror_record(lake: DuckLake, mirror: Mirror) -> MirrorRecord | None:
    """Return what a mirror shows, or None if there is none yet."""
    if not lake.may_exist:
        return None
    with open_database(lake) as database:
        known = find_object(database, mirror.table) if database.has_ducklake else None
    return None if known is None else known.record


def mirror_problems(
    lake: DuckLake, mirror: Mirror, catalog: CatalogDescription, identifier: TableIdentifier
) -> list[str]:
    """Return in sentences how a mirror differs from its Iceberg table, and what endangers the files of the table."""
    source = newest(catalog, identifier)
    if source is None:
        return []
    if not lake.may_exist:
        return [f"The {lake} does not exist yet."]
    with open_database(lake) as database:
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
