"""Iceberg's types and schemas as values (Iceberg spec, "Schemas and Data Types")."""

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, InvalidOperation
from typing import Any, Final, TypeAlias

_CONTEXT: Final = Context(prec=38)
"""Iceberg's decimals have at most 38 digits; Python's default precision is 28."""
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")


@dataclass(frozen=True, slots=True)
class PrimitiveType:
    """A primitive type by its name in the Iceberg spec: `int`, `long`, `timestamptz`, `fixed[16]`, ..."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class DecimalType:
    """A decimal with a number of digits (precision) and a number of digits after the point (scale)."""

    precision: int
    scale: int

    def __str__(self) -> str:
        return f"decimal({self.precision}, {self.scale})"

    def exact(self, number: Decimal) -> Decimal | None:
        """Return the number with the type's scale, or None if it is not a value of the type."""
        try:
            scaled = number.quantize(Decimal(1).scaleb(-self.scale), context=_CONTEXT)
        except InvalidOperation:
            return None
        return scaled if scaled == number and len(scaled.as_tuple().digits) <= self.precision else None


@dataclass(frozen=True, slots=True)
class StructType:
    """A struct of named fields."""

    fields: tuple["Field", ...]

    def __str__(self) -> str:
        return f"struct<{', '.join(f'{field.name}: {field.type}' for field in self.fields)}>"


@dataclass(frozen=True, slots=True)
class ListType:
    """A list with elements of one type."""

    element: "IcebergType"
    is_element_required: bool = False

    def __str__(self) -> str:
        return f"list<{self.element}>"


@dataclass(frozen=True, slots=True)
class MapType:
    """A map from keys to values."""

    key: "IcebergType"
    value: "IcebergType"
    is_value_required: bool = False

    def __str__(self) -> str:
        return f"map<{self.key}, {self.value}>"


NestedType: TypeAlias = StructType | ListType | MapType
IcebergType: TypeAlias = PrimitiveType | DecimalType | NestedType

BOOLEAN = PrimitiveType("boolean")
INT = PrimitiveType("int")
LONG = PrimitiveType("long")
FLOAT = PrimitiveType("float")
DOUBLE = PrimitiveType("double")
DATE = PrimitiveType("date")
TIMESTAMP = PrimitiveType("timestamp")
TIMESTAMPTZ = PrimitiveType("timestamptz")
STRING = PrimitiveType("string")
BINARY = PrimitiveType("binary")
UUID = PrimitiveType("uuid")
INTEGERS = frozenset({INT, LONG})
GREATEST: Final[Mapping[IcebergType, int]] = {INT: 2**31 - 1, LONG: 2**63 - 1}
"""The greatest integers of the types."""


DefaultValue: TypeAlias = bool | float | str | None


@dataclass(frozen=True, slots=True)
class Field:
    """A column, or a field of a struct.

    Args:
        name: Any text. Iceberg compares names exactly; in Spark, it depends on the session's setting.
        is_required: Whether the field rejects NULL.
        field_id: The field id in Iceberg, or None for a column of a DataFrame.
        initial_default: The value in files that lack the field, in the JSON form of the Iceberg spec (appendix D), or
            None for NULL.
        write_default: The value in new rows whose writer does not have the field, in the same form.
    """

    name: str
    type: IcebergType
    is_required: bool = False
    doc: str | None = None
    field_id: int | None = None
    initial_default: DefaultValue = dataclasses.field(default=None, compare=False)
    write_default: DefaultValue = dataclasses.field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Schema:
    """The columns of a DataFrame or a table, in order. Case sensitivity of names is a setting of Spark's session."""

    fields: tuple[Field, ...]
    schema_id: int | None = None
    is_case_sensitive: bool = False
    _by_name: dict[str, list[Field]] = dataclasses.field(default_factory=dict, init=False, repr=False, compare=False)

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return tuple(field.name for field in self.fields)

    def field(self, name: str) -> Field | None:
        """Return the column of this name. Without case sensitivity, the only column in another case matches too."""
        if not self._by_name:
            for field in self.fields:
                self._by_name.setdefault(fold(field.name), []).append(field)
        alike = self._by_name.get(fold(name), ())
        exact = next((field for field in alike if field.name == name), None)
        if exact is not None or self.is_case_sensitive:
            return exact
        return alike[0] if len(alike) == 1 else None

    def exact(self, name: str) -> str:
        """Return the name as its column has it, or unchanged if there is no such column."""
        field = self.field(name)
        return name if field is None else field.name

    def like(self, fields: Iterable[Field]) -> "Schema":
        """Return a schema of other fields whose names are compared in the same way."""
        return Schema(tuple(fields), is_case_sensitive=self.is_case_sensitive)

    def name_of(self, field_id: int) -> str | None:
        """Return the dotted name of the field with this id, at any depth."""
        return next((name for name, field in walk(self.fields) if field.field_id == field_id), None)


def fold(name: str) -> str:
    """Return a form of the name that is equal for names that Spark treats as equal without regard to case.

    Spark uses Java's `String.equalsIgnoreCase`, which compares character by character. A dotless i equals an i, and the
    two small sigmas are equal, but a sharp s does not equal ss.
    """
    return name.lower() if name.isascii() else "".join(map(_folded_character, name))


def _folded_character(character: str) -> str:
    upper = character.upper()
    # Java maps a character to one character, and does not change one whose upper case has several.
    return (upper if len(upper) == 1 else character).lower()[0]


def parts_of(column_type: IcebergType) -> tuple[Field, ...]:
    """Return the fields of a struct, or the parts of a list or a map as fields `element`, or `key` and `value`."""
    match column_type:
        case StructType():
            return column_type.fields
        case ListType():
            return (Field("element", column_type.element),)
        case MapType():
            return (Field("key", column_type.key), Field("value", column_type.value))
        case _:
            return ()


def with_parts(column_type: IcebergType, parts: Sequence[Field]) -> IcebergType:
    """Return the type with other fields, or with other types of its element, or of its key and value."""
    match column_type:
        case StructType():
            return StructType(tuple(parts))
        case ListType():
            return dataclasses.replace(column_type, element=parts[0].type)
        case MapType():
            return dataclasses.replace(column_type, key=parts[0].type, value=parts[1].type)
        case _:
            return column_type


def types_within(column_type: IcebergType) -> Iterator[IcebergType]:
    """Yield the type and every type inside it."""
    yield column_type
    for part in parts_of(column_type):
        yield from types_within(part.type)


def is_orderable(column_type: IcebergType) -> bool:
    """Return whether values of the type can be sorted. Maps and variants cannot."""
    return not any(isinstance(item, MapType) or str(item) == "variant" for item in types_within(column_type))


def walk(fields: Sequence[Field], prefix: str = "") -> Iterator[tuple[str, Field]]:
    """Yield every named field with its dotted path, depth first. This descends into structs only."""
    for field in fields:
        path = f"{prefix}{field.name}"
        yield path, field
        if isinstance(field.type, StructType):
            yield from walk(field.type.fields, f"{path}.")


def walk_paths(fields: Sequence[Field], parent: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Field]]:
    """Yield every named field with its path. `element`, `key` and `value` are the steps into lists and maps."""
    for field in fields:
        path = (*parent, field.name)
        yield path, field
        yield from _inner_paths(field.type, path)


def _inner_paths(column_type: IcebergType, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Field]]:
    if isinstance(column_type, StructType):
        yield from walk_paths(column_type.fields, path)
    else:
        for part in parts_of(column_type):
            yield from _inner_paths(part.type, (*path, part.name))


def all_paths(fields: Sequence[Field], parent: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of everything with a field id, including `element`, `key` and `value` of lists and maps."""
    for field in fields:
        path = (*parent, field.name)
        yield path
        yield from all_paths(parts_of(field.type), path)


def are_same_columns(fields: Sequence[Field], others: Sequence[Field]) -> bool:
    """Return whether both have the same fields in the same order: equal ids, names and types at every depth."""
    return len(fields) == len(others) and all(
        (one.name, one.field_id) == (other.name, other.field_id) and is_same_type(one.type, other.type)
        for one, other in zip(fields, others, strict=True)
    )


def is_same_type(one: IcebergType, other: IcebergType) -> bool:
    """Return whether both are the same type, with the same fields at every depth."""
    inner = parts_of(one)
    return type(one) is type(other) and are_same_columns(inner, parts_of(other)) if inner else one == other


def parse_schema(document: Mapping[str, Any]) -> Schema:
    """Parse a schema in the JSON form of the Iceberg spec (appendix C)."""
    return Schema(tuple(_field(field) for field in document["fields"]), document.get("schema-id"))


_NAMES: Final = re.compile(
    r"boolean|int|long|float|double|date|time|timestamp|timestamptz|timestamp_ns|timestamptz_ns|string|uuid|binary"
    r"|fixed\[\d+\]|variant|unknown"
)


def is_type_name(text: str) -> bool:
    """Return whether a text is the name of a primitive type, in the notation of the Iceberg spec."""
    return bool(_NAMES.fullmatch(text) or _DECIMAL.fullmatch(text))


def parse_type(document: str | Mapping[str, Any]) -> IcebergType:
    """Parse a type in the JSON form of the Iceberg spec (appendix C)."""
    if isinstance(document, str):
        decimal = _DECIMAL.fullmatch(document)
        return DecimalType(int(decimal[1]), int(decimal[2])) if decimal else PrimitiveType(document)
    if document["type"] == "struct":
        return StructType(tuple(_field(field) for field in document["fields"]))
    if document["type"] == "list":
        return ListType(parse_type(document["element"]), is_element_required=document["element-required"])
    return MapType(
        parse_type(document["key"]), parse_type(document["value"]), is_value_required=document["value-required"]
    )


def _field(document: Mapping[str, Any]) -> Field:
    return Field(
        name=document["name"],
        type=parse_type(document["type"]),
        is_required=document["required"],
        doc=document.get("doc"),
        field_id=document.get("id"),
        initial_default=document.get("initial-default"),
        write_default=document.get("write-default"),
    )
