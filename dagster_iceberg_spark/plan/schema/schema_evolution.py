"""The changes of a table's schema and partition spec that a write needs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Literal, TypeAlias

from dagster_iceberg_spark.errors import SchemaMismatchError
from dagster_iceberg_spark.plan.options.output_options import SchemaEvolution
from dagster_iceberg_spark.table.identifier import quote_part
from dagster_iceberg_spark.table.schema import (
    BINARY,
    DOUBLE,
    FLOAT,
    INT,
    INTEGERS,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMPTZ,
    UUID,
    DecimalType,
    Field,
    IcebergType,
    ListType,
    MapType,
    NestedType,
    PrimitiveType,
    Schema,
    StructType,
    all_paths,
    fold,
    parts_of,
    types_within,
    walk_paths,
    with_parts,
)
from dagster_iceberg_spark.table.updates import (
    AddColumn,
    DescribeColumn,
    DropColumn,
    MoveColumn,
    RelaxColumn,
    TableUpdate,
    WidenColumn,
)

_cannot_write = partial(SchemaMismatchError.refusing, "write")
Path = tuple[str, ...]

_Types: TypeAlias = dict[str, IcebergType]
_Conversion: TypeAlias = Callable[[IcebergType, IcebergType], IcebergType]
StorageVerdict: TypeAlias = Literal["as is", "stored", "widened", "refused"]

RESERVED_COLUMNS: Final = frozenset(
    {"_file", "_pos", "_partition", "_deleted", "_spec_id", "_row_id", "_last_updated_sequence_number"}
)
"""Names of Iceberg's metadata columns. Iceberg compares them exactly (Iceberg documentation, "Spark Queries")."""
OWN_PREFIX: Final = "__dagster_"

_DIGITS_OF: Final = {INT: 10, LONG: 19}
"""The number of decimal digits of the integer types."""
_WAITING: Final = (DropColumn, MoveColumn)
_UNKNOWN: Final = PrimitiveType("unknown")
REFUSED_TYPES: Final[Mapping[str, str]] = {"variant": "which pyiceberg cannot read"}
"""The types that no column of is added, unless the asset says who reads the table. Each has the reason."""


@dataclass(frozen=True, slots=True)
class SchemaChanges:
    """The changes that a write needs before it, and those that may lose values or only tidy up after its commit."""

    before: tuple[TableUpdate, ...] = ()
    after: tuple[TableUpdate, ...] = ()


def plan_schema_changes(
    frame: Schema,
    table: Schema,
    *,
    policy: SchemaEvolution,
    docs: Mapping[str, str],
    subject: str,
    protected: Mapping[str, str] | None = None,
    refused: Mapping[str, str] = REFUSED_TYPES,
) -> SchemaChanges:
    """Return the changes of the table that the DataFrame needs, which is written by column name.

    `strict` allows no difference. `add_columns` allows new columns and wider types. `full` also drops columns that the
    DataFrame lacks, except the protected ones (by dotted name, with the reason), and adopts its order. Columns without
    a description in `docs` keep theirs. Columns of the types in `refused` are not added, each for a reason.
    """
    if policy == "strict":
        difference = next(_differences(frame, table.fields, path=()), None)
        if difference is not None:
            raise _cannot_write(
                subject,
                expected="exactly the table's columns and types (`iceberg/schema_evolution` is `strict`)",
                found=f"a difference: {difference}",
                hint='set `iceberg/schema_evolution` to "add_columns", or change the DataFrame.',
            )
        return SchemaChanges(before=tuple(_doc_changes(table, docs)))
    evolution = _Evolution(policy, subject, protected or {}, frame, refused)
    changes = tuple(evolution.of_fields(frame.fields, table.fields, path=()))
    before = tuple(change for change in changes if not isinstance(change, _WAITING))
    after = tuple(change for change in changes if isinstance(change, _WAITING))
    return SchemaChanges((*before, *_doc_changes(table, docs)), after)


def completed_columns(frame: Schema, table: Schema) -> dict[str, IcebergType]:
    """Return the columns whose structs lack fields of the table, with the complete type.

    Spark fills a column that a DataFrame lacks with NULL, but not a field of a struct.
    """
    return _other_types(frame, table, lambda source, _: source, adds_fields=True)


def columns_to_check(frame: Schema, table: Schema) -> dict[str, IcebergType]:
    """Return the columns whose values must be checked, because Spark lacks the table's type, each with that type."""
    return _other_types(frame, table, lambda source, target: target if is_stand_in(source, target) else source)


def _other_types(frame: Schema, table: Schema, convert: _Conversion, *, adds_fields: bool = False) -> _Types:
    row = _convert(StructType(frame.fields), StructType(table.fields), frame, convert, adds_fields=adds_fields)
    pairs = zip(frame, parts_of(row), strict=False)  # columns that are added are at the end
    return {field.name: converted.type for field, converted in pairs if converted.type != field.type}


def _convert(
    source: IcebergType, target: IcebergType, frame: Schema, convert: _Conversion, *, adds_fields: bool
) -> IcebergType:
    """Return the source type with converted primitive types, and with the target's fields at the end of each struct."""
    if type(source) is not type(target) or not isinstance(source, NestedType):
        return convert(source, target)
    stored, given = frame.like(parts_of(target)), frame.like(parts_of(source))
    pairs = ((part, (stored.field(part.name) or part).type) for part in given)
    parts = (
        replace(part, type=_convert(part.type, other, frame, convert, adds_fields=adds_fields)) for part, other in pairs
    )
    lacking = (field for field in stored if adds_fields and given.field(field.name) is None)
    return with_parts(source, (*parts, *lacking))


def lacks_fields_of_structs_only(source: IcebergType, complete: IcebergType) -> bool:
    """Return whether only structs outside lists and maps lack fields of the complete type."""
    match source, complete:
        case StructType(), StructType():
            full = {field.name: field.type for field in complete.fields}
            return all(lacks_fields_of_structs_only(field.type, full[field.name]) for field in source.fields)
        case _:
            return source == complete


def refuse_repeated_columns(frame: Schema, table: Schema | None = None, *, subject: str) -> None:
    """Reject a DataFrame in which two columns, or two fields of a struct at any depth, have the same name.

    Names that differ only in case are the same if the session ignores case. Neither may two columns of the DataFrame or
    the table have the same dotted path, by which Iceberg identifies them.
    """
    seen: dict[tuple[str, ...], str] = {}
    for path, field in walk_paths(frame.fields):
        *parent, name = path
        compared = (*parent, name if frame.is_case_sensitive else fold(name))
        if compared in seen:
            kind, place = ("fields", f" of {'.'.join(parent)!r}") if parent else ("columns", "")
            raise _cannot_write(
                subject,
                expected="column names that differ",
                found=f"the {kind} {seen[compared]!r} and {field.name!r}{place}",
                hint="rename one of them.",
            )
        seen[compared] = name
    known: dict[str, tuple[str, ...]] = {}
    for path in (*all_paths(frame.fields), *all_paths(table.fields if table else ())):
        other = known.setdefault(".".join(path), path)
        if other != path:
            raise _cannot_write(
                subject,
                expected="columns whose dotted paths differ, because Iceberg identifies them by their paths",
                found=" and ".join(".".join(map(quote_part, path)) for path in (other, path)),
                hint="rename the column that has a dot in its name.",
            )


def refuse_no_columns(frame: Schema, *, subject: str) -> None:
    """Reject a DataFrame without columns, such as an empty one of pandas: it would drop all columns of the table."""
    if not frame.fields:
        raise _cannot_write(
            subject,
            expected="at least one column",
            found="a DataFrame without columns",
            hint="return a DataFrame with the table's columns, also where it has no rows.",
        )


def refuse_reserved_columns(frame: Schema, *, subject: str) -> None:
    """Reject reserved names of columns, with which Spark could no longer read or change the table."""
    for path, field in walk_paths(frame.fields):
        refuse_substituted(path, subject=subject)
        if not field.name:
            raise _cannot_write(
                subject,
                expected="a name for each column and field",
                found=f"a field without one in {'.'.join(path[:-1])!r}" if path[:-1] else "a column without one",
                hint="name it in the asset.",
            )
    for name in frame.names:
        if name in RESERVED_COLUMNS or name.startswith(OWN_PREFIX):
            owner = "this package" if name.startswith(OWN_PREFIX) else "Iceberg"
            raise _cannot_write(
                subject,
                expected=f"column names that {owner} does not reserve",
                found=f"the column {name!r}",
                hint="rename it in the asset.",
            )


def refuse_substituted(parts: Sequence[str], *, subject: str) -> None:
    """Reject names in which Spark substitutes a variable, also in backticks (`spark.sql.variable.substitute`)."""
    for name in parts:
        if "${" in name:
            raise _cannot_write(
                subject,
                expected="names without `${`, where Spark's SQL substitutes a variable",
                found=repr(name),
                hint="rename it.",
            )


def storage_verdict(source: IcebergType, target: IcebergType) -> StorageVerdict:
    """Return how a column of the DataFrame is stored in the table's column, for primitive types.

    `as is`: the types are equal. `stored`: the table's type holds every value. `widened`: the table's column gets the
    DataFrame's type, which holds all of its values. `refused`: a value could change.
    """
    if source == target:
        return "as is"
    if is_lossless(source, target) or is_stand_in(source, target):
        return "stored"
    return "widened" if is_promotion(target, source) else "refused"


def is_lossless(source: IcebergType, target: IcebergType) -> bool:
    """Return whether the target type holds every value of the source type, unchanged."""
    if source in (target, _UNKNOWN):
        return True
    match source, target:
        case DecimalType(), DecimalType():
            return source.scale <= target.scale and source.precision - source.scale <= target.precision - target.scale
        case PrimitiveType(), DecimalType():
            return target.precision - target.scale >= _DIGITS_OF.get(source, target.precision + 1)
        case _:
            return (source, target) in ((INT, LONG), (FLOAT, DOUBLE), (INT, DOUBLE))


def is_stand_in(source: IcebergType, target: IcebergType) -> bool:
    """Return whether Spark represents the table's type by the DataFrame's type. Each value must then be checked."""
    return (source, target) == (STRING, UUID) or (source == BINARY and str(target).startswith("fixed["))


def is_promotion(before: IcebergType, after: IcebergType) -> bool:
    """Return whether Iceberg can change a column from one type to the other (spec, "Schema Evolution")."""
    match before, after:
        case DecimalType(), DecimalType():
            return before.scale == after.scale and before.precision < after.precision
        case _:
            return (before, after) in ((INT, LONG), (FLOAT, DOUBLE))


@dataclass(frozen=True, slots=True)
class _Evolution:
    """The changes that make a DataFrame's columns fit a table's."""

    policy: SchemaEvolution
    subject: str
    protected: Mapping[str, str]
    frame: Schema
    refused: Mapping[str, str]

    def of_fields(
        self, frame: Sequence[Field], table: Sequence[Field], *, path: tuple[str, ...]
    ) -> Iterator[TableUpdate]:
        target, source = self.frame.like(table), self.frame.like(frame)
        for field in frame:
            if (stored := target.field(field.name)) is None:
                yield _addition(field, (*path, field.name), self.refused, subject=self.subject)
            else:
                yield from self.of_type(field.type, stored.type, path=(*path, stored.name))
        missing = [stored for stored in table if source.field(stored.name) is None]
        for stored in missing:
            yield from self.of_missing(stored, (*path, stored.name), source)
        if self.policy == "full":
            kept = [stored.name for stored in table if stored not in missing]
            added = [field.name for field in frame if target.field(field.name) is None]
            wanted = [(target.field(field.name) or field).name for field in frame]
            yield from _moves([*kept, *added], wanted, path)

    def of_missing(self, stored: Field, path: tuple[str, ...], source: Schema) -> Iterator[TableUpdate]:
        name = ".".join(path)
        if self.policy != "full":
            if stored.is_required:
                raise _cannot_write(
                    self.subject,
                    expected=f"the required column {'.'.join(path)!r}",
                    found=_dataframe_of(source.names),
                    hint="add the column; only optional columns are filled with NULL.",
                )
            return
        needed = next((use for held, use in self.protected.items() if f"{held}.".startswith(f"{name}.")), None)
        if needed is not None:
            raise _cannot_write(
                self.subject,
                expected=f"the column {'.'.join(path)!r}, {needed}",
                found=_dataframe_of(source.names),
                hint="add the column, or change the table's layout first. `full` drops columns that the DataFrame "
                "lacks, but none that the layout needs.",
            )
        if stored.is_required:
            yield RelaxColumn(path)
        yield DropColumn(path)

    def of_type(self, source: IcebergType, target: IcebergType, *, path: tuple[str, ...]) -> Iterator[TableUpdate]:
        match source, target:
            case StructType(), StructType():
                yield from self.of_fields(source.fields, target.fields, path=path)
            case ListType(), ListType():
                yield from self.of_type(source.element, target.element, path=(*path, "element"))
            case MapType(), MapType():
                if not _fits_as_key(source.key, target.key, self.frame):
                    raise _cannot_write(
                        self.subject,
                        expected=f"the map {'.'.join(path)!r} with keys of type {target.key}",
                        found=f"keys of type {source.key}",
                        hint="cast the keys, or write another column: the keys of a map cannot evolve.",
                    )
                yield from self.of_type(source.value, target.value, path=(*path, "value"))
            case _ if (verdict := storage_verdict(source, target)) == "widened":
                yield WidenColumn(path, before=target, after=source)
            case _ if verdict == "refused":
                raise _unfit_type(self.subject, path, source, target)


def _moves(current: list[str], wanted: Sequence[str], path: tuple[str, ...]) -> Iterator[MoveColumn]:
    order = list(current)
    for position, name in enumerate(wanted):
        if order[position] != name:
            order.remove(name)
            order.insert(position, name)
            yield MoveColumn((*path, name), wanted[position - 1] if position else None)


def _differences(frame: Schema, table: Sequence[Field], *, path: tuple[str, ...]) -> Iterator[str]:
    target = frame.like(table)
    for field in frame:
        stored, here = target.field(field.name), (*path, field.name)
        if stored is None:
            yield f"the column {'.'.join(here)} of type {field.type}, which the table lacks"
        elif type(field.type) is type(stored.type) and isinstance(field.type, NestedType):
            yield from _differences(frame.like(parts_of(field.type)), parts_of(stored.type), path=here)
        elif field.type != stored.type and not is_stand_in(field.type, stored.type):
            yield f"the column {'.'.join(here)} of type {field.type}, where the table has {stored.type}"
    for stored in table:
        if frame.field(stored.name) is None:
            yield f"no column {'.'.join((*path, stored.name))}"


def _addition(field: Field, path: tuple[str, ...], refused: Mapping[str, str], *, subject: str) -> AddColumn:
    within = frozenset(types_within(field.type))
    unread = next(((kind, reason) for kind in within if (reason := refused.get(str(kind).partition("(")[0]))), None)
    if unread is not None:
        raise _cannot_write(
            subject,
            expected=f"a type that every reader supports for the column {'.'.join(path)!r}",
            found=", ".join(map(str, unread)),
            hint="store it as text with `to_json` or as a struct, or name the engines that read the table in "
            "`iceberg/readers`.",
        )
    if _UNKNOWN in within:
        raise _missing_type(subject, path, field)
    return AddColumn(path, field.type, field.doc)


def _fits_as_key(source: IcebergType, target: IcebergType, frame: Schema) -> bool:
    """Return whether the keys of a map can be stored unchanged. The fields of a struct must be the same."""
    match source, target:
        case StructType(), StructType():
            stored, given = frame.like(target.fields), frame.like(source.fields)
            pairs = [(field.type, known.type) for field in given if (known := stored.field(field.name))]
            return len(pairs) == len(given.fields) == len(stored.fields) and all(
                _fits_as_key(one, other, frame) for one, other in pairs
            )
        case ListType(), ListType():
            return _fits_as_key(source.element, target.element, frame)
        case _:
            return storage_verdict(source, target) in ("as is", "stored")


def _doc_changes(table: Schema, docs: Mapping[str, str]) -> Iterator[DescribeColumn]:
    for name, doc in docs.items():
        if (stored := table.field(name)) is not None and stored.doc != doc:
            yield DescribeColumn((stored.name,), doc)


def with_docs(schema: Schema, docs: Mapping[str, str]) -> Schema:
    """Return the schema with the descriptions of the definition."""
    return replace(schema, fields=tuple(replace(field, doc=docs.get(field.name, field.doc)) for field in schema.fields))


def _dataframe_of(columns: Sequence[str]) -> str:
    return f"a DataFrame with the columns {', '.join(columns) or 'none'}"


def _unfit_type(subject: str, path: Path, source: IcebergType, target: IcebergType) -> SchemaMismatchError:
    """A column cannot be stored in the table's type, and the table's type cannot be widened."""
    name = ".".join(path)
    hint = f"cast {name!r} in the asset, if it may lose what does not fit."
    if {source, target} == {TIMESTAMP, TIMESTAMPTZ}:
        hint = (
            "convert it with an explicit zone (`to_utc_timestamp`, `from_utc_timestamp`, `convert_timezone`) and cast "
            "the result; a bare cast would follow the session's time zone."
        )
    if source == DOUBLE and target in INTEGERS:
        hint += " In pandas, integers beside NULL stay integers as `Int64`."
    return _cannot_write(
        subject,
        expected=f"the column {name!r} of type {target}, or of a narrower one",
        found=f"type {source}, which cannot be stored there unchanged",
        hint=hint,
    )


def _missing_type(subject: str, path: Path, field: Field) -> SchemaMismatchError:
    """A new column, or a part of it, has no type, because it holds only NULL."""
    is_nested = bool(parts_of(field.type))
    found = f"{field.type}, in which unknown stands for nothing but NULL" if is_nested else "nothing but NULL (void)"
    kind = "array<string>" if is_nested else "string"
    return _cannot_write(
        subject,
        expected=f"a type for the new column {'.'.join(path)!r}",
        found=found,
        hint=f'cast it: `.withColumn("{field.name}", lit(None).cast("{kind}"))` in Spark, `astype` in pandas, `cast` '
        "in polars and pyarrow.",
    )
