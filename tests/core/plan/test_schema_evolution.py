"""How a table changes so that a DataFrame fits, and what is refused."""

import itertools
import re
import struct as struct_module
from dataclasses import replace
from fractions import Fraction

import pytest
from pyiceberg.exceptions import ResolveError
from pyiceberg.schema import promote
from pyiceberg.types import (
    BooleanType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyiceberg.types import DecimalType as TheirDecimal
from pyiceberg.types import IcebergType as TheirType

from dagster_iceberg_spark.errors import SchemaMismatchError
from dagster_iceberg_spark.plan.options.output_options import SchemaEvolution
from dagster_iceberg_spark.plan.schema.schema_evolution import (
    SchemaChanges,
    columns_to_check,
    completed_columns,
    is_lossless,
    is_promotion,
    plan_schema_changes,
    refuse_repeated_columns,
    refuse_reserved_columns,
    storage_verdict,
    with_docs,
)
from dagster_iceberg_spark.table.partitioning import SortField, parse_partition_field
from dagster_iceberg_spark.table.schema import (
    BINARY,
    UUID,
    Field,
    IcebergType,
    ListType,
    MapType,
    Schema,
    StructType,
    parse_type,
)
from dagster_iceberg_spark.table.updates import (
    AddColumn,
    AddPartitionField,
    CreateBranch,
    DescribeColumn,
    DropColumn,
    DropPartitionField,
    MoveColumn,
    RelaxColumn,
    RemoveProperties,
    RenameColumn,
    RenamePartitionField,
    SetIdentifierFields,
    SetProperties,
    SetSortOrder,
    TableUpdate,
    WidenColumn,
)
from tests.core.table.samples import schema

INT, LONG, STRING, VOID = (parse_type(name) for name in ("int", "long", "string", "unknown"))
THEIR_TYPES: list[TheirType] = [
    BooleanType(), IntegerType(), LongType(), FloatType(), DoubleType(), DateType(), TimeType(), TimestampType(),
    TimestamptzType(), StringType(), UUIDType(), TheirDecimal(9, 2), TheirDecimal(12, 2), TheirDecimal(38, 2),
]  # fmt: skip
"""Decimals with one scale only: pyiceberg's `promote` compares a scale with itself, and allows any change of scale."""


def struct(**fields: str | IcebergType) -> StructType:
    return StructType(schema(**fields).fields)


def changes(frame: Schema, table: Schema, *, policy: str = "add_columns", **docs: str) -> tuple[TableUpdate, ...]:
    planned = plan_schema_changes(frame, table, policy=policy, docs=docs, subject="nyc.flights")  # type: ignore[arg-type]
    assert not planned.after
    return planned.before


@pytest.mark.parametrize(
    ("frame", "table", "expected"),
    [
        (schema(a="int"), schema(a="int", b="string"), ()),
        (schema(A="int"), schema(a="int"), ()),
        (schema(b="string", a="int"), schema(a="int", b="string"), ()),
        (schema(a="int"), schema(a="int!"), ()),
        (schema(a="int"), schema(a="long"), ()),
        (schema(a="unknown"), schema(a="date"), ()),
        (schema(a="int", b="date"), schema(a="int"), (AddColumn(("b",), parse_type("date")),)),
        (schema(A="long"), schema(a="int"), (WidenColumn(("a",), INT, LONG),)),
        (schema(a="double"), schema(a="float"), (WidenColumn(("a",), parse_type("float"), parse_type("double")),)),
        (
            schema(a="decimal(12,2)"),
            schema(a="decimal(9,2)"),
            (WidenColumn(("a",), parse_type("decimal(9,2)"), parse_type("decimal(12,2)")),),
        ),
        (
            schema(s=struct(x="int", y="string")),
            schema(S=struct(X="int")),
            (AddColumn(("S", "y"), STRING),),
        ),
        (
            schema(s=struct(t=struct(x="long"))),
            schema(s=struct(t=struct(x="int"))),
            (WidenColumn(("s", "t", "x"), INT, LONG),),
        ),
        (schema(a=ListType(LONG)), schema(a=ListType(INT)), (WidenColumn(("a", "element"), INT, LONG),)),
        (
            schema(a=ListType(struct(x="int", y="int"))),
            schema(a=ListType(struct(x="int"))),
            (AddColumn(("a", "element", "y"), INT),),
        ),
        (schema(m=MapType(STRING, LONG)), schema(m=MapType(STRING, INT)), (WidenColumn(("m", "value"), INT, LONG),)),
        (schema(m=MapType(INT, INT)), schema(m=MapType(LONG, INT)), ()),
    ],
)  # fmt: skip
def test_a_frame_adds_new_columns_and_widens_narrower_ones(
    frame: Schema, table: Schema, expected: tuple[TableUpdate, ...]
) -> None:
    assert changes(frame, table) == expected


@pytest.mark.parametrize(
    ("frame", "table"),
    [
        ("long", "decimal(9,0)"),
        ("string", "int"),
        ("int", "string"),
        ("double", "int"),
        ("date", "timestamp"),
        ("timestamp", "date"),
        ("decimal(9,3)", "decimal(9,2)"),
        ("decimal(12,3)", "decimal(9,2)"),
        ("decimal(2,1)", "double"),
        ("timestamptz", "date"),
        ("long", "double"),
        ("boolean", "int"),
        (ListType(INT), "int"),
        (struct(x="int"), MapType(STRING, INT)),
    ],
    ids=str,
)
def test_a_type_that_would_change_values_is_refused(frame: str | IcebergType, table: str | IcebergType) -> None:
    with pytest.raises(SchemaMismatchError) as caught:
        changes(schema(a=frame), schema(a=table))
    frame_type, table_type = schema(a=frame).fields[0].type, schema(a=table).fields[0].type
    assert f"expected the column 'a' of type {table_type}" in str(caught.value)
    assert f"found type {frame_type}, which cannot be stored there unchanged. Hint: cast 'a'" in str(caught.value)


@pytest.mark.parametrize(("frame", "table"), [("timestamp", "timestamptz"), ("timestamptz", "timestamp")])
def test_a_timestamp_without_zone_is_not_converted_by_the_session_s_zone(frame: str, table: str) -> None:
    with pytest.raises(SchemaMismatchError, match="convert it with an explicit zone"):
        changes(schema(a=frame), schema(a=table))


@pytest.mark.parametrize(
    ("frame", "table", "column"),
    [
        (schema(a="int"), schema(a="int", id="long!"), "id"),
        (schema(s=struct(x="int")), schema(s=struct(x="int", y="int!")), "s.y"),
    ],
)
def test_a_frame_without_a_required_column_is_refused(frame: Schema, table: Schema, column: str) -> None:
    with pytest.raises(
        SchemaMismatchError, match=re.escape(f"expected the required column {column!r}, found a DataFrame")
    ):
        changes(frame, table)


def test_a_new_column_of_type_void_is_refused_and_the_hint_is_a_cast() -> None:
    with pytest.raises(SchemaMismatchError) as caught:
        changes(schema(a="int", b="unknown"), schema(a="int"))
    assert "expected a type for the new column 'b'" in str(caught.value)
    assert '`.withColumn("b", lit(None).cast("string"))`' in str(caught.value)


IN_STRUCT = StructType((Field("x", VOID),))


@pytest.mark.parametrize("kind", [ListType(VOID), MapType(STRING, VOID), IN_STRUCT, ListType(IN_STRUCT)], ids=str)
def test_nothing_but_null_within_a_new_column_is_refused_too(kind: IcebergType) -> None:
    with pytest.raises(SchemaMismatchError, match=r"a type for the new column 'b', found .*, in which unknown stands"):
        changes(schema(a="int", b=kind), schema(a="int"))


def test_a_variant_within_a_list_is_refused() -> None:
    with pytest.raises(SchemaMismatchError, match="found variant"):
        changes(schema(a="int", b=ListType(parse_type("variant"))), schema(a="int"))


def test_a_new_column_of_type_variant_is_refused_and_the_hint_is_text() -> None:
    with pytest.raises(SchemaMismatchError) as caught:
        changes(schema(a="int", b="variant"), schema(a="int"))
    assert "expected a type that every reader supports for the column 'b', found variant, which pyiceberg" in str(
        caught.value
    )
    assert "Hint: store it as text with `to_json` or as a struct, or name the engines" in str(caught.value)


@pytest.mark.parametrize(
    ("frame", "found"),
    [
        (schema(a="int", b="int", s=struct(x="int")), "the column b of type int, which the table lacks"),
        (schema(a="long", s=struct(x="int")), "the column a of type long, where the table has int"),
        (schema(s=struct(x="int")), "no column a"),
        (schema(a="int"), "no column s"),
        (schema(a="int", s=struct()), "no column s.x"),
        (schema(a="int", s=struct(x="int", y="int")), "the column s.y of type int, which the table lacks"),
    ],
)
def test_strict_refuses_any_difference_and_names_the_first(frame: Schema, found: str) -> None:
    with pytest.raises(SchemaMismatchError, match=rf"is `strict`.*found a difference: {re.escape(found)}"):
        changes(frame, schema(a="int", s=struct(x="int")), policy="strict")


def test_strict_allows_equal_columns_and_writes_column_docs() -> None:
    table = schema(a="int!", b=ListType(parse_type("int")), c=MapType(STRING, INT))
    frame = schema(c=MapType(STRING, INT), A="int", b=ListType(parse_type("int")))
    assert changes(frame, table, policy="strict", a="the a") == (DescribeColumn(("a",), "the a"),)


def full(frame: Schema, table: Schema, **protected: str) -> tuple[tuple[TableUpdate, ...], tuple[TableUpdate, ...]]:
    planned = plan_schema_changes(frame, table, policy="full", docs={}, subject="nyc.flights", protected=protected)
    return planned.before, planned.after


@pytest.mark.parametrize(
    ("frame", "table", "before", "after"),
    [
        (schema(a="int"), schema(a="int", b="string"), (), (DropColumn(("b",)),)),
        (schema(a="int"), schema(a="int", b="string!"), (RelaxColumn(("b",)),), (DropColumn(("b",)),)),
        (schema(b="int", a="int"), schema(a="int", b="int"), (), (MoveColumn(("b",), None),)),
        (
            schema(a="long", c="int", b="int"),
            schema(a="int", b="int", x="int"),
            (WidenColumn(("a",), INT, LONG), AddColumn(("c",), INT)),
            (DropColumn(("x",)), MoveColumn(("c",), "a")),
        ),
        (
            schema(l=ListType(struct(y="int", x="int")), m=MapType(STRING, struct(z="int"))),
            schema(l=ListType(struct(x="int", y="int")), m=MapType(STRING, struct(z="int", gone="int!"))),
            (RelaxColumn(("m", "value", "gone")),),
            (MoveColumn(("l", "element", "y"), None), DropColumn(("m", "value", "gone"))),
        ),
    ],
)
def test_full_adopts_the_frame_s_columns_and_drops_only_after_the_commit(
    frame: Schema, table: Schema, before: tuple[TableUpdate, ...], after: tuple[TableUpdate, ...]
) -> None:
    assert full(frame, table) == (before, after)


def test_missing_struct_fields_are_added() -> None:
    table = schema(s=struct(x="int", y="string"), l=ListType(struct(x="int", y="int")), a="int", b="int")
    frame = schema(a="int", s=struct(Y="string", new="int"), l=ListType(struct(y="int", x="int")))
    assert completed_columns(frame, table) == {"s": struct(Y="string", new="int", x="int")}
    assert completed_columns(table, table) == {}


@pytest.mark.parametrize(("held", "dropped"), [("b", "b"), ("s.x", "s"), ("s.x", "s.x")])
def test_full_does_not_drop_a_column_used_by_the_layout(held: str, dropped: str) -> None:
    fields: dict[str, str | IcebergType] = {"a": "int", "b": "int", "s": struct(x="int", y="int")}
    kept = {name: value for name, value in fields.items() if name != dropped}
    if dropped == "s.x":
        kept["s"] = struct(y="int")
    with pytest.raises(SchemaMismatchError, match=rf"expected the column '{dropped}', by which it is sorted, found"):
        full(schema(**kept), schema(**fields), **{held: "by which it is sorted"})
    full(schema(**kept), schema(**fields), bb="is another column")


def test_full_refuses_a_type_that_cannot_be_widened() -> None:
    with pytest.raises(SchemaMismatchError, match="expected the column 'a' of type int, or of a narrower one"):
        full(schema(a="string"), schema(a="int"))


def test_only_descriptions_that_differ_are_written() -> None:
    table = Schema((Field("a", INT, doc="old"), Field("b", INT, doc="same"), Field("c", INT, doc="mine")))
    found = changes(schema(a="int"), table, A="new", b="same", gone="x")
    assert found == (DescribeColumn(("a",), "new"),)


def test_a_new_table_gets_the_given_descriptions_and_keeps_the_frame_s() -> None:
    described = with_docs(Schema((Field("a", INT, doc="frame"), Field("b", INT, doc="frame"))), {"a": "asset"})
    assert [field.doc for field in described] == ["asset", "frame"]


@pytest.mark.parametrize(
    ("names", "is_case_sensitive", "refused"),
    [
        (("a", "b"), False, None),
        (("a", "A"), True, None),
        (("a", "A"), False, "'a' and 'A'"),
        (("a", "a"), True, "'a' and 'a'"),
    ],
)
def test_two_columns_with_the_same_name_are_refused(
    names: tuple[str, ...], is_case_sensitive: bool, refused: str | None
) -> None:
    frame = Schema(tuple(Field(name, INT) for name in names), is_case_sensitive=is_case_sensitive)
    if refused is None:
        refuse_repeated_columns(frame, subject="t")
        return
    with pytest.raises(SchemaMismatchError, match=f"found the columns {refused}"):
        refuse_repeated_columns(frame, subject="t")


@pytest.mark.parametrize(
    ("column", "found"),
    [
        (struct(a="int", A="int"), "the fields 'a' and 'A' of 's'"),
        (ListType(struct(a="int", A="int")), "the fields 'a' and 'A' of 's.element'"),
        (MapType(INT, struct(b=struct(a="int", A="int"))), "the fields 'a' and 'A' of 's.value.b'"),
    ],
)
def test_two_struct_fields_with_the_same_name_are_refused(column: IcebergType, found: str) -> None:
    frame = Schema((Field("s", column), Field("S2", struct(a="int"))))
    with pytest.raises(SchemaMismatchError, match=f"found {found}"):
        refuse_repeated_columns(frame, subject="t")
    refuse_repeated_columns(replace(frame, is_case_sensitive=True), subject="t")


@pytest.mark.parametrize(
    ("column", "dotted"),
    [
        (struct(b="int"), "a.b"),
        (ListType(INT), "a.element"),
        (MapType(INT, INT), "a.key"),
        (MapType(INT, INT), "a.value"),
    ],
)
def test_two_columns_with_the_same_dotted_path_are_refused(column: IcebergType, dotted: str) -> None:
    one, other = Field("a", column), Field(dotted, INT)
    for frame, table in ((Schema((one, other)), None), (Schema((one,)), Schema((other,)))):
        with pytest.raises(SchemaMismatchError, match=r"found .*`a.* Hint: rename the column that has a dot"):
            refuse_repeated_columns(frame, table, subject="t")
    refuse_repeated_columns(Schema((other,)), Schema((other, Field("b", INT))), subject="t")


def test_names_in_which_spark_substitutes_a_variable_are_refused() -> None:
    nested = StructType((Field("a${x}", INT),))
    with pytest.raises(SchemaMismatchError, match=r"expected names without `\$\{`.* found 'a\$\{x\}'"):
        refuse_reserved_columns(Schema((Field("a$", INT), Field("s", nested))), subject="t")


@pytest.mark.parametrize("name", ["_file", "_row_id", "__dagster_change"])
def test_a_reserved_column_is_refused(name: str) -> None:
    with pytest.raises(SchemaMismatchError, match=f"found the column '{name}'"):
        refuse_reserved_columns(Schema((Field("a", INT), Field(name, INT))), subject="t")


def test_a_reserved_name_is_allowed_in_a_struct_or_in_another_case() -> None:
    refuse_reserved_columns(schema(_FILE="int", s=struct(_file="int")), subject="t")


def test_names_are_compared_as_the_session_compares_them() -> None:
    frame = replace(schema(A="int", s=struct(B="int")), is_case_sensitive=True)
    stored = schema(a="int", s=struct(b="int"))
    assert plan_schema_changes(frame, stored, policy="full", docs={}, subject="t") == SchemaChanges(
        before=(AddColumn(("A",), INT), AddColumn(("s", "B"), INT)),
        after=(DropColumn(("s", "b")), DropColumn(("a",)), MoveColumn(("A",), None)),
    )
    assert completed_columns(frame, stored) == {"s": struct(B="int", b="int")}
    with pytest.raises(
        SchemaMismatchError, match="found a difference: the column A of type int, which the table lacks"
    ):
        plan_schema_changes(frame, stored, policy="strict", docs={}, subject="t")
    assert stored.field("A") == stored.field("a")
    assert replace(stored, is_case_sensitive=True).field("A") is None


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("int", "int", True),
        ("int", "long", True),
        ("long", "int", False),
        ("float", "double", True),
        ("double", "float", False),
        ("int", "double", True),
        ("int", "float", False),
        ("long", "double", False),
        ("int", "decimal(10,0)", True),
        ("int", "decimal(12,2)", True),
        ("int", "decimal(11,2)", False),
        ("long", "decimal(19,0)", True),
        ("long", "decimal(18,0)", False),
        ("decimal(5,2)", "decimal(6,3)", True),
        ("decimal(5,2)", "decimal(6,4)", False),
        ("decimal(5,2)", "decimal(5,1)", False),
        ("date", "timestamp", False),
        ("timestamp", "timestamptz", False),
        ("date", "decimal(38,0)", False),
        ("boolean", "string", False),
        ("unknown", "date", True),
        ("date", "unknown", False),
    ],
)
def test_a_lossless_target_type_holds_every_value_of_the_source(source: str, target: str, expected: bool) -> None:
    assert is_lossless(parse_type(source), parse_type(target)) == expected


@pytest.mark.parametrize(("before", "after"), list(itertools.permutations(THEIR_TYPES, 2)), ids=str)
def test_iceberg_promotes_what_pyiceberg_promotes(before: TheirType, after: TheirType) -> None:
    try:
        promote(before, after)
        expected = True
    except ResolveError:
        expected = False
    assert is_promotion(parse_type(str(before)), parse_type(str(after))) == expected


def holds(kind: str, value: Fraction) -> bool:
    """Return whether the type can hold the value, in plain Python."""
    if kind in ("int", "long"):
        bits = 31 if kind == "int" else 63
        return value.denominator == 1 and -(2**bits) <= value < 2**bits
    if kind in ("float", "double"):
        code = "f" if kind == "float" else "d"
        try:
            rounded: float = struct_module.unpack(code, struct_module.pack(code, float(value)))[0]
            return Fraction(rounded) == value
        except OverflowError:
            return False
    precision, scale = map(int, re.findall(r"\d+", kind))
    scaled = value * Fraction(10**scale)
    return scaled.denominator == 1 and abs(scaled) < 10**precision


NUMBERS: dict[str, list[float | Fraction]] = {
    "int": [-(2**31), 2**31 - 1, 1],
    "long": [-(2**63), 2**63 - 1, 2**53 + 1],
    "float": [0.5, 3.4028234663852886e38, 2.0**-149],
    "double": [0.1, 1.7976931348623157e308, 5e-324],
    "decimal(9, 2)": [Fraction(999999999, 100), Fraction(1, 100)],
    "decimal(10, 0)": [9999999999],
    "decimal(20, 2)": [Fraction(10**20 - 1, 100)],
    "decimal(38, 10)": [Fraction(10**38 - 1, 10**10)],
}


UUID_AND_FIXED = schema(
    u="uuid", f="fixed[4]", s=struct(U="uuid", x="int"), l=ListType(UUID), m=MapType(UUID, parse_type("fixed[2]"))
)


@pytest.mark.parametrize("policy", ["strict", "add_columns"])
def test_strings_and_binary_are_stored_as_uuid_and_fixed(policy: SchemaEvolution) -> None:
    frame = schema(u="string", f="binary", s=struct(x="int", u="string"), l=ListType(STRING), m=MapType(STRING, BINARY))
    assert plan_schema_changes(frame, UUID_AND_FIXED, policy=policy, docs={}, subject="t") == SchemaChanges()
    assert columns_to_check(frame, UUID_AND_FIXED) == {
        **{field.name: field.type for field in UUID_AND_FIXED if field.name != "s"},
        "s": struct(x="int", u="uuid"),
    }
    assert columns_to_check(schema(u="void", f="string", new="string"), UUID_AND_FIXED) == {}


@pytest.mark.parametrize(("name", "given"), [("u", "binary"), ("f", "string"), ("u", "int"), ("l", "string")])
def test_no_other_types_are_stored_as_uuid_or_fixed(name: str, given: str) -> None:
    with pytest.raises(SchemaMismatchError):
        changes(schema(**{name: given}), UUID_AND_FIXED)


@pytest.mark.parametrize(("source", "target"), list(itertools.permutations(NUMBERS, 2)))
def test_a_number_is_stored_in_a_type_that_holds_all_its_values(source: str, target: str) -> None:
    verdict = storage_verdict(parse_type(source), parse_type(target))
    if verdict == "stored":
        assert all(holds(target, Fraction(value)) for value in NUMBERS[source])
    elif verdict == "widened":
        assert all(holds(source, Fraction(value)) for value in NUMBERS[target])


def test_the_scale_of_a_decimal_is_never_changed() -> None:
    assert not is_promotion(parse_type("decimal(9,2)"), parse_type("decimal(12,3)"))
    assert not is_promotion(parse_type("decimal(9,2)"), parse_type("decimal(9,2)"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (AddColumn(("s", "y"), STRING), "add column s.y string"),
        (WidenColumn(("a",), INT, LONG), "widen column a from int to long"),
        (DescribeColumn(("a",), "x"), "describe column a"),
        (AddPartitionField(parse_partition_field("day(ts)")), "add partition field day(ts)"),
        (DropPartitionField(parse_partition_field("c")), "drop partition field c"),
        (RenamePartitionField(parse_partition_field("c"), "d"), "rename partition field c to d"),
        (SetProperties({"b": "2", "a": "1"}), "set a, b"),
        (RemoveProperties(("a", "b")), "remove a, b"),
        (RelaxColumn(("s", "a")), "let column s.a hold NULL"),
        (RenameColumn(("s", "a"), "b"), "rename column s.a to b"),
        (DropColumn(("a",)), "drop column a"),
        (MoveColumn(("a",), None), "move column a to the front"),
        (MoveColumn(("a",), "b"), "move column a behind b"),
        (SetIdentifierFields(("a", "b")), "identify rows by a, b"),
        (SetIdentifierFields((), ("a",)), "identify rows by nothing"),
        (SetSortOrder((SortField("a"),), is_partitioned=True), "sort files by a"),
        (SetSortOrder((), is_partitioned=True), "sort files by nothing"),
        (CreateBranch("audit"), "create branch audit"),
    ],
)
def test_every_change_has_a_description(change: TableUpdate, words: str) -> None:
    assert str(change) == words


KEY = StructType((Field("x", INT, field_id=7, is_required=True), Field("y", ListType(LONG), field_id=8)))
"""A key type as a table stores it, with the field ids and required fields that a DataFrame lacks."""


@pytest.mark.parametrize(
    ("given", "stored", "fits"),
    [
        (LONG, INT, False),
        (INT, LONG, True),
        (struct(x="int", y=ListType(LONG)), KEY, True),
        (struct(Y=ListType(INT), X="int"), KEY, True),
        (ListType(struct(x="int", y=ListType(LONG))), ListType(KEY), True),
        (struct(x="long", y=ListType(LONG)), KEY, False),
        (struct(x="int"), KEY, False),
        (struct(x="int", y=ListType(LONG), z="int"), KEY, False),
        (struct(x="int", z=ListType(LONG)), KEY, False),
        (INT, KEY, False),
    ],
    ids=str,
)
def test_the_key_type_of_a_map_cannot_change(given: IcebergType, stored: IcebergType, *, fits: bool) -> None:
    frame, table = (schema(m=MapType(key, INT)) for key in (given, stored))
    if fits:
        assert changes(frame, table) == ()
        return
    with pytest.raises(SchemaMismatchError, match="keys"):
        changes(frame, table)
