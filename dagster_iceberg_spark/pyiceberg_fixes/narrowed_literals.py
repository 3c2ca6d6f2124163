"""Literals of a filter are narrowed to the type that a promoted column has in an older file.

After a promotion (Iceberg spec, "Schema Evolution"), pyiceberg 0.12.0 binds a filter to the types of each file. The
double 0.1 becomes the nearest float, so rows are kept or lost. A comparison with a long that no int can hold is true
of NULL too. pyiceberg should compare the file's values, promoted, with the literal as it is.
Not reported upstream as of 0.12.0; Iceberg's Rust library has a similar defect:
https://github.com/apache/iceberg-rust/issues/3122

The fix binds such a literal with its own type. Arrow then promotes the file's values.
"""

import struct
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

from pyiceberg.expressions import And, BooleanExpression, LiteralPredicate, Not, Or, SetPredicate
from pyiceberg.expressions.literals import DecimalLiteral, DoubleLiteral, Literal, LongLiteral
from pyiceberg.io import pyarrow as pyiceberg_arrow
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, DoubleType, FloatType, IcebergType, IntegerType, LongType, NestedField


def install() -> None:
    """Make pyiceberg compare with literals as they are. A second call does nothing."""
    genuine = pyiceberg_arrow.bind  # type: ignore[attr-defined]
    if not hasattr(genuine, "__wrapped__"):
        pyiceberg_arrow.bind = _keeping_literals(genuine)  # type: ignore[attr-defined]


def _keeping_literals(genuine: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(genuine)
    def bind(schema: Schema, expression: BooleanExpression, case_sensitive: bool) -> Any:  # noqa: FBT001 - as theirs
        match expression:
            case And() | Or():
                return type(expression)(
                    bind(schema, expression.left, case_sensitive), bind(schema, expression.right, case_sensitive)
                )
            case Not():
                return Not(bind(schema, expression.child, case_sensitive))
            case LiteralPredicate():
                schema = _with_room_for([expression.literal], schema, expression.term, case_sensitive=case_sensitive)
            case SetPredicate():
                schema = _with_room_for(expression.literals, schema, expression.term, case_sensitive=case_sensitive)
        return genuine(schema, expression, case_sensitive)

    return bind


def _with_room_for(literals: Iterable[Literal[Any]], schema: Schema, term: Any, *, case_sensitive: bool) -> Schema:
    """Return the schema; or, where the column is too narrow for a literal, one of that column with a wider type."""
    field = schema.find_field(term.name, case_sensitive=case_sensitive)
    types = [wider for literal in literals if (wider := _wider(field.field_type, literal)) is not None]
    return Schema(NestedField(field.field_id, term.name, types[0])) if types else schema


def _wider(kind: IcebergType, literal: Literal[Any]) -> IcebergType | None:
    """Return the type that a literal needs; None where the file's own type can hold it."""
    match kind, literal:
        case FloatType(), DoubleLiteral():
            return None if _is_float(literal.value) else DoubleType()
        case IntegerType(), LongLiteral():
            return None if IntegerType.min <= literal.value <= IntegerType.max else LongType()
        case DecimalType(), DecimalLiteral():
            digits = len(literal.value.as_tuple().digits)
            return None if digits <= kind.precision else DecimalType(38, kind.scale)
    return None


def _is_float(value: float) -> bool:
    try:
        return bool(struct.unpack("<f", struct.pack("<f", value))[0] == value)
    except OverflowError:
        return False
