"""The origins of columns in printed plans.

docs/lineage.md: Which columns is a column derived from?
"""

import pytest

from dagster_iceberg_spark.features.lineage.plan.column_origins import lists_in, parse_plan, split_brackets, split_list
from dagster_iceberg_spark.table.identifier import NotationError

PLAN = """\
Project [a#1, scalar-subquery#5 [] AS b#6]
:  +- Aggregate [max(x#2) AS max(x)#3]
:     +- RelationV2[x#2] lake.db.u
+- Union false, false
   :- RelationV2[a#1] lake.db.t
   +- RelationV2[a#4] lake.db.t
"""


def test_a_plan_is_a_tree_of_operators_with_the_plans_of_their_subqueries() -> None:
    project = parse_plan(PLAN)
    (query,), (union,) = project.subqueries, project.children
    assert (project.name, project.arguments) == ("Project", "[a#1, scalar-subquery#5 [] AS b#6]")
    assert [operator.name for operator in (query, *query.children, union)] == ["Aggregate", "RelationV2", "Union"]
    assert [operator.arguments for operator in union.children] == ["[a#1] lake.db.t", "[a#4] lake.db.t"]


def test_a_line_break_in_a_text_does_not_begin_an_operator() -> None:
    assert parse_plan("Filter (a#1 = x\n y)\n+- OneRowRelation").arguments == "(a#1 = x\n y)"


@pytest.mark.parametrize(
    "text",
    ["", "[a#1]", "Project [a#1]\n         +- OneRowRelation", "Project [a#1, ... 5 more fields]\n+- OneRowRelation"],
)
def test_other_texts_are_no_plans(text: str) -> None:
    with pytest.raises(NotationError):
        parse_plan(text)


def test_items_are_split_outside_of_brackets() -> None:
    assert split_list("a#1, f(b#2, [c]), d") == ["a#1", "f(b#2, [c])", "d"]
    assert split_list("") == []
    assert split_brackets("[a, [b]], rest") == ("a, [b]", "rest")


@pytest.mark.parametrize("text", ["a)", "(a", "[a)", "a"])
def test_brackets_must_be_balanced(text: str) -> None:
    with pytest.raises(NotationError):
        split_brackets(text)


def test_lists_are_told_apart_although_a_text_has_a_bracket() -> None:
    assert lists_in("[a#1], [f(() AS b#2]") == ["a#1", "f(() AS b#2"]
    with pytest.raises(NotationError):
        lists_in("[a#1] and more")
