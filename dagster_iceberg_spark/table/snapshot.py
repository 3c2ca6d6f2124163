"""Snapshots and the state of a table at one look."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.ordering import SortField
from dagster_iceberg_spark.table.partitioning import PartitionSpec
from dagster_iceberg_spark.table.schema import Schema

MAIN_BRANCH = "main"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One commit of data.

    Args:
        snapshot_id: Iceberg's id.
        parent_snapshot_id: The snapshot that it was made upon, if any.
        committed_at_ms: When, in milliseconds since 1970.
        operation: `append`, `overwrite`, `delete` or `replace`.
        summary: What the engine and the writer said about it; keys are lower case.
        schema_id: The schema that was current.
    """

    snapshot_id: int
    parent_snapshot_id: int | None
    committed_at_ms: int
    operation: str
    summary: Mapping[str, str] = field(default_factory=dict)
    schema_id: int | None = None

    @property
    def is_compaction(self) -> bool:
        """Whether files were rewritten and no row changed: Iceberg's operation `replace` (spec, "Snapshots")."""
        return self.operation == "replace"

    def count(self, key: str) -> int:
        """Return a number of the summary; the engine leaves zeros out."""
        return int(self.summary.get(key, "0"))


@dataclass(frozen=True, slots=True)
class TableState:
    """A table as one fresh look saw it.

    Args:
        identifier: The table's name in the catalog.
        location: The URI of its directory.
        format_version: Version of the Iceberg table format.
        schema: The current schema.
        specs: All partition specs by id: files written under old ones may be alive.
        default_spec_id: The id of the spec that new files get.
        properties: The table's properties.
        snapshots: Snapshots by id; a catalog may show only the newest.
        refs: Snapshot id by branch or tag name; `main` is absent while the table has no snapshot.
        schemas: All schemas by id.
        identifier_fields: Columns that identify a row, by their dotted names.
        sort_order: The order of rows in new files.
        branches: Names of the refs that move; a tag stays where it is.
        snapshot_log: When `main` came to stand on which snapshot, in milliseconds since 1970, oldest first.
    """

    identifier: TableIdentifier
    location: str
    format_version: int
    schema: Schema
    specs: Mapping[int, PartitionSpec]
    default_spec_id: int
    properties: Mapping[str, str]
    snapshots: Mapping[int, Snapshot]
    refs: Mapping[str, int]
    schemas: Mapping[int, Schema] = field(default_factory=dict)
    identifier_fields: tuple[str, ...] = ()
    sort_order: tuple[SortField, ...] = ()
    branches: frozenset[str] = frozenset({MAIN_BRANCH})
    snapshot_log: tuple[tuple[int, int], ...] = ()

    @property
    def spec(self) -> PartitionSpec:
        """The spec that new files get."""
        return self.specs[self.default_spec_id]

    def compared_like(self, schema: Schema) -> "TableState":
        """Return the state with names of columns compared as the schema's are."""
        return replace(self, schema=replace(self.schema, is_case_sensitive=schema.is_case_sensitive))

    def head(self, branch: str = MAIN_BRANCH) -> Snapshot | None:
        """Return the newest snapshot of the branch."""
        snapshot_id = self.refs.get(branch)
        return None if snapshot_id is None else self.snapshots.get(snapshot_id)

    def base(self, branch: str = MAIN_BRANCH) -> Snapshot | None:
        """Return the snapshot that a write to the branch is made upon: a new branch starts where `main` stands."""
        return self.head(self._start_of(branch))

    def base_ancestors(self, branch: str = MAIN_BRANCH) -> Iterator[Snapshot]:
        """Yield the snapshots that a write to the branch is made upon, newest first."""
        return self.ancestors(self._start_of(branch))

    def _start_of(self, branch: str) -> str:
        return branch if branch in self.refs else MAIN_BRANCH

    def ancestors(self, branch: str = MAIN_BRANCH) -> Iterator[Snapshot]:
        """Yield the snapshots that the branch's head was made upon, newest first, the head included."""
        snapshot = self.head(branch)
        while snapshot is not None:
            yield snapshot
            parent_id = snapshot.parent_snapshot_id
            snapshot = None if parent_id is None else self.snapshots.get(parent_id)
