"""The lineage of plans. `tests/features/lineage/test_column_lineage.py` has the plans of real queries.

docs/lineage.md: Which columns is a column derived from?
"""

import pytest

from dagster_iceberg_spark.features.lineage.plan.column_lineage import column_lineage, with_tables
from dagster_iceberg_spark.features.lineage.plan.column_origins import SourceColumn, parse_plan

TABLE = "RelationV2[a#1, b#2, c, d#3] lake.db.t"
ABOVE_TABLE = f"\n+- {TABLE}"


def made_of(plan: str, *names: str) -> list[str | None]:
    """Return the columns that each column is derived from, then those that decide which rows there are."""
    lineage = column_lineage(parse_plan(plan), names)
    found = (*lineage.columns, lineage.row_columns)
    return [None if known is None else " ".join(origin.column for origin in sorted(known)) for known in found]


def test_the_table_has_the_name_of_the_plan() -> None:
    for name in ("lake.db.t", "lake.db.t lake.db.t", "lake.db.t VERSION AS OF '1'", "lake.db.`a b` lake"):
        (origins,) = column_lineage(parse_plan(f"RelationV2[a#1] {name}"), ["a"]).columns
        expected = "lake.db.`a b`" if "`" in name else "lake.db.t"
        assert origins == frozenset({SourceColumn(expected, "a")})


@pytest.mark.parametrize("columns", ["[a#1, b, c#2L]", "[a#1,b, c#2L]"])
def test_a_view_stands_for_a_table_however_its_columns_are_printed(columns: str) -> None:
    plan = parse_plan(f"Project [b, c#2L AS x#5L]\n+- View (`v`, {columns})\n   +- OneRowRelation")
    (origins,) = column_lineage(with_tables(plan, {"v": "t"}), ["x"]).columns
    assert origins == frozenset({SourceColumn("t", "b, c")})


@pytest.mark.parametrize(
    ("outputs", "names", "expected"),
    [
        ("a#1, b#2 AS x#5", ["a", "x"], ["a", "b", ""]),
        ("A#1", ["A"], ["a", ""]),
        ("(a#1 + f(b#2)#9) AS x#5", ["x"], ["a b", ""]),
        ("c, d#3, concat(a#1, ), (, #7 AS q) AS c AS d, e#5", ["c, d", "c AS d, e"], ["c, d", "a", ""]),
        ("a#1 AS x AS y#5", ["x AS y"], ["a", ""]),
        ("(b#2 = Brand#1) AS x#5", ["x"], [None, ""]),  # `Brand` is not the name of the column 1
        ("(b#2 = Brand#12) AS x#5", ["x"], ["b", ""]),
        ("1 AS x#5", ["x"], ["", ""]),
        ("sum(a#1) windowspecdefinition(b#2, f()) AS x#5", ["x"], ["a", "b"]),
    ],
)
def test_expressions_are_made_of_the_columns_that_they_refer_to(
    outputs: str, names: list[str], expected: list[str | None]
) -> None:
    assert made_of(f"Project [{outputs}]{ABOVE_TABLE}", *names) == expected


@pytest.mark.parametrize(
    "plan",
    [
        f"Window [a#1]{ABOVE_TABLE}\nmore",
        f"Project [f(a#1)]{ABOVE_TABLE}",
        f"Project [scalar-subquery#7 [] AS a#5]{ABOVE_TABLE}",
        f"Project [a#1 AS a#5]\n:  +- {TABLE}{ABOVE_TABLE}",
        f"Project [sum(a#1) windowspecdefinition(b#2 AS a#5]{ABOVE_TABLE}",
        f"Join ExistenceJoin(x#9){ABOVE_TABLE}\n+- {TABLE}",
        f"Union false, false\n:- {TABLE}\n+- RelationV2[a#4] lake.db.t",
        f"Expand [[a#1], [a#1, b#2]], [a#5]{ABOVE_TABLE}",
        "CTERelationRef 7, true, [a#1], false",
        "RelationV2[a#1]",
        f"NewOperator [a#1]{ABOVE_TABLE}",
        f"Distinct\n+- NewOperator [a#1]{ABOVE_TABLE}",
    ],
)
def test_nothing_is_known_above_what_is_not_understood(plan: str) -> None:
    assert made_of(plan, "a") == [None, None]


@pytest.mark.parametrize(
    ("generator", "expected"),
    [
        ("stack(2, a, a#1, b, (b#2 + 1))", ["", "a b", ""]),
        ("stack(2, a#1, b#2, 1)", ["a b", "a b", "a b"]),  # a value is missing, or a text has a comma
        ("inline(array(struct(a, a#1, v, b#2)))", ["a", "b", ""]),
        ("inline(array(named_struct(p, a#1, q, 1), named_struct(p, b#2, q, b#2)))", ["a b", "b", ""]),
        ("inline(b#2)", ["b", "b", "b"]),
        ("inline(array(b#2))", ["b", "b", "b"]),
    ],
)
def test_rows_that_are_written_out_have_their_values_column_by_column(generator: str, expected: list[str]) -> None:
    plan = f"Project [n#7, x#8]\n+- Generate {generator}, false, [n#7, x#8]\n   +- {TABLE}"
    assert made_of(plan, "n", "x") == expected


def test_whether_there_are_rows_is_made_of_the_columns_that_decide_it() -> None:
    inner = ":  +- Project [1 AS 1#21]\n:     +- Filter (b#22 = outer(a#1))\n:        +- RelationV2[b#22] lake.db.u"
    assert made_of(f"Project [exists#19 [a#1] AS flag#20]\n{inner}{ABOVE_TABLE}", "flag") == ["a b", "a b"]


def test_columns_beside_those_of_an_unknown_operator_are_known() -> None:
    plan = (
        f"Project [a#1, x#9, (x#9 + 1) AS y#10]\n+- Join Cross\n   :- {TABLE}\n   +- MapInPandas f(b#2), [x#9], false"
    )
    assert made_of(plan, "a", "x", "y") == ["a", None, None, None]


def test_a_text_cannot_hide_the_end_of_an_expression_above_an_unknown_operator() -> None:
    plan = "Project [concat( AS , x#9, b#2) AS y#10]\n+- MapInPandas f(b#2), [x#9], false"
    assert made_of(plan, "y") == [None, None]


def test_rows_of_python_are_not_known_and_rows_of_files_are_of_no_table() -> None:
    assert made_of("LocalRelation [a#1]", "a") == [None, None]
    assert made_of("LocalRelation <empty>, [a#1]", "a") == [None, None]
    assert made_of("Relation spark_catalog.default.t[a#1] parquet", "a") == ["", ""]
    assert made_of("Project [1 AS a#2]\n+- OneRowRelation", "a") == ["", ""]
    assert made_of("Project [id#0L AS a#1L]\n+- Range (0, 5, step=1)", "a") == [None, ""]


def test_another_number_or_name_of_columns_is_not_understood() -> None:
    assert made_of(TABLE, "a") == [None, None]
    assert made_of("RelationV2[a#1] lake.db.t", "b") == [None, None]


def test_plans_may_be_deeper_than_pythons_stack() -> None:
    depth = 3000
    lines = [f"{'   ' * level}+- Project [a#1]" for level in range(depth)]
    assert made_of("\n".join(["Project [a#1]", *lines, f"{'   ' * depth}+- {TABLE}"]), "a") == ["a", ""]


def copied(plan: str, *names: str) -> list[str | None]:
    """Return the column of a table that each column has the value of."""
    return [None if source is None else source.column for source in column_lineage(parse_plan(plan), names).copied]


@pytest.mark.parametrize(
    ("plan", "names", "expected"),
    [
        (f"Project [a#1, b#2 AS x#5, (a#1 + 1) AS y#6, 2 AS z#7]{ABOVE_TABLE}", "a|x|y|z", ["a", "b", None, None]),
        (f"Aggregate [a#1], [a#1, sum(b#2) AS b#5]{ABOVE_TABLE}", "a|b", ["a", None]),
        (f"Project [x#5]\n+- Project [a#1 AS x#5]{ABOVE_TABLE.replace(chr(10), chr(10) + '   ')}", "x", ["a"]),
        (f"Join Inner, (a#1 = e#9)\n:- {TABLE}\n+- RelationV2[e#9] lake.db.u", "a|b|c, d|e", ["a", "b", "c, d", "e"]),
        (
            f"Join Inner, (a#1 = e#9)\n:- Project [a#1]\n:  +- {TABLE}\n+- RelationV2[e#9] lake.db.t",
            "a|e",
            [None, None],
        ),
        (f"Union false, false\n:- Project [a#1]\n:  +- {TABLE}\n+- RelationV2[e#9] lake.db.u", "a", [None]),
        (f"Expand [[a#1], [null]], [a#5]{ABOVE_TABLE}", "a", [None]),
        (f"Project [cast(a#1 as double) AS a#5]{ABOVE_TABLE}", "a", [None]),
    ],
)
def test_a_column_is_copied_if_nothing_changes_its_value(plan: str, names: str, expected: list[str | None]) -> None:
    assert copied(plan, *names.split("|")) == expected
