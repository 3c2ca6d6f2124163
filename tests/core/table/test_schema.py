"""Types and schemas as values."""

from typing import Any

import pytest
from pyiceberg import types as theirs
from pyiceberg.schema import Schema as TheirSchema

from dagster_iceberg_spark.table.schema import Field, Schema, StructType, fold, parse_schema, parse_type, walk

ADDRESS = theirs.StructType(
    theirs.NestedField(10, "street", theirs.StringType()),
    theirs.NestedField(11, "zip", theirs.DecimalType(5, 0), required=True),
)
TYPES: list[theirs.IcebergType] = [
    theirs.LongType(),
    theirs.DecimalType(38, 18),
    theirs.TimestamptzType(),
    theirs.FixedType(16),
    theirs.ListType(3, theirs.StringType(), element_required=False),
    theirs.MapType(4, theirs.StringType(), 5, theirs.DoubleType(), value_required=True),
    ADDRESS,
    theirs.ListType(6, ADDRESS, element_required=True),
]


def document(value: Any) -> Any:
    return value.model_dump(by_alias=True, mode="json")


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ("long", "long"),
        ("decimal(9,2)", "decimal(9, 2)"),
        ("decimal( 9 , 2 )", "decimal(9, 2)"),
        (document(TYPES[4]), "list<string>"),
        (document(TYPES[5]), "map<string, double>"),
        (document(ADDRESS), "struct<street: string, zip: decimal(5, 0)>"),
    ],
)
def test_a_type_is_written_as_in_the_iceberg_spec(document: Any, text: str) -> None:
    assert str(parse_type(document)) == text


def test_every_pyiceberg_type_is_read_with_field_id_and_doc() -> None:
    fields = [theirs.NestedField(100 + i, f"c{i}", column, doc=f"d{i}") for i, column in enumerate(TYPES)]
    read = parse_schema(document(TheirSchema(*fields, schema_id=7)))
    assert read.schema_id == 7
    assert [(f.name, f.field_id, f.doc, f.is_required) for f in read] == [
        (f"c{i}", 100 + i, f"d{i}", False) for i in range(len(TYPES))
    ]
    assert [field.type for field in read] == [parse_type(document(column)) for column in TYPES]


def test_required_fields_are_kept_at_any_depth() -> None:
    element = parse_type(document(TYPES[7]))
    assert element.is_element_required  # type: ignore[union-attr]
    assert [f.is_required for f in element.element.fields] == [False, True]  # type: ignore[union-attr]
    assert parse_type(document(TYPES[5])).is_value_required  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("names", "asked", "found"),
    [
        (("id", "Name"), "id", "id"),
        (("id", "Name"), "NAME", "Name"),
        (("id", "ID"), "ID", "ID"),
        (("id", "ID"), "Id", None),
        (("id",), "no", None),
        (("Maße", "Masse"), "MASSE", "Masse"),
    ],
)
def test_a_column_is_found_by_exact_name_or_else_ignoring_case(
    names: tuple[str, ...], asked: str, found: str | None
) -> None:
    field = Schema(tuple(Field(name, parse_type("int")) for name in names)).field(asked)
    assert (field.name if field else None) == found


def test_nested_fields_are_listed_with_their_paths() -> None:
    inner = StructType((Field("y", parse_type("int"), field_id=3),))
    columns = Schema((Field("a", parse_type("int"), field_id=1), Field("b", inner, field_id=2)))
    assert [path for path, _ in walk(columns.fields)] == ["a", "b", "b.y"]
    assert columns.name_of(3) == "b.y"
    assert columns.name_of(9) is None
    assert columns.names == ("a", "b")


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("Delay", "dELAY", True),
        ("Ma\N{LATIN SMALL LETTER SHARP S}e", "Masse", False),
        ("Ma\N{LATIN SMALL LETTER SHARP S}e", "MA\N{LATIN CAPITAL LETTER SHARP S}E", True),
        ("\N{LATIN SMALL LETTER DOTLESS I}", "i", True),
        ("\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}", "i", True),
        ("\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}", "i\N{COMBINING DOT ABOVE}", False),
        ("\N{GREEK CAPITAL LETTER SIGMA}", "\N{GREEK SMALL LETTER FINAL SIGMA}", True),
        ("\N{GREEK SMALL LETTER SIGMA}", "\N{GREEK SMALL LETTER FINAL SIGMA}", True),
        ("\N{KELVIN SIGN}", "k", True),
        ("\N{ANGSTROM SIGN}", "\N{LATIN SMALL LETTER A WITH RING ABOVE}", True),
        ("\N{LATIN SMALL LIGATURE FF}", "ff", False),
        ("\N{LATIN SMALL LETTER LONG S}", "S", True),
        ("\N{MICRO SIGN}", "\N{GREEK CAPITAL LETTER MU}", True),
        ("\N{LATIN SMALL LETTER N PRECEDED BY APOSTROPHE}", "\N{MODIFIER LETTER APOSTROPHE}n", False),
        ("\N{LATIN CAPITAL LETTER DZ WITH CARON}", "\N{LATIN CAPITAL LETTER D WITH SMALL LETTER Z WITH CARON}", True),
        ("\N{GREEK SMALL LETTER ALPHA WITH YPOGEGRAMMENI}", "\N{GREEK CAPITAL LETTER ALPHA WITH PROSGEGRAMMENI}", True),
        ("\N{GREEK THETA SYMBOL}", "\N{GREEK SMALL LETTER THETA}", True),
        ("\N{COMBINING GREEK YPOGEGRAMMENI}", "\N{GREEK SMALL LETTER IOTA}", True),
        ("\N{DESERET CAPITAL LETTER LONG I}", "\N{DESERET SMALL LETTER LONG I}", True),
        ("\N{CHEROKEE LETTER A}", "\N{CHEROKEE SMALL LETTER A}", True),
        ("\N{GEORGIAN MTAVRULI CAPITAL LETTER AN}", "\N{GEORGIAN LETTER AN}", True),
    ],
)
def test_names_are_equal_if_spark_treats_them_as_equal(one: str, other: str, *, is_same: bool) -> None:
    """Observed in Spark 4.1: a DataFrame with one column name, written by name into a table with the other."""
    assert (fold(one) == fold(other)) == is_same
    assert (Schema((Field(one, parse_type("int")),)).field(other) is not None) == is_same
