"""Filters by constants that a widened column has room for, and its older files have not.

pyiceberg 0.12 narrows a filter's constants to the types of each file: 0.1 becomes the nearest float, and a comparison
with what is beyond an int is true of NULL too. Such a constant keeps its type here, for all of the process: a
`DataScan` is run by the user. Arrow compares it with the file's values as they are.
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


def keep_constants() -> None:
    """Let pyiceberg compare with constants as they are; a second time nothing is done."""
    genuine = pyiceberg_arrow.bind  # type: ignore[attr-defined]
    if not hasattr(genuine, "__wrapped__"):
        pyiceberg_arrow.bind = _keeping_constants(genuine)  # type: ignore[attr-defined]


def _keeping_constants(genuine: Callable[..., Any]) -> Callable[..., Any]:
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
    """Return the type that a constant needs; None where it is one of the file's type."""
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
