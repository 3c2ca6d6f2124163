"""What a DuckLake must change to show the rows of an Iceberg table.

The names are those of the DuckLake specification 1.0 ("Tables"), whose column ids are Iceberg's field ids here.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Final, Literal

from dagster_iceberg_spark.features.mirror.options import Mirror, MirrorMode
from dagster_iceberg_spark.table.lineage import ASSET_KEY, RUN_ID
from dagster_iceberg_spark.table.snapshot import Snapshot

AUTHOR: Final = "dagster_iceberg_spark"
"""The author of the DuckLake snapshots."""
RECORD_TAG: Final = "dagster_iceberg_spark.mirror"
"""The tag of a view or a table that says what it mirrors."""


@dataclass(frozen=True, slots=True)
class MirrorRecord:
    """What a view or a table of a DuckLake mirrors.

    Args:
        catalog: The name of the Iceberg catalog.
        endpoint: Where the catalog is.
        table: The Iceberg table.
        table_uuid: Its identity. A table that is dropped and created again has another one.
        snapshot_id: The snapshot whose rows the mirror shows.
        schema_id: The schema that it shows them in.
        metadata_location: The metadata file of the table.
        mode: What the mirror consists of.
    """

    catalog: str
    endpoint: str
    table: str
    table_uuid: str
    snapshot_id: int
    schema_id: int
    metadata_location: str
    mode: MirrorMode

    def text(self) -> str:
        """Return the record as JSON, with the snapshot id as text."""
        return json.dumps({**asdict(self), "snapshot_id": str(self.snapshot_id)})

    @classmethod
    def parse(cls, text: str) -> "MirrorRecord | None":
        """Return the record, or None if another version of the package or another writer has written it."""
        try:
            given = json.loads(text)
            return cls(**{**given, "snapshot_id": int(given["snapshot_id"])})
        except (KeyError, TypeError, ValueError):
            return None

    def mirrors_same_table(self, other: "MirrorRecord") -> bool:
        """Return whether both records are about one table, which may have been created again in its catalog."""
        names = [(record.catalog, record.endpoint, record.table) for record in (self, other)]
        return self.table_uuid == other.table_uuid or names[0] == names[1]

    def continues(self, other: "MirrorRecord | None") -> bool:
        """Return whether a mirror with the other record can be changed to show this one, with its column ids."""
        return other is not None and (other.table_uuid, other.mode) == (self.table_uuid, self.mode)

    def shows_same(self, other: "MirrorRecord | None") -> bool:
        """Return whether a mirror with the other record already shows these rows and columns."""
        if other is None or not self.continues(other):
            return False
        return (other.snapshot_id, other.schema_id) == (self.snapshot_id, self.schema_id)

    def is_served_by(self, other: "MirrorRecord | None") -> bool:
        """Return whether such a mirror needs no change. A view follows each metadata file, which Iceberg may delete."""
        is_outdated = self.mode == "view" and other is not None and other.metadata_location != self.metadata_location
        return self.shows_same(other) and not is_outdated


@dataclass(frozen=True, slots=True)
class MirroredObject:
    """A view or a table in a DuckLake.

    Args:
        object_id: Its id.
        kind: What it is.
        record: What it mirrors, or None if it is no mirror of this package.
        recorded_at: The DuckLake snapshot that set the record, or None.
    """

    object_id: int
    kind: Literal["view", "table"]
    record: MirrorRecord | None
    recorded_at: int | None


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a DuckLake table, or a field inside of one.

    Args:
        column_id: The field id of Iceberg.
        name: The name. Elements of lists are named `element`, the parts of maps `key` and `value`.
        type: The type, as DuckLake names it.
        parent_id: The column that it is a part of, or None.
        is_nullable: Whether it may hold NULL.
        initial_default: The value in files that do not have the column, as text.
    """

    column_id: int
    name: str
    type: str
    parent_id: int | None = None
    is_nullable: bool = True
    initial_default: str | None = None


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """The statistics of a column in a file. The bounds are texts that DuckDB casts to the type of the column.

    For DuckDB, NaN is greater than all other numbers, but bounds leave it out: they are not used if there may be one.
    """

    column_id: int
    size_bytes: int | None
    values: int | None
    nulls: int | None
    lower: str | None
    upper: str | None
    has_nan: bool | None = None

    @property
    def bounds(self) -> tuple[str | None, str | None]:
        """The bounds that DuckDB may use."""
        is_bounded = not self.has_nan and self.lower is not None and self.upper is not None
        is_bounded = is_bounded and "\0" not in f"{self.lower}{self.upper}"  # which PostgreSQL does not store
        return (self.lower, self.upper) if is_bounded else (None, None)


@dataclass(frozen=True, slots=True)
class MirrorFile:
    """A data file of a DuckLake table.

    Args:
        path: Where it is.
        rows: Its number of rows.
        size_bytes: Its size, in bytes.
        statistics: The statistics of its columns.
        partition: The values of the partition columns, or None if the file was written under another spec.
        footer_bytes: The size of its footer, in bytes, or None if it is unknown.
        encryption_key: The key of an encrypted file, in base64.
    """

    path: str
    rows: int
    size_bytes: int
    statistics: tuple[ColumnStatistics, ...] = ()
    partition: tuple[str | None, ...] | None = None
    footer_bytes: int | None = None
    encryption_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class MirrorDeletes:
    """A file that names deleted rows of one data file by position."""

    path: str
    data_path: str
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class FileChange:
    """The change of the files of a table.

    Args:
        ended: The paths of the data files that end, with their delete files.
        added: The data files that are added.
        ended_deletes: The paths of the delete files that end.
        added_deletes: The delete files that are added. Those of data files that the table no longer has are left out.
    """

    ended: frozenset[str] = frozenset()
    added: tuple[MirrorFile, ...] = ()
    ended_deletes: frozenset[str] = frozenset()
    added_deletes: tuple[MirrorDeletes, ...] = ()


@dataclass(frozen=True, slots=True)
class TableChange:
    """The change of a table: its columns afterwards, the columns that partition it, and its files."""

    columns: tuple[Column, ...]
    partition_columns: tuple[int, ...]
    files: FileChange


@dataclass(frozen=True, slots=True)
class ViewChange:
    """The change of a view: its query afterwards."""

    query: str


@dataclass(frozen=True, slots=True)
class MirrorChange:
    """One DuckLake snapshot, which makes a view or a table show what its record says.

    Args:
        mirror: How the table is mirrored.
        base: The view or the table that the change was decided on, or None.
        record: What the mirror shows afterwards.
        origin: The Iceberg snapshot.
        content: What changes.
        is_rebuilt: Whether the table is made again, because another writer has changed it.
    """

    mirror: Mirror
    base: MirroredObject | None
    record: MirrorRecord
    origin: Snapshot
    content: TableChange | ViewChange
    is_rebuilt: bool = False

    @property
    def is_new(self) -> bool:
        """Whether another view or table takes the name."""
        return self.is_rebuilt or self.base is None or not self.record.continues(self.base.record)

    @property
    def message(self) -> str:
        """The message of the DuckLake snapshot."""
        made_by = self.origin.summary.get(ASSET_KEY)
        source = f"snapshot {self.record.snapshot_id} of {self.record.catalog}.{self.record.table}"
        return f"{made_by}: {source}" if made_by else source

    @property
    def extra_info(self) -> str:
        """Who committed the Iceberg snapshot, as JSON."""
        known = {
            "iceberg_table": f"{self.record.catalog}.{self.record.table}",
            "iceberg_snapshot_id": str(self.record.snapshot_id),
            "asset_key": self.origin.summary.get(ASSET_KEY),
            "run_id": self.origin.summary.get(RUN_ID),
        }
        return json.dumps({key: value for key, value in known.items() if value is not None})


def scan_query(metadata_location: str, columns: str = "*") -> str:
    """Return DuckDB's query of the table that a metadata file of Iceberg describes."""
    return f"SELECT {columns} FROM iceberg_scan({text_literal(metadata_location)})"


def text_literal(text: str) -> str:
    """Return a text as a literal of DuckDB's SQL."""
    return "'" + text.replace("'", "''") + "'"


def quoted_name(name: str) -> str:
    """Return a name as an identifier of DuckDB's SQL."""
    return '"' + name.replace('"', '""') + '"'


def changed_columns(known: Iterable[Column], wanted: Iterable[Column]) -> tuple[set[int], list[tuple[int, Column]]]:
    """Return the ids of the columns that end, and the columns that begin, each with its place.

    A column that changes ends and begins under the same id.
    """
    before = {column.column_id: (place, column) for place, column in enumerate(known)}
    after = {column.column_id: (place, column) for place, column in enumerate(wanted)}
    begun = [(place, column) for place, column in after.values() if before.get(column.column_id) != (place, column)]
    kept = after.keys() - {column.column_id for _, column in begun}
    return before.keys() - kept, begun


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A data or delete file of an Iceberg table.

    Args:
        path: Where it is.
        partition: A text that identifies its partition spec and its partition.
        is_deletes: Whether it is a delete file.
        is_global: Whether its deletes may apply to all partitions (Iceberg spec, "Scan Planning").
    """

    path: str
    partition: str
    is_deletes: bool = False
    is_global: bool = False


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """What is copied.

    Args:
        rewritten: The partitions whose rows are copied again, or None for the whole table.
        appended: The paths of data files whose rows are added, by partition.
    """

    rewritten: frozenset[str] | None = frozenset()
    appended: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def plan_copy(before: Collection[SourceFile] | None, after: Collection[SourceFile]) -> CopyPlan:
    """Return what is copied after a change of the files of an Iceberg table.

    A partition that only gains data files gains copies of them. Any other changed partition is copied again.

    Args:
        before: The files that only the mirrored snapshot has, or None if they are unknown.
        after: The files that only the current snapshot has.
    """
    if before is None or any(file.is_global for file in (*before, *after)):
        return CopyPlan(None)
    rewritten = frozenset({file.partition for file in before} | {file.partition for file in after if file.is_deletes})
    appended: dict[str, tuple[str, ...]] = {}
    for file in after:
        if file.partition not in rewritten:
            appended[file.partition] = (*appended.get(file.partition, ()), file.path)
    return CopyPlan(rewritten, appended)
