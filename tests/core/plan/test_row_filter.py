"""Conditions in SQL: what they mean, and which are refused."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

from dagster_iceberg_spark.errors import MetadataKeyError
from dagster_iceberg_spark.plan.read.row_filter import row_filter
from dagster_iceberg_spark.table.schema import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMPTZ,
    DecimalType,
    Field,
    ListType,
    Schema,
    StructType,
)
from tests.core.table.evaluator import truth
from tests.core.table.samples import utc, wall

SCHEMA = Schema(
    (
        Field("i", INT),
        Field("l", LONG),
        Field("f", FLOAT),
        Field("d", DOUBLE),
        Field("n", DecimalType(5, 2)),
        Field("s", STRING),
        Field("b", BOOLEAN),
        Field("day", DATE),
        Field("ts", TIMESTAMPTZ),
        Field("w", TIMESTAMP),
        Field("it's 1", STRING),
        Field("bin", BINARY),
        Field(
            "st", StructType((Field("a", INT), Field("In", StructType((Field("x.y", STRING), Field("z", BOOLEAN))))))
        ),
        Field("li", ListType(StructType((Field("a", INT),)))),
        Field("st.a", LONG),
        Field("wide", DecimalType(38, 10)),
    )
)
ROW: dict[str, Any] = {
    "i": 3,
    "l": 5,
    "f": 0.10000000149011612,
    "d": 0.1,
    "n": Decimal("1.50"),
    "s": "it's",
    "b": True,
    "day": dt.date(2024, 1, 31),
    "ts": utc(2024, 1, 31, 12),
    "w": wall(2024, 1, 31, 12),
    "it's 1": "x%",
    "bin": b"",
    "st": {"a": 3, "In": {"x.y": "q", "z": True}},
    "st.a": 7,
    "wide": Decimal("1234567890123456789012345678.5"),
}
NULLS: dict[str, Any] = dict.fromkeys(ROW)


def read(condition: str) -> Any:
    return row_filter(condition, SCHEMA, key="iceberg/row_filter", subject="db.t")


@pytest.mark.parametrize(
    ("condition", "of_row", "of_nulls"),
    [
        ("i = 3", True, None),
        ("I == 3", True, None),
        ("3 < i", False, None),
        ("3 <= i and 4 > i", True, None),
        ("i <> 3", False, None),
        ("i != 4", True, None),
        ("i = -3", False, None),
        ("i = 3.0", True, None),
        ("i <=> 3", True, False),
        ("not (i <=> 3)", False, True),
        ("i <=> null", False, True),
        ("i is null", False, True),
        ("i is not null", True, False),
        ("bin is null", False, True),
        ("i between 1 and 3", True, None),
        ("i not between 1 and 3", False, None),
        ("i in (1, 2, 3)", True, None),
        ("i not in (1, 2)", True, None),
        ("l = 5L", True, None),
        ("f = 0.1", True, None),
        ("d = 0.1", True, None),
        ("d = 1e-1", True, None),
        ("d > 0.1D", False, None),
        ("isnan(d)", False, False),
        ("not isnan(d)", True, True),
        ("n = 1.5", True, None),
        ("n >= 1.50BD", True, None),
        ("n = cast(1.5 as decimal(3, 1))", True, None),
        ("n = (1.5)", True, None),
        ("s = 'it\\'s'", True, None),
        ("s = 'it''s'", True, None),
        ("s = 'it''' 's'", True, None),
        ("s like 'it''%'", True, None),
        ("`it's 1` = 'x' '%'", True, None),
        ("s = 'it' 's'", False, None),
        ('s = "it""s"', False, None),
        ('s = "it\'s"', True, None),
        ("s like 'it%'", True, None),
        ("s not like 'it%'", False, None),
        ("s like 'it'", False, None),
        ("startswith(s, 'it')", True, None),
        ("`it's 1` = 'x%'", True, None),
        ("s = '${x}'", False, None),
        ("b", True, None),
        ("!b", False, None),
        ("b = true", True, None),
        ("b is true", True, False),
        ("b is not false", True, True),
        ("day = date '2024-01-31'", True, None),
        ("day > '2024-01-30'", True, None),
        ("day = cast('2024-01-31' as date)", True, None),
        ("ts = timestamp '2024-01-31T13:00:00+01:00'", True, None),
        ("ts < '2024-01-31T12:00:00Z'", False, None),
        ("w = timestamp_ntz '2024-01-31 12:00:00'", True, None),
        ("ts = '2024-01-31T17:30:15+05:30:15'", True, None),
        ("wide = 1234567890123456789012345678.5", True, None),
        ("s = 'caf\\u00e9'", False, None),
        ("true", True, True),
        ("false or (i = 3 or s = 'x')", True, None),
        ("not (i = 3 and l = 6)", True, None),
        ("i = 3 -- the third", True, None),
        ("st.a = 3", True, None),
        ("4 > ST.A", True, None),
        ("`st.a` = 7", True, None),
        ("st.a is null", False, True),
        ("st.in.`x.y` like 'q%'", True, None),
        ("st.In.z", True, None),
        ("not st.in.z", False, None),
        ("st.a in (1, 2) or st.in.z is true", True, None),
    ],
)
def test_a_condition_means_what_it_means_in_spark(condition: str, *, of_row: bool, of_nulls: bool | None) -> None:
    predicate = read(condition)
    assert (truth(predicate, ROW), truth(predicate, NULLS)) == (of_row, of_nulls)


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("i >", "expected a condition in SQL, found 'i >'"),
        ("x = 1", "expected one of the columns i, l, "),
        ("st.b = 1", "expected one of the fields of 'st': a, In, found `st.b`"),
        ("x.a = 1", "expected one of the columns i, l, "),
        ("i.a = 1", "expected one of the fields of 'i': none"),
        ("st.a = '1'", "expected a constant of the type int of 'st.a'"),
        ("st.in is null", "expected a column without parts, found 'st.In' of type"),
        ("li.a = 1", "expected one of the fields of 'li': none"),
        ("st['a'] = 1", "expected a column of the table itself"),
        ("a.b.c.d.e.f = 1", "expected one of the columns i, l, "),
        ("upper(s) = 'X'", "expected a column of the table itself, found `UPPER(s)`"),
        ("i = l", "expected a constant of the type int of 'i', found `i = l`"),
        ("i = '3'", "expected a constant of the type int of 'i'"),
        ("s = 3", "expected a constant of the type string of 's'"),
        ("i = 3.5", "expected a constant of the type int"),
        ("i = 3000000000", "expected a constant of the type int"),
        ("i in (1, null)", "expected a constant of the type int"),
        ("i = null", "expected a constant of the type int"),
        ("n = 1.555", "expected a constant of the type decimal(5, 2)"),
        ("n = cast(1.55 as decimal(3, 1))", "expected a constant of the type decimal(5, 2)"),
        ("n = cast(1.5 as decimal)", "expected a constant of the type decimal(5, 2)"),
        ("i = 200Y", "expected a constant of the type int"),
        ("i = int('1_0')", "expected a constant of the type int"),
        ("l = 9007199254740993D", "expected a constant of the type long"),
        ("l = 1e17", "expected a constant of the type long"),
        ("wide = 0.1D", "expected a constant of the type decimal(38, 10)"),
        ("s = r'a'", "expected a constant of the type string"),
        ("s = date '2024-1-1'", "expected a constant of the type string"),
        ("s like date '2024-1-1'", "expected a constant of the type string"),
        ("day = '20240131'", "expected a constant of the type date"),
        ("ts = timestamp_ntz '2024-01-31T12:00:00Z'", "expected a constant of the type timestamptz"),
        ("ts = cast(date '2024-01-31' as timestamp)", "expected a constant of the type timestamptz"),
        ("ts = '20240131T120000Z'", "expected a constant of the type timestamptz"),
        ("n < 1000", "expected a constant of the type decimal(5, 2)"),
        ("day = '2024-13-01'", "of the type date of 'day', such as '2024-01-31'"),
        (
            "ts = '2024-01-31 12:00:00'",
            "of the type timestamptz of 'ts', such as '2024-01-31T12:00:00+00:00', with its",
        ),
        ("w = '2024-01-31T12:00:00Z'", "of the type timestamp of 'w', such as '2024-01-31T12:00:00', without a zone"),
        ("b = 1", "of the type boolean of 'b', which is true or false"),
        ("bin = X'00'", "found 'bin' of type binary"),
        ("isnan(i)", "expected a column of floating-point numbers, found 'i' of type int"),
        ("i", "expected a boolean column, found 'i' of type int"),
        ("s like 'a_b'", "expected a pattern that ends in its only wildcard"),
        ("s like '%b'", "expected a pattern that ends in its only wildcard"),
        ("s like 'a%' escape '!'", "expected a comparison of a column with constants"),
        ("s ilike 'a'", "expected a comparison of a column with constants"),
        ("s rlike 'a'", "expected a comparison of a column with constants"),
        ("i in (select 1)", "expected a comparison of a column with constants"),
        ("i between symmetric 3 and 1", "expected a comparison of a column with constants"),
        ("i = 1; drop table t", "expected a comparison of a column with constants"),
        ("st is null", "expected a column without parts, found 'st'"),
        ("d = double('nan')", "expected a constant of the type double"),
        ("d = cast('abc' as double)", "expected a constant of the type double"),
        ("d = cast(2.7 as int)", "expected a constant of the type double"),
        ("d = 0.1F", "expected a constant of the type double"),
        ("d = 1e400", "expected a constant of the type double"),
        ("w >= date '2024-01-31'", "expected a constant of the type timestamp"),
        ("ts = '2024-01-31T12:00:00.1234567Z'", "expected a constant of the type timestamptz"),
        (" or ".join(["i = 1"] * 300), "expected at most 200 times AND and OR, found 299 of them"),
        ("s is distinct from 'x'", "expected a comparison of a column with constants"),
    ],
)
def test_a_condition_that_engines_may_read_differently_is_refused(condition: str, message: str) -> None:
    with pytest.raises(MetadataKeyError) as caught:
        read(condition)
    assert message in str(caught.value)
    assert "Cannot use `iceberg/row_filter` of db.t" in str(caught.value)
