"""Predicates as values, and how they are combined."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_iceberg_spark.table.predicate import (
    EVERY_ROW,
    NO_ROW,
    And,
    Comparison,
    In,
    IsNull,
    Or,
    Predicate,
    all_of,
    any_of,
)
from tests.core.table.evaluator import matches

ATOMS: list[Predicate] = [
    EVERY_ROW,
    NO_ROW,
    Comparison("a", "<", 2),
    Comparison("b", ">=", 1),
    In("a", (0, 3)),
    IsNull("b"),
]
VALUES = st.none() | st.integers(0, 3)


@pytest.mark.parametrize(
    ("terms", "conjunction", "disjunction"),
    [
        ([], EVERY_ROW, NO_ROW),
        ([ATOMS[2]], ATOMS[2], ATOMS[2]),
        ([EVERY_ROW, ATOMS[2]], ATOMS[2], EVERY_ROW),
        ([NO_ROW, ATOMS[2]], NO_ROW, ATOMS[2]),
        ([ATOMS[2], ATOMS[3]], And((ATOMS[2], ATOMS[3])), Or((ATOMS[2], ATOMS[3]))),
    ],
)
def test_constants_and_single_terms_are_simplified(
    terms: list[Predicate], conjunction: Predicate, disjunction: Predicate
) -> None:
    assert all_of(terms) == conjunction
    assert any_of(terms) == disjunction


@given(st.lists(st.sampled_from(ATOMS)), VALUES, VALUES)
def test_simplifying_changes_no_rows(terms: list[Predicate], a: int | None, b: int | None) -> None:
    row = {"a": a, "b": b}
    assert matches(all_of(terms), row) == all(matches(term, row) for term in terms)
    assert matches(any_of(terms), row) == any(matches(term, row) for term in terms)
