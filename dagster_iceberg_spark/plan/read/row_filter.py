"""Parses conditions in SQL into predicates: comparisons of columns, or fields of structs, with constants.

The language is the part of Spark SQL that Iceberg can use to prune files and that means the same to every engine: `=`,
`<>`, `<=>`, `<`, `<=`, `>`, `>=`, `BETWEEN`, `IN`, `IS [NOT] NULL`, `IS [NOT] TRUE`, `isnan`, `LIKE 'text%'`,
`startswith`, `AND`, `OR`, `NOT`. A constant must be an exact value of its
column's type; a floating-point constant is rounded. Literals are parsed as Spark 4 parses them by default, whatever the
session's settings, because conditions are also parsed without a session.
"""

import datetime as dt
import math
import re
import struct
from collections.abc import Set as AbstractSet
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import Any, ClassVar, Final

import sqlglot
from sqlglot import expressions as syntax
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from dagster_iceberg_spark.errors import MetadataKeyError
from dagster_iceberg_spark.table.predicate import (
    EVERY_ROW,
    NO_ROW,
    And,
    Column,
    Comparison,
    In,
    IsNaN,
    IsNull,
    LiteralValue,
    Not,
    Or,
    Order,
    Predicate,
    StartsWith,
    all_of,
)
from dagster_iceberg_spark.table.schema import (
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    GREATEST,
    INT,
    INTEGERS,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMPTZ,
    DecimalType,
    Field,
    IcebergType,
    ListType,
    MapType,
    Schema,
    StructType,
)

_ORDERS: Final[dict[type, Order]] = {syntax.LT: "<", syntax.LTE: "<=", syntax.GT: ">", syntax.GTE: ">="}
_TURNED: Final[dict[Order, Order]] = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_COMPARABLE: Final = frozenset({INT, LONG, BOOLEAN, DATE, DOUBLE, FLOAT, STRING, TIMESTAMP, TIMESTAMPTZ})
_PARTS: Final = frozenset({"this", "expression", "expressions", "low", "high", "table", "db", "catalog"})
"""The arguments of a node that the parser supports. A node with others, such as `negate`, has another meaning."""
MAXIMUM_TERMS: Final = 200
"""With more terms, the engines' recursive evaluation could fail."""
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_MOMENT: Final = re.compile(_DATE.pattern + r"([T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d(:\d\d)?)?)?", re.ASCII)
_EXACT_AS_DOUBLE: Final = 2**53
_DIGITS_OF_DOUBLE: Final = 15
"""Numbers of up to this many digits remain distinct as doubles."""
_HINT: Final = (
    "compare columns with constants, by =, <>, <, <=, >, >=, BETWEEN, IN, IS NULL, isnan, LIKE 'text%', joined by AND, "
    "OR and NOT; filter by anything else in the asset itself."
)


class _Spark4(Spark):
    """Spark 4's SQL, in which a doubled quote is an escaped quote. sqlglot joins the texts, as older versions do."""

    class Tokenizer(Spark.Tokenizer):
        STRING_ESCAPES: ClassVar = ["\\", "'", '"']


SPARK_SQL: Final = _Spark4
"""The dialect that conditions are parsed in."""


def row_filter(condition: str, schema: Schema, *, key: str, subject: str) -> Predicate:
    """Return the predicate of the rows for which a condition in Spark SQL is true. `key` is its metadata key."""
    refused = partial(MetadataKeyError.of_value, key, subject)
    try:
        parsed = sqlglot.parse_one(condition, dialect=SPARK_SQL)
    except SqlglotError as error:
        raise refused(expected="a condition in SQL", found=repr(condition), hint=_HINT) from error
    terms = sum(1 for _ in parsed.find_all(syntax.And, syntax.Or))
    if terms > MAXIMUM_TERMS:
        raise refused(
            expected=f"at most {MAXIMUM_TERMS} times AND and OR", found=f"{terms} of them", hint="list values with IN."
        )
    return _Reader(schema, key, subject).predicate(parsed)


class _Reader:
    """Turns a parsed condition into a predicate for one table."""

    def __init__(self, schema: Schema, key: str, subject: str) -> None:
        self._schema, self._key, self._subject = schema, key, subject

    def predicate(self, node: syntax.Expr) -> Predicate:  # noqa: C901, PLR0911, PLR0912 - one for each kind of node
        more = {name for name, part in node.args.items() if part} - _PARTS
        match node:
            case syntax.Like() if more == {"negate"}:
                return Not(self._like(node))
            case _ if more:
                raise self._refusal(node, "a comparison of a column with constants")
            case syntax.Paren():
                return self.predicate(node.this)
            case syntax.And():
                return And((self.predicate(node.left), self.predicate(node.right)))
            case syntax.Or():
                return Or((self.predicate(node.left), self.predicate(node.right)))
            case syntax.Not():
                return Not(self.predicate(node.this))
            case syntax.Boolean():
                return EVERY_ROW if node.this else NO_ROW
            case syntax.Column() | syntax.Dot():
                return In(self._operand(node, "a boolean column", {BOOLEAN})[0], (True,))
            case syntax.EQ() | syntax.NEQ() | syntax.NullSafeEQ():
                return self._equality(node)
            case syntax.LT() | syntax.LTE() | syntax.GT() | syntax.GTE():
                return self._comparison(node)
            case syntax.Between():
                column, field = self._operand(node.this)
                low, high = (self._value(field, node.args[side], node) for side in ("low", "high"))
                return all_of([Comparison(column, ">=", low), Comparison(column, "<=", high)])
            case syntax.In() if node.expressions:
                column, field = self._operand(node.this)
                values = (self._value(field, item, node) for item in node.expressions)
                return In(column, tuple(dict.fromkeys(values)))
            case syntax.Is():
                return self._is(node)
            case syntax.IsNan():
                return IsNaN(self._operand(node.this, "a column of floating-point numbers", {FLOAT, DOUBLE})[0])
            case syntax.StartsWith():
                column, field = self._operand(node.this, "a column of texts", {STRING})
                return StartsWith(column, str(self._value(field, node.expression, node)))
            case syntax.Like():
                return self._like(node)
        raise self._refusal(node, "a comparison of a column with constants")

    def _equality(self, node: Any) -> Predicate:
        operand, constant = (node.right, node.left) if _is_turned(node) else (node.left, node.right)
        if isinstance(node, syntax.NullSafeEQ) and isinstance(constant, syntax.Null):
            return IsNull(self._column_of_any_value(operand))
        column, field = self._operand(operand)
        equal = In(column, (self._value(field, constant, node),))
        if isinstance(node, syntax.NullSafeEQ):
            return And((equal, Not(IsNull(column))))
        return Not(equal) if isinstance(node, syntax.NEQ) else equal

    def _comparison(self, node: Any) -> Predicate:
        order, operand, constant = _ORDERS[type(node)], node.left, node.right
        if _is_turned(node):
            order, operand, constant = _TURNED[order], constant, operand
        column, field = self._operand(operand)
        return Comparison(column, order, self._value(field, constant, node))

    def _is(self, node: syntax.Is) -> Predicate:
        if isinstance(node.expression, syntax.Null):
            return IsNull(self._column_of_any_value(node.this))
        if not isinstance(node.expression, syntax.Boolean):
            raise self._refusal(node, "IS NULL, IS TRUE or IS FALSE")
        column, _ = self._operand(node.this, "a boolean column", {BOOLEAN})
        return And((In(column, (bool(node.expression.this),)), Not(IsNull(column))))

    def _like(self, node: syntax.Like) -> Predicate:
        column, field = self._operand(node.this, "a column of texts", {STRING})
        pattern = str(self._value(field, node.expression, node))
        if "\\" in pattern or "_" in pattern or "%" in pattern[:-1]:
            raise self._refusal(node, "a pattern that ends in its only wildcard, such as LIKE 'text%'")
        return StartsWith(column, pattern[:-1]) if pattern.endswith("%") else In(column, (pattern,))

    def _operand(
        self,
        node: Any,
        expected: str = "a column of numbers, texts, dates, timestamps or booleans",
        types: AbstractSet[IcebergType] | None = _COMPARABLE,
    ) -> tuple[Column, Field]:
        """Return the column or the path of a field in structs, and the field with its full name."""
        if not _is_column(node):
            raise self._refusal(node, "a column of the table itself")
        path: list[str] = []
        fields, field = self._schema, Field("", StructType(()))
        for part in node.parts:
            found = fields.field(part.name)
            if found is None:
                what = f"one of the fields of {'.'.join(path)!r}:" if path else "one of the columns"
                raise self._refusal(node, f"{what} {', '.join(fields.names) or 'none'}")
            path.append(found.name)
            field, fields = found, fields.like(found.type.fields if isinstance(found.type, StructType) else ())
        field = replace(field, name=".".join(path))
        is_decimal = types is _COMPARABLE and isinstance(field.type, DecimalType)
        if types is not None and field.type not in types and not is_decimal:
            raise self._refusal(node, expected, found=f"{field.name!r} of type {field.type}")
        return path[0] if len(path) == 1 else tuple(path), field

    def _column_of_any_value(self, node: Any) -> Column:
        column, field = self._operand(node, types=None)
        if isinstance(field.type, ListType | MapType | StructType):
            raise self._refusal(node, "a column without parts", found=f"{field.name!r} of type {field.type}")
        return column

    def _value(self, field: Field, constant: Any, node: syntax.Expr) -> LiteralValue:
        """Return a constant of a condition (the node) as a value of the column's type."""
        constant = constant.unnest()
        try:
            value = _of_type(field, constant, _constant_text(constant), _constant_number(constant))
        except (ValueError, ArithmeticError):
            value = None
        if value is None:
            example = _EXAMPLES.get(field.type, "")
            raise self._refusal(node, f"a constant of the type {field.type} of {field.name!r}{example}")
        return value

    def _refusal(self, node: Any, expected: str, found: str | None = None) -> MetadataKeyError:
        shown = node.sql(dialect="spark") if isinstance(node, syntax.Expr) else repr(node)
        return MetadataKeyError.of_value(
            self._key, self._subject, expected=expected, found=found or f"`{shown}`", hint=_HINT
        )


def _is_turned(node: Any) -> bool:
    """Return whether the constant is on the left."""
    return _is_column(node.right) and not _is_column(node.left)


def _is_column(node: Any) -> bool:
    """Return whether the node is a column, or a field of a struct by its dotted path."""
    return isinstance(node, syntax.Column | syntax.Dot) and all(
        isinstance(part, syntax.Identifier) for part in node.parts
    )


_EXAMPLES: Final[dict[Any, str]] = {
    DATE: ", such as '2024-01-31'",
    TIMESTAMP: ", such as '2024-01-31T12:00:00', without a zone",
    TIMESTAMPTZ: ", such as '2024-01-31T12:00:00+00:00', with its zone",
    BOOLEAN: ", which is true or false",
}


def _of_type(  # noqa: C901, PLR0911 - one for each type
    field: Field, node: Any, text: str | None, number: Decimal | None
) -> LiteralValue | None:
    match field.type:
        case DecimalType() if number is not None:
            return field.type.exact(number) if field.type.precision <= _DIGITS_OF_DOUBLE or _is_exact(node) else None
        case kind if kind in INTEGERS and number is not None:
            integer = int(number)
            is_distinct = abs(integer) < _EXACT_AS_DOUBLE or _is_exact(node)
            is_kept = integer == number and -GREATEST[kind] - 1 <= integer <= GREATEST[kind]
            return integer if is_distinct and is_kept else None
        case kind if kind == DOUBLE and number is not None:
            return float(number) if math.isfinite(float(number)) else None
        case kind if kind == FLOAT and number is not None:
            return float(struct.unpack("f", struct.pack("f", number))[0])
        case kind if kind == STRING and not isinstance(node, syntax.Cast):
            return text
        case kind if kind == DATE and text is not None and not _is_cast_to(node, _MOMENTS):
            return dt.date.fromisoformat(text) if _DATE.fullmatch(text) else None
        case kind if kind in (TIMESTAMP, TIMESTAMPTZ) and text is not None and not _is_cast_to(node, _NOT_OF[kind]):
            if not _MOMENT.fullmatch(text):
                return None
            moment = dt.datetime.fromisoformat(text.replace("Z", "+00:00"))
            if (moment.tzinfo is not None) != (kind == TIMESTAMPTZ):
                return None
            return moment.astimezone(dt.timezone.utc) if kind == TIMESTAMPTZ else moment
        case kind if kind == BOOLEAN and isinstance(node, syntax.Boolean):
            return bool(node.this)
    return None


def _constant_text(node: Any) -> str | None:
    """Return the text of a literal or a typed literal, which is a cast. Spark joins adjacent literals."""
    if isinstance(node, syntax.Cast) and node.to.this in _DATES | _MOMENTS:
        node = node.this
    match node:
        case syntax.Literal() if node.is_string:
            return str(node.this)
        case syntax.Concat() if all(isinstance(item, syntax.Literal) and item.is_string for item in node.expressions):
            return "".join(item.this for item in node.expressions)
    return None


_DATES: Final = frozenset({syntax.DataType.Type.DATE})
_WALL_CLOCKS: Final = frozenset({syntax.DataType.Type.TIMESTAMPNTZ})
_MOMENTS: Final = _WALL_CLOCKS | {
    syntax.DataType.Type.TIMESTAMP,
    syntax.DataType.Type.TIMESTAMPTZ,
    syntax.DataType.Type.TIMESTAMPLTZ,
}
_NOT_OF: Final = {TIMESTAMP: _DATES, TIMESTAMPTZ: _DATES | _WALL_CLOCKS}
"""Types of literals that Spark converts by the session's time zone."""
_BITS_OF_LITERAL: Final = {
    syntax.DataType.Type.TINYINT: 7,
    syntax.DataType.Type.SMALLINT: 15,
    syntax.DataType.Type.INT: 31,
    syntax.DataType.Type.BIGINT: 63,
}


def _is_cast_to(node: Any, kinds: AbstractSet[Any]) -> bool:
    return isinstance(node, syntax.Cast) and node.to.this in kinds


def _constant_number(node: Any) -> Decimal | None:
    match node:
        case syntax.Neg():
            number = _constant_number(node.this)
            return None if number is None else number.copy_negate()
        case syntax.Literal() if not node.is_string:
            return Decimal(node.this)
        case syntax.Cast() if isinstance(node.this, syntax.Literal) and _NUMBER.fullmatch(node.this.this):
            number = Decimal(node.this.this)
            return number if _is_kept(number, node.to) else None
        case syntax.Paren():
            return _constant_number(node.this)
    return None


def _is_kept(number: Decimal, kind: syntax.DataType) -> bool:
    """Return whether the type, such as that of `5L` or `1.5BD`, holds the number unchanged."""
    if kind.this == syntax.DataType.Type.DECIMAL:
        precision, scale = [*([int(part.name) for part in kind.expressions] or [10]), 0][:2]
        return DecimalType(precision, scale).exact(number) is not None
    if kind.this in _BITS_OF_LITERAL:
        limit = 2 ** _BITS_OF_LITERAL[kind.this]
        return number == number.to_integral_value() and -limit <= number < limit
    return bool(kind.this == syntax.DataType.Type.DOUBLE)


def _is_exact(node: Any) -> bool:
    """Return whether a number is not a double. Spark compares integers and decimals with a double as doubles."""
    return not any(
        "e" in part.name.lower() and not part.is_string
        if isinstance(part, syntax.Literal)
        else _is_cast_to(part, {syntax.DataType.Type.DOUBLE})
        for part in node.walk()
    )
