"""Renames of columns. A rename waits until the new data is committed under the old name.

Iceberg identifies a column by its field id, so either order gives the same rows. In this order, a write that fails
leaves the table unchanged.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dagster_iceberg_spark.errors import SchemaMismatchError
from dagster_iceberg_spark.plan.options.output_options import WriteOptions
from dagster_iceberg_spark.table.identifier import split_parts
from dagster_iceberg_spark.table.schema import Field, Schema, fold, parts_of, walk_paths, with_parts
from dagster_iceberg_spark.table.scope import PartitionScope
from dagster_iceberg_spark.table.updates import DropColumn, RenameColumn, TableUpdate


@dataclass(frozen=True, slots=True)
class StoredNames:
    """The table's names of the columns whose renames are pending, from the changes by the table's names."""

    changes: tuple[RenameColumn, ...] = ()
    is_case_sensitive: bool = False

    @classmethod
    def of(cls, renames: Mapping[str, str], frame: Schema, table: Schema | None, *, subject: str) -> "StoredNames":
        """Find the pending renames (old path: new name) of a table, if there is one.

        The DataFrame must already have the new names, and the table only one name of each column. A DataFrame without
        columns is one that is not known.
        """
        pending: list[RenameColumn] = []
        for text, name in renames.items():
            path = split_parts(text)
            new, given = (*path[:-1], name), _find(frame, path)
            if given is not None and given[-1] != name:
                raise _old_name_in_frame(subject, text, name, found=f"the column {'.'.join(given)!r}")
            stored = None if table is None else _find(frame.like(table.fields), path)
            if stored is None or table is None or stored[-1] == name:
                continue
            if frame.fields and _find(frame, new) is None:
                raise _old_name_in_frame(subject, text, name, found="neither")
            named = _find(frame.like(table.fields), new)
            other = named if named not in (None, stored) else _another(pending, stored, name)
            if other is not None:
                raise SchemaMismatchError.refusing(
                    "write",
                    subject,
                    expected=f"a table with either {text!r} or {'.'.join(other)!r} (`iceberg/renames`)",
                    found="both",
                    hint=f"take {text!r} out of `iceberg/renames`, or drop one of the columns.",
                )
            pending.append(RenameColumn(stored, name))
        return cls(tuple(pending), is_case_sensitive=frame.is_case_sensitive)

    def column(self, name: str) -> str:
        """Return the table's dotted name of a column."""
        pairs = ((".".join(item.path), ".".join(_renamed_path(item))) for item in self.changes)
        return next((stored for stored, renamed in pairs if self._is_same([name], [renamed])), name)

    def of_schema(self, schema: Schema) -> Schema:
        """Return the DataFrame's columns with the table's names."""
        return replace(schema, fields=self._fields(schema.fields, ())) if self.changes else schema

    def of_asset(self, table: Schema) -> Schema:
        """Return the table's columns with the names that they have after the renames."""
        return replace(table, fields=self._rename(table.fields, ())) if self.changes else table

    def of_scope(self, scope: PartitionScope) -> PartitionScope:
        """Return the scope with the table's names."""
        dimensions = tuple(replace(item, column=self.column(item.column)) for item in scope.dimensions)
        return replace(scope, dimensions=dimensions) if self.changes else scope

    def of_options(self, options: WriteOptions) -> WriteOptions:
        """Return the options with the table's names."""
        if not self.changes:
            return options
        changes = {
            "partition_by": self._replace(options.partition_by),
            "merge_keys": tuple(map(self.column, options.merge_keys)),
            "merge": options.merge.by_names(self.column),
            "sort_by": self._replace(options.sort_by),
            "required_columns": {self.column(name): value for name, value in options.required_columns.items()},
            "identifier_fields": options.identifier_fields and tuple(map(self.column, options.identifier_fields)),
        }
        return options.model_copy(update=changes)

    def stored_name(self, parent: tuple[str, ...], name: str) -> str:
        """Return the table's name of a field of the struct at this path, which also has the table's names."""
        path = (*parent, name)
        return next((item.path[-1] for item in self.changes if self._is_same(_renamed_path(item), path)), name)

    def _is_same(self, one: Sequence[str], other: Sequence[str]) -> bool:
        return list(one) == list(other) or (not self.is_case_sensitive and _fold(one) == _fold(other))

    def _replace(self, fields: Sequence | None) -> tuple | None:  # type: ignore[type-arg]
        return None if fields is None else tuple(replace(item, column=self.column(item.column)) for item in fields)

    def _rename(self, fields: Sequence[Field], parent: tuple[str, ...]) -> tuple[Field, ...]:
        names = {change.path: change.name for change in self.changes}
        return tuple(
            replace(
                field,
                name=names.get((*parent, field.name), field.name),
                type=with_parts(field.type, self._rename(parts_of(field.type), (*parent, field.name))),
            )
            for field in fields
        )

    def _fields(self, fields: Sequence[Field], parent: tuple[str, ...]) -> tuple[Field, ...]:
        return tuple(self._field(field, parent) for field in fields)

    def _field(self, field: Field, parent: tuple[str, ...]) -> Field:
        name = self.stored_name(parent, field.name)
        parts = self._fields(parts_of(field.type), (*parent, name))
        return replace(field, name=name, type=with_parts(field.type, parts))


def lost_columns(
    renames: Mapping[str, str], table: Schema, after: Sequence[TableUpdate], *, subject: str
) -> list[TableUpdate]:
    """Return the changes that remove columns from other users of the table: drops and pending renames."""
    pending = StoredNames.of(renames, Schema(()), table, subject=subject).changes
    return [*(change for change in after if isinstance(change, DropColumn)), *pending]


def _another(pending: Sequence[RenameColumn], path: tuple[str, ...], name: str) -> tuple[str, ...] | None:
    """Return another column that a pending rename gives the same name."""
    return next((item.path for item in pending if _renamed_path(item) == (*path[:-1], name)), None)


def _renamed_path(change: RenameColumn) -> tuple[str, ...]:
    return (*change.path[:-1], change.name)


def _find(schema: Schema, path: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the path in the spelling of the schema, if it leads to one field."""
    found = [candidate for candidate, _ in walk_paths(schema.fields) if _fold(candidate) == _fold(path)]
    if path in found:
        return path
    return found[0] if len(found) == 1 and not schema.is_case_sensitive else None


def _fold(path: Sequence[str]) -> list[str]:
    return [fold(part) for part in path]


def _old_name_in_frame(subject: str, old: str, new: str, *, found: str) -> SchemaMismatchError:
    """The DataFrame still has the name that the definition renames, or lacks the new one."""
    return SchemaMismatchError.refusing(
        "write",
        subject,
        expected=f"a DataFrame with {new!r} in place of {old!r} (`iceberg/renames`)",
        found=found,
        hint="rename it in the DataFrame too, or take it out of `iceberg/renames`.",
    )
