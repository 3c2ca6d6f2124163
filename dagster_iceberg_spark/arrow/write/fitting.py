"""Fits rows to the columns of their table: by name at every depth, with NULL for what is missing."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.table import Table

from dagster_iceberg_spark.arrow.write.files import stored_schema
from dagster_iceberg_spark.catalog.document import document_of
from dagster_iceberg_spark.errors import CommitConflictError, IcebergSparkError
from dagster_iceberg_spark.failure_kinds import FailureKind
from dagster_iceberg_spark.plan.write.write_plan import WritePlan
from dagster_iceberg_spark.pyiceberg_fixes.lists_and_maps import with_parts
from dagster_iceberg_spark.table.schema import Field, IcebergType, Schema, parse_schema, parts_of


class Fitting:
    """Fits rows to a table.

    Args:
        held: The columns of the rows, by the table's names.
        stored: The columns of the table, in Arrow's types.
        plan: The plan of the write.
        are_stored: Whether the rows come from the table, which may have NULL in columns that its definition requires.
    """

    def __init__(self, held: Schema, stored: pa.Schema, plan: WritePlan, *, are_stored: bool = False) -> None:
        """Match the columns.

        Raises:
            CommitConflictError: The table no longer has one of them.
        """
        self._held, self._stored, self._subject = held, stored, str(plan.identifier)
        required = () if are_stored else plan.required
        self._required = {*required, *(field.name for field in stored if not field.nullable)}
        self._places = [_place(self._held.fields, wanted.name, self._held) for wanted in stored]
        left = [field.name for place, field in enumerate(self._held) if place not in self._places]
        if left:
            raise CommitConflictError.to_plan_again(
                "write",
                self._subject,
                expected=f"the column {left[0]!r}, which was there when the write was planned",
                found="none: another writer has dropped or renamed it",
            )

    @classmethod
    def of_stored(cls, table: Table, plan: WritePlan) -> "Fitting":
        """Return what fits rows that are read from the table, to write them again."""
        return cls(parse_schema(document_of(table.schema())), stored_schema(table), plan, are_stored=True)

    def fit(self, rows: pa.Table) -> pa.Table:
        """Return the rows in the table's columns.

        Raises:
            NullValueError: A required column has NULL.
            SchemaMismatchError: A value does not fit the table's type.
        """
        columns = []
        for wanted, place in zip(self._stored, self._places, strict=True):
            if place is None:
                values = pa.nulls(rows.num_rows, wanted.type)
            else:
                held = self._held.fields[place].type
                values = pa.chunked_array(
                    [self._fit(part, held, wanted, wanted.name) for part in rows.column(place).chunks], wanted.type
                )
            if wanted.name in self._required and values.null_count:
                raise self._null(wanted.name)
            columns.append(values)
        return pa.Table.from_arrays(columns, schema=self._stored)

    def _fit(self, values: pa.Array, held: IcebergType, wanted: pa.Field, path: str) -> pa.Array:
        kind = wanted.type
        if pa.types.is_null(values.type):
            return pa.nulls(len(values), kind)
        if pa.types.is_struct(kind):
            return self._fit_struct(values, held, kind, path)
        parts = parts_of(held)
        if pa.types.is_list(kind):
            return with_parts(
                values, [self._fit(values.values, parts[0].type, kind.value_field, f"{path}.element")], kind
            )
        if pa.types.is_map(kind):
            keys = self._fit(values.keys, parts[0].type, kind.key_field, f"{path}.key")
            return with_parts(
                values, [keys, self._fit(values.items, parts[1].type, kind.item_field, f"{path}.value")], kind
            )
        if values.type.equals(kind):
            return values
        try:
            return values.cast(kind)
        except pa.ArrowInvalid as error:
            raise FailureKind.INCOMPATIBLE_VALUE.refusal(
                "write", self._subject, f"in the column {path!r}: {str(error).splitlines()[0]}"
            ) from error

    def _fit_struct(self, values: pa.StructArray, held: IcebergType, kind: pa.StructType, path: str) -> pa.Array:
        given, missing = values.flatten(), values.is_null() if values.null_count else None
        parts = []
        for wanted in kind:
            place = _place(parts_of(held), wanted.name, self._held)
            part = pa.nulls(len(values), wanted.type)
            if place is not None:
                part = self._fit(given[place], parts_of(held)[place].type, wanted, f"{path}.{wanted.name}")
            if not wanted.nullable and part.null_count > values.null_count:
                raise self._null(f"{path}.{wanted.name}")
            parts.append(part)
        fields: Any = [field.with_nullable(True) for field in kind]  # noqa: FBT003 - NULL where the struct is
        built = pa.StructArray.from_arrays(parts, fields=fields, mask=missing)
        return built if all(field.nullable for field in kind) else built.cast(kind)

    def _null(self, column: str) -> IcebergSparkError:
        return FailureKind.NULL_IN_REQUIRED_COLUMN.refusal("write", self._subject, f"NULL in the column {column!r}")


def _place(fields: Sequence[Field], name: str, schema: Schema) -> int | None:
    """Return the position of the field of this name, or of the only one in another case if the schema allows that."""
    found = schema.like(fields).field(name)
    return None if found is None else next(index for index, field in enumerate(fields) if field is found)
