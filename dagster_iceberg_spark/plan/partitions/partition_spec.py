"""The partition spec that a table gets: the default transforms, the definition's fields, and how a spec evolves."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final
from urllib.parse import quote_plus

from dagster_iceberg_spark.errors import PartitioningError
from dagster_iceberg_spark.plan.options.output_options import PartitionEvolution
from dagster_iceberg_spark.plan.write.write_request import TableRequest
from dagster_iceberg_spark.table.identifier import free_name
from dagster_iceberg_spark.table.partitioning import PartitionField, PartitionSpec, Transform
from dagster_iceberg_spark.table.schema import DATE, INTEGERS, STRING, TIMESTAMP, TIMESTAMPTZ, Field, Schema, all_paths
from dagster_iceberg_spark.table.scope import Dimension, PartitionScope
from dagster_iceberg_spark.table.snapshot import TableState
from dagster_iceberg_spark.table.updates import AddPartitionField, DropPartitionField, RenamePartitionField, TableUpdate

_cannot_partition = partial(PartitioningError.refusing, "partition")


def plan_spec_changes(
    wanted: Sequence[PartitionField] | None, spec: PartitionSpec, *, policy: PartitionEvolution, subject: str
) -> tuple[TableUpdate, ...]:
    """Return the changes from the table's spec to the wanted one, or none if none is wanted."""
    if wanted is None:
        return ()
    current = spec.live_fields
    dropped = [field for field in current if not any(field.same_partitioning_as(other) for other in wanted)]
    added = [field for field in wanted if not any(field.same_partitioning_as(other) for other in current)]
    pairs = ((field, other) for field in current for other in wanted if field.same_partitioning_as(other))
    renamed = [
        RenamePartitionField(field, other.name) for field, other in pairs if other.name not in (None, field.name)
    ]
    if (dropped or added or renamed) and policy == "error":
        raise PartitioningError.refusing(
            "write",
            subject,
            expected=f"the partition spec {', '.join(map(str, wanted)) or 'unpartitioned'} of `iceberg/partition_by`",
            found=f"the table's own, {spec}",
            hint='set `iceberg/partition_evolution` to "evolve" to partition new files differently, or leave '
            "`iceberg/partition_by` out to keep the table's spec.",
        )
    return (*map(DropPartitionField, dropped), *renamed, *map(AddPartitionField, added))


def refuse_redundant_fields(fields: Sequence[PartitionField], *, subject: str) -> None:
    """Reject redundant fields in a new table's spec, as Iceberg does."""
    for position, field in enumerate(fields):
        for other in fields[:position]:
            if other.column == field.column and other.transform.kind == field.transform.kind:
                raise PartitioningError.refusing(
                    "create",
                    subject,
                    expected=f"one {field.transform.kind} of the column {field.column!r} in `iceberg/partition_by`",
                    found=f"{other} and {field}",
                    hint="keep the finer one: filters by the coarser one use it too.",
                )


def refuse_taken_names(
    wanted: Sequence[PartitionField], current: Sequence[PartitionField], columns: Sequence[Field], *, subject: str
) -> None:
    """Reject partition fields whose names, given or derived by the engine, are already in use."""
    names = {".".join(path) for path in all_paths(columns)}
    taken: dict[str, PartitionField] = {}
    for field in wanted:
        known = next((other.name for other in current if field.same_partitioning_as(other)), None)
        name = field.name or known or field.derived_name
        is_of_column = name in names and not (field.transform.name == "identity" and name == field.column)
        if name in taken or (is_of_column and name != known):
            other = taken.get(name)
            raise _cannot_partition(
                subject,
                expected="names of partition fields that differ from each other and from columns",
                found=f"{name!r} of {field}, a column" if other is None else f"{name!r} of {other} and of {field}",
                hint=f'give the field another name, as in "{replace(field, name=None)} as ...".',
            )
        taken[name] = field


def with_free_names(
    wanted: Sequence[PartitionField], current: Sequence[PartitionField], columns: Sequence[Field]
) -> tuple[PartitionField, ...]:
    """Return the fields, with a name for each new one without, if its derived name is already in use."""
    taken = {".".join(path) for path in all_paths(columns)} | {field.name for field in (*wanted, *current)}
    found = []
    for field in wanted:
        is_known = any(field.same_partitioning_as(other) for other in current)
        is_of_column = field.transform.name == "identity" and field.derived_name == field.column
        if field.name is None and not is_known and not is_of_column and field.derived_name in taken:
            field = replace(field, name=free_name(field.derived_name, taken))  # noqa: PLW2901 - the same field
        taken.add(field.name or field.derived_name)
        found.append(field)
    return tuple(found)


def refuse_names_of_fields(specs: Iterable[PartitionSpec], added: Collection[str], *, subject: str) -> None:
    """Reject a new column that has the name of a partition field of any spec, which Iceberg keeps for ever."""
    for field in (field for spec in specs for field in spec.fields):
        if field.name in added and field.name != field.column:
            raise PartitioningError.refusing(
                "add a column to",
                subject,
                expected="a name that no partition field of the table has or had",
                found=f"{field.name!r}, the name of {replace(field, name=None)}",
                hint="give the column another name in the asset. Only a table that is created anew can have both.",
            )


def check_transforms(fields: Iterable[PartitionField], schema: Schema, *, subject: str) -> tuple[PartitionField, ...]:
    """Return the fields with the exact names of their columns, whose types the transforms must accept."""
    checked = tuple(_checked_transform(field, schema, subject=subject) for field in fields)
    for position, field in enumerate(checked):
        if any(field.same_partitioning_as(other) for other in checked[:position]):
            raise _cannot_partition(
                subject, expected="each field of `iceberg/partition_by` once", found=f"{field} twice"
            )
    return checked


def _checked_transform(field: PartitionField, schema: Schema, *, subject: str) -> PartitionField:
    refused = partial(_cannot_partition, subject)
    column = schema.field(field.column)
    if column is None:
        raise _cannot_partition(
            subject,
            expected=f"the column {field.column!r} of `iceberg/partition_by`",
            found=f"the columns {', '.join(schema.names) or 'none'}",
        )
    if not field.transform.accepts(column.type):
        raise refused(
            expected=f"a column that {field.transform.name} can be applied to",
            found=f"{column.name!r} of type {column.type}",
            hint="see the table of transforms in the Iceberg specification; identity takes any primitive type.",
        )
    if field.transform.name == "identity" and column.type in (TIMESTAMP, TIMESTAMPTZ):
        raise refused(
            expected="a transform for a timestamp column",
            found=f"the bare column {column.name!r}, which makes a partition of every instant",
            hint=f'write "day({column.name})".',
        )
    return PartitionField(column.name, field.transform, field.name)


MAXIMUM_PATH_SEGMENT: Final = 255
"""Maximum length of a name in file systems, in bytes. Iceberg names directories by values of identity partitions."""
PLAIN_PATHS: Final = {"write.object-storage.enabled": "true", "write.object-storage.partitioned-paths": "false"}
"""Place data files by a hash, without partition values in their paths."""


def wanted_partition_fields(
    request: TableRequest, scope: PartitionScope, frame: Schema, state: TableState | None
) -> tuple[PartitionField, ...] | None:
    """Return the wanted partition fields, or None to keep the table's."""
    subject = str(request.identifier)
    if request.options.partition_by is not None:
        others = (field for field in (state.schema if state else ()) if frame.field(field.name) is None)
        columns = frame.like((*frame, *others))
        fields = check_transforms(request.options.partition_by, columns, subject=subject)
        return with_free_names(fields, state.spec.live_fields if state else (), columns.fields)
    if state is not None:
        return None
    fields = tuple(dict.fromkeys(default_partition_field(dimension, frame) for dimension in scope.dimensions))
    return with_free_names(fields, (), frame.fields)


def default_partition_field(dimension: Dimension, schema: Schema) -> PartitionField:
    """Return the partition field of a dimension in a new table.

    A dimension of keys becomes the identity of its column. A dimension of time windows becomes the coarsest of year,
    month, day and hour that divides its windows into whole units.
    """
    field = schema.field(dimension.column)
    if field is None or dimension.calendar is None or field.type == STRING or field.type in INTEGERS:
        transform = Transform("identity")
    elif field.type == DATE and dimension.calendar.granule == "hour":
        transform = Transform("day")
    else:
        transform = Transform(dimension.calendar.granule)
    return PartitionField(schema.exact(dimension.column), transform)


def has_long_paths(scope: PartitionScope, spec: PartitionSpec) -> bool:
    """Return whether the directory name of a key would be too long for file systems."""
    by_value = (field for field in spec.live_fields if field.transform.name == "identity")
    names = {field.column: field.name or field.column for field in by_value}
    return any(
        len(quote_plus(f"{names[dimension.column]}={partition[position].key}")) > MAXIMUM_PATH_SEGMENT
        for position, dimension in enumerate(scope.dimensions)
        if dimension.calendar is None and dimension.column in names
        for partition in scope.partitions
    )
