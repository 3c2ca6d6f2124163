"""Row predicates as values, so that Spark and pyiceberg filter by the same thing.

A literal's Python type says what it is: `str`, `bytes`, `int`, `bool`, `Decimal` and `date` mean themselves, an aware
`datetime` is an instant (a `timestamptz` column), a naive one a wall clock (a `timestamp` column, Spark's
TIMESTAMP_NTZ).
A predicate means what Spark's SQL means by it: a comparison with NULL is NULL, and NaN is above every number.
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
"""A column's name; or the path of a field inside of structs: its column's name, then those of the fields."""


@dataclass(frozen=True, slots=True)
class Always:
    """A constant: every row, or none."""

    matches: Literal["every row", "no row"]


EVERY_ROW = Always("every row")
NO_ROW = Always("no row")


@dataclass(frozen=True, slots=True)
class Comparison:
    """`column < value` and its like; NULL matches none of them."""

    column: Column
    operator: Order
    value: LiteralValue


@dataclass(frozen=True, slots=True)
class In:
    """The column holds one of the values; never empty."""

    column: Column
    values: tuple[LiteralValue, ...]


@dataclass(frozen=True, slots=True)
class InPartitions:
    """The column's value under a partition transform is one of the values, never empty; only Spark can tell."""

    column: str
    transform: Transform
    values: tuple[LiteralValue, ...]


@dataclass(frozen=True, slots=True)
class IsNull:
    """The column is NULL."""

    column: Column


@dataclass(frozen=True, slots=True)
class IsNaN:
    """The column, of floating-point numbers, is NaN; NULL is not."""

    column: Column


@dataclass(frozen=True, slots=True)
class StartsWith:
    """The column's text starts with that text."""

    column: Column
    prefix: str


@dataclass(frozen=True, slots=True)
class Not:
    """What the term does not match; where the term is NULL, so is this."""

    term: "Predicate"


@dataclass(frozen=True, slots=True)
class And:
    """Every one of at least two predicates."""

    terms: tuple["Predicate", ...]


@dataclass(frozen=True, slots=True)
class Or:
    """At least one of at least two predicates."""

    terms: tuple["Predicate", ...]


Predicate: TypeAlias = Always | Comparison | In | InPartitions | IsNull | IsNaN | StartsWith | Not | And | Or


def all_of(terms: Iterable[Predicate]) -> Predicate:
    """Return the conjunction, simplified; of nothing it is every row."""
    kept = [term for term in terms if term != EVERY_ROW]
    if NO_ROW in kept:
        return NO_ROW
    if len(kept) <= 1:
        return kept[0] if kept else EVERY_ROW
    return And(tuple(kept))


def any_of(terms: Iterable[Predicate]) -> Predicate:
    """Return the disjunction, simplified; of nothing it is no row."""
    kept = [term for term in terms if term != NO_ROW]
    if EVERY_ROW in kept:
        return EVERY_ROW
    if len(kept) <= 1:
        return kept[0] if kept else NO_ROW
    return Or(tuple(kept))
