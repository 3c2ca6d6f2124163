"""Row predicates as values, so that Spark and pyiceberg apply the same filter.

The Python type of a literal determines its meaning. `str`, `bytes`, `int`, `bool`, `Decimal` and `date` stand for
themselves. An aware `datetime` is an instant (a `timestamptz` column). A naive `datetime` is a wall clock (a
`timestamp` column, Spark's TIMESTAMP_NTZ).

Predicates have the semantics of Spark SQL: a comparison with NULL is NULL, and NaN is greater than every number.
"""

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, TypeAlias

from dagster_iceberg_spark.table.partitioning import Transform

LiteralValue: TypeAlias = str | bytes | int | bool | float | Decimal | dt.date | dt.datetime
Order: TypeAlias = Literal["<", "<=", ">", ">="]
Column: TypeAlias = str | tuple[str, ...]
"""The name of a column, or the path of a field in structs: the name of its column, then those of the fields."""


@dataclass(frozen=True, slots=True)
class Always:
    """A constant that matches every row or no row."""

    matches: Literal["every row", "no row"]


EVERY_ROW = Always("every row")
NO_ROW = Always("no row")


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison such as `column < value`. NULL does not match."""

    column: Column
    operator: Order
    value: LiteralValue


@dataclass(frozen=True, slots=True)
class In:
    """The column holds one of the values. There is at least one."""

    column: Column
    values: tuple[LiteralValue, ...]


@dataclass(frozen=True, slots=True)
class InPartitions:
    """The column's value under a partition transform is one of the values. Only Spark can evaluate it."""

    column: str
    transform: Transform
    values: tuple[LiteralValue, ...]


@dataclass(frozen=True, slots=True)
class IsNull:
    """The column is NULL."""

    column: Column


@dataclass(frozen=True, slots=True)
class IsNaN:
    """The floating-point column is NaN. NULL does not match."""

    column: Column


@dataclass(frozen=True, slots=True)
class StartsWith:
    """The column's text starts with the prefix."""

    column: Column
    prefix: str


@dataclass(frozen=True, slots=True)
class Not:
    """The negation of the term. If the term is NULL, so is the negation."""

    term: "Predicate"


@dataclass(frozen=True, slots=True)
class And:
    """The conjunction of at least two predicates."""

    terms: tuple["Predicate", ...]


@dataclass(frozen=True, slots=True)
class Or:
    """The disjunction of at least two predicates."""

    terms: tuple["Predicate", ...]


Predicate: TypeAlias = Always | Comparison | In | InPartitions | IsNull | IsNaN | StartsWith | Not | And | Or


def all_of(terms: Iterable[Predicate]) -> Predicate:
    """Return the simplified conjunction. Without terms, it matches every row."""
    kept = tuple(term for term in terms if term != EVERY_ROW)
    if NO_ROW in kept:
        return NO_ROW
    return And(kept) if len(kept) > 1 else next(iter(kept), EVERY_ROW)


def any_of(terms: Iterable[Predicate]) -> Predicate:
    """Return the simplified disjunction. Without terms, it matches no row."""
    kept = tuple(term for term in terms if term != NO_ROW)
    if EVERY_ROW in kept:
        return EVERY_ROW
    return Or(kept) if len(kept) > 1 else next(iter(kept), NO_ROW)


def without_lists(rows: Predicate) -> Predicate:
    """Return the predicate with a term for each value of a list of texts."""
    match rows:
        case In(column=column, values=values) if any(isinstance(value, str | bytes) for value in values):
            return any_of(In(column, (value,)) for value in values)
        case Not():
            return Not(without_lists(rows.term))
        case And():
            return And(tuple(map(without_lists, rows.terms)))
        case Or():
            return Or(tuple(map(without_lists, rows.terms)))
        case _:
            return rows
