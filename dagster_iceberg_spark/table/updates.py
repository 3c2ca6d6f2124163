"""Updates of a table's metadata. None of them adds a snapshot to `main`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from dagster_iceberg_spark.table.partitioning import PartitionField, SortField
from dagster_iceberg_spark.table.schema import DefaultValue, IcebergType
from dagster_iceberg_spark.table.snapshot import DAY_MS


@dataclass(frozen=True, slots=True)
class AddColumn:
    """Add an optional column, or an optional field of a struct.

    Its path has names from the top level down. `element`, `key` and `value` are the steps into lists and maps. With a
    default, older rows have this value, and so have new rows whose writer does not have the column.
    """

    path: tuple[str, ...]
    type: IcebergType
    doc: str | None = None
    default: DefaultValue = None

    def __str__(self) -> str:
        default = "" if self.default is None else f" with the default {self.default!r}"
        return f"add column {'.'.join(self.path)} {self.type}{default}"


@dataclass(frozen=True, slots=True)
class SetDefault:
    """Set the value of a column in new rows whose writer does not have it (Iceberg spec, "Default values")."""

    column: str
    default: DefaultValue

    def __str__(self) -> str:
        return f"set the default of column {self.column} to {self.default!r}"


@dataclass(frozen=True, slots=True)
class WidenColumn:
    """Change a column's type to one that holds every value of the old type (Iceberg spec, "Schema Evolution")."""

    path: tuple[str, ...]
    before: IcebergType
    after: IcebergType

    def __str__(self) -> str:
        return f"widen column {'.'.join(self.path)} from {self.before} to {self.after}"


@dataclass(frozen=True, slots=True)
class DescribeColumn:
    """Change the description of a column."""

    path: tuple[str, ...]
    doc: str

    def __str__(self) -> str:
        return f"describe column {'.'.join(self.path)}"


@dataclass(frozen=True, slots=True)
class RelaxColumn:
    """Make a required column optional."""

    path: tuple[str, ...]

    def __str__(self) -> str:
        return f"let column {'.'.join(self.path)} hold NULL"


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """Rename a column. It keeps its field id."""

    path: tuple[str, ...]
    name: str

    def __str__(self) -> str:
        return f"rename column {'.'.join(self.path)} to {self.name}"


@dataclass(frozen=True, slots=True)
class DropColumn:
    """Remove a column. Its values stay in older snapshots."""

    path: tuple[str, ...]

    def __str__(self) -> str:
        return f"drop column {'.'.join(self.path)}"


@dataclass(frozen=True, slots=True)
class MoveColumn:
    """Move a column after another column, or to the front."""

    path: tuple[str, ...]
    after: str | None

    def __str__(self) -> str:
        return f"move column {'.'.join(self.path)} {f'behind {self.after}' if self.after else 'to the front'}"


@dataclass(frozen=True, slots=True)
class AddPartitionField:
    """Add a partition field for new files."""

    field: PartitionField

    def __str__(self) -> str:
        return f"add partition field {self.field}"


@dataclass(frozen=True, slots=True)
class DropPartitionField:
    """Remove a partition field for new files."""

    field: PartitionField

    def __str__(self) -> str:
        return f"drop partition field {self.field}"


@dataclass(frozen=True, slots=True)
class RenamePartitionField:
    """Rename a partition field, which keeps its transform."""

    field: PartitionField
    name: str

    def __str__(self) -> str:
        return f"rename partition field {self.field} to {self.name}"


@dataclass(frozen=True, slots=True)
class SetProperties:
    """Set table properties. Others keep their values."""

    properties: Mapping[str, str]

    def __str__(self) -> str:
        return f"set {', '.join(sorted(self.properties))}"


@dataclass(frozen=True, slots=True)
class RemoveProperties:
    """Remove table properties. Others keep their values."""

    keys: tuple[str, ...]

    def __str__(self) -> str:
        return f"remove {', '.join(self.keys)}"


@dataclass(frozen=True, slots=True)
class SetIdentifierFields:
    """Set the columns that identify a row (Iceberg spec, "Identifier Field IDs")."""

    columns: tuple[str, ...]
    before: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"identify rows by {', '.join(self.columns) or 'nothing'}"


@dataclass(frozen=True, slots=True)
class SetSortOrder:
    """Set the sort order of new files. Without fields, they are not sorted."""

    fields: tuple[SortField, ...]
    is_partitioned: bool

    def __str__(self) -> str:
        return f"sort files by {', '.join(field.column for field in self.fields) or 'nothing'}"


@dataclass(frozen=True, slots=True)
class CreateBranch:
    """Create a branch, by default at the head of `main`. If `main` has no snapshot, it starts with an empty one.

    Args:
        snapshot_id: The snapshot that the branch starts at.
        retention_days: The days after which the expiry of snapshots removes the branch. Default: never.
        keeps_snapshots: Whether the expiry also keeps the snapshots of the branch for these days. By default, it keeps
            them as long as the table's properties say.
    """

    name: str
    snapshot_id: int | None = None
    retention_days: int | None = None
    keeps_snapshots: bool = False

    def __str__(self) -> str:
        return f"create branch {self.name}"


@dataclass(frozen=True, slots=True)
class DropBranch:
    """Drop a branch if it exists."""

    name: str

    def __str__(self) -> str:
        return f"drop branch {self.name}"


def tag_days(age_ms: int, lasts_ms: int) -> int:
    """Return the retention of a tag that is to last for this time, in days.

    Iceberg compares the retention with the age of the snapshot, and not with that of the tag.

    Args:
        age_ms: The age of the snapshot, in milliseconds. It is negative if the snapshot has been committed since.
        lasts_ms: How long the tag lasts, in milliseconds.
    """
    return -(-(max(age_ms, 0) + lasts_ms) // DAY_MS)


@dataclass(frozen=True, slots=True)
class SetTag:
    """Create a tag, or replace it.

    Args:
        retention_days: The age of the snapshot, in days, at which the expiry of snapshots removes the tag, or None to
            keep it for ever.
    """

    name: str
    snapshot_id: int
    retention_days: int | None

    def __str__(self) -> str:
        return f"set tag {self.name}"


@dataclass(frozen=True, slots=True)
class DropTag:
    """Drop a tag if it exists."""

    name: str

    def __str__(self) -> str:
        return f"drop tag {self.name}"


BranchUpdate: TypeAlias = CreateBranch | DropBranch
TagUpdate: TypeAlias = SetTag | DropTag
TableUpdate: TypeAlias = (
    AddColumn
    | SetDefault
    | WidenColumn
    | DescribeColumn
    | RelaxColumn
    | RenameColumn
    | DropColumn
    | MoveColumn
    | AddPartitionField
    | DropPartitionField
    | RenamePartitionField
    | SetProperties
    | RemoveProperties
    | SetIdentifierFields
    | SetSortOrder
    | CreateBranch
    | DropBranch
    | SetTag
    | DropTag
)
