"""The errors for columns and types of a DataFrame that do not fit a table.

Each function returns the error of one case. The caller raises it.
"""

from collections.abc import Sequence
from functools import partial

from dagster_iceberg_spark.errors import SchemaMismatchError
from dagster_iceberg_spark.table.identifier import quote_part
from dagster_iceberg_spark.table.schema import DOUBLE, INTEGERS, TIMESTAMP, TIMESTAMPTZ, Field, IcebergType, parts_of

Path = tuple[str, ...]

_cannot_write = partial(SchemaMismatchError.refusing, "write")


def strict_difference(subject: str, difference: str) -> SchemaMismatchError:
    """The DataFrame differs from the table, and the definition allows no difference."""
    return _cannot_write(
        subject,
        expected="exactly the table's columns and types (`iceberg/schema_evolution` is `strict`)",
        found=f"a difference: {difference}",
        hint='set `iceberg/schema_evolution` to "add_columns", or change the DataFrame.',
    )


def no_columns(subject: str) -> SchemaMismatchError:
    """The DataFrame has no columns."""
    return _cannot_write(
        subject,
        expected="at least one column",
        found="a DataFrame without columns",
        hint="return a DataFrame with the table's columns, also where it has no rows.",
    )


def repeated_name(subject: str, names: tuple[str, str], parent: Sequence[str]) -> SchemaMismatchError:
    """Two columns, or two fields of the struct `parent`, have the same name."""
    one, other = names
    return _cannot_write(
        subject,
        expected="column names that differ",
        found=f"the fields {one!r} and {other!r} of {'.'.join(parent)!r}"
        if parent
        else f"the columns {one!r} and {other!r}",
        hint="rename one of them.",
    )


def repeated_path(subject: str, one: Path, other: Path) -> SchemaMismatchError:
    """Two columns or fields have the same dotted path, because a name contains a dot."""
    return _cannot_write(
        subject,
        expected="columns whose dotted paths differ, because Iceberg identifies them by their paths",
        found=" and ".join(".".join(map(quote_part, path)) for path in (one, other)),
        hint="rename the column that has a dot in its name.",
    )


def reserved_name(subject: str, name: str, owner: str) -> SchemaMismatchError:
    """A column has a name that Iceberg or this package reserves."""
    return _cannot_write(
        subject,
        expected=f"column names that {owner} does not reserve",
        found=f"the column {name!r}",
        hint="rename it in the asset.",
    )


def empty_name(subject: str, parent: Path) -> SchemaMismatchError:
    """A column, or a field of the struct `parent`, has no name."""
    return _cannot_write(
        subject,
        expected="a name for each column and field",
        found=f"a field without one in {'.'.join(parent)!r}" if parent else "a column without one",
        hint="name it in the asset.",
    )


def substituted_name(subject: str, name: str) -> SchemaMismatchError:
    """Spark substitutes a variable in the name of a table, column or field."""
    return _cannot_write(
        subject,
        expected="names without `${`, where Spark's SQL substitutes a variable",
        found=repr(name),
        hint="rename it.",
    )


def required_column_missing(subject: str, path: Path, columns: Sequence[str]) -> SchemaMismatchError:
    """The DataFrame lacks a column that must not hold NULL."""
    return _cannot_write(
        subject,
        expected=f"the required column {'.'.join(path)!r}",
        found=_dataframe_of(columns),
        hint="add the column; only optional columns are filled with NULL.",
    )


def needed_column_missing(subject: str, path: Path, use: str, columns: Sequence[str]) -> SchemaMismatchError:
    """The DataFrame lacks a column that cannot be dropped, because the table's layout needs it."""
    return _cannot_write(
        subject,
        expected=f"the column {'.'.join(path)!r}, {use}",
        found=_dataframe_of(columns),
        hint="add the column, or change the table's layout first. `full` drops columns that the DataFrame lacks, but "
        "none that the layout needs.",
    )


def unfit_type(subject: str, path: Path, source: IcebergType, target: IcebergType) -> SchemaMismatchError:
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


def other_map_keys(subject: str, path: Path, source: IcebergType, target: IcebergType) -> SchemaMismatchError:
    """The keys of a map have another type: keys cannot evolve (Iceberg spec, "Schema Evolution")."""
    return _cannot_write(
        subject,
        expected=f"the map {'.'.join(path)!r} with keys of type {target}",
        found=f"keys of type {source}",
        hint="cast the keys, or write another column: the keys of a map cannot evolve.",
    )


def variant(subject: str, path: Path) -> SchemaMismatchError:
    """A new column has a type that pyiceberg cannot read."""
    return _cannot_write(
        subject,
        expected=f"a type that every reader supports for the column {'.'.join(path)!r}",
        found="variant, which makes the whole table unreadable for pyiceberg",
        hint="store it as text with `to_json`, or as a struct.",
    )


def untyped(subject: str, path: Path, field: Field) -> SchemaMismatchError:
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


def lacks_inner_fields(subject: str, field: Field) -> SchemaMismatchError:
    """A list or a map in a merge's batch lacks fields that the table has."""
    return SchemaMismatchError.refusing(
        "merge into",
        subject,
        expected=f"all fields that the table has inside of the column {field.name!r}",
        found=f"type {field.type}",
        hint="add the fields, or leave the column out: a merge keeps the stored values of columns and of fields of "
        "structs that the batch lacks, but writes lists and maps as a whole.",
    )


def old_name_in_frame(subject: str, old: str, new: str, *, found: str) -> SchemaMismatchError:
    """The DataFrame still has the name that the definition renames, or lacks the new one."""
    return _cannot_write(
        subject,
        expected=f"a DataFrame with {new!r} in place of {old!r} (`iceberg/renames`)",
        found=found,
        hint="rename it in the DataFrame too, or take it out of `iceberg/renames`.",
    )


def both_names_in_table(subject: str, old: str, new: Path) -> SchemaMismatchError:
    """The table has a column of the old name and one of the new name."""
    return _cannot_write(
        subject,
        expected=f"a table with either {old!r} or {'.'.join(new)!r} (`iceberg/renames`)",
        found="both",
        hint=f"take {old!r} out of `iceberg/renames`, or drop one of the columns.",
    )


def _dataframe_of(columns: Sequence[str]) -> str:
    return f"a DataFrame with the columns {', '.join(columns) or 'none'}"


def changed_by_replay(subject: str, changes: Sequence[object]) -> SchemaMismatchError:
    """A replay would have to change the table's columns, which all branches share."""
    return SchemaMismatchError.refusing(
        "replay",
        subject,
        expected="rows that fit the columns of the table, because a replay does not change them",
        found=f"rows that need other columns: {', '.join(map(str, changes))}",
        hint="replay the code version that fits, or run the asset in an environment.",
    )
