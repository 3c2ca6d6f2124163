"""The names in a query.

docs/components.md: SparkSqlComponent
"""

import pytest

from dagster_iceberg_spark.features.components.plan import parse_query, reference
from dagster_iceberg_spark.table.identifier import NotationError


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        ("select * from a", ["a"]),
        ("select * from a join nyc.`we ird` b on true", ["a", "nyc.we ird"]),
        ("with a as (select * from b) select * from a", ["b"]),
        ("with a as (select * from a) select * from a", ["a"]),  # of the first `a`, there is only the table
        ("with a as (select 1 as x), c as (select * from a join d) select * from c join A", ["d"]),
        ("select * from (with z as (select * from b) select * from z) join z", ["b", "z"]),
        ("select (select max(x) from b) from a where x in (select x from c)", ["b", "a", "c"]),
        ("with recursive a as (select 1 as n union all select n + 1 from a) select * from a", []),
        ("select * from parquet.`/data/x` join csv.`a.csv` join json.t", ["json.t"]),
        ("select /*+ broadcast(a) */ * from a", ["a"]),
        ("select * from a; -- the end", ["a"]),
        ("select * from range(5) join lake.nyc.t", ["lake.nyc.t"]),
        ("select * from a union all select * from b", ["a", "b"]),
        ("select explode(array(1)) -- from c\n", []),
        ("select 'from c' as x from a lateral view explode(y) t as z", ["a"]),
    ],
)
def test_the_tables_of_a_query_are_those_that_it_does_not_define(text: str, tables: list[str]) -> None:
    assert [".".join(table.parts) for table in parse_query(text).tables] == tables


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "an empty file"),
        ("select 1; select 2", "SELECT, SELECT"),
        ("drop table a", "DROP"),
        ("selec 1 from", "Line 1"),
    ],
)
def test_only_one_query_is_accepted(text: str, found: str) -> None:
    with pytest.raises(NotationError) as raised:
        parse_query(text)
    assert found in raised.value.found


def test_a_reference_keeps_the_last_part_of_its_key_as_alias_unless_it_has_one() -> None:
    query = parse_query(f"select c.x from {reference('raw/c')} join {reference('raw/d')} e")
    assert [table.reference for table in query.tables] == ["raw/c", "raw/d"]
    assert query.with_names(lambda _: "{0}", str) == "select c.x from {0} AS c join {0} e"


@pytest.mark.parametrize("version", ["version as of 5", "for version as of 5", "timestamp as of '2024-01-01'"])
def test_a_version_of_a_table_is_known(version: str) -> None:
    assert [table.is_versioned for table in parse_query(f"select * from a {version} join b").tables] == [True, False]


def test_tables_are_renamed_in_place_and_keep_their_names_as_aliases() -> None:
    query = parse_query(
        "select a.x, b.y, '{a}' -- a\nfrom a join n.b on a.i = b.i join a as c join d tablesample (1 rows)"
    )
    names = {("a",): "{0}", ("n", "b"): "{1}", ("d",): "{2}"}
    assert query.with_names(names.get, lambda text: text.replace("{", "{{").replace("}", "}}")) == (
        "select a.x, b.y, '{{a}}' -- a\nfrom {0} AS a join {1} AS b on a.i = b.i join {0} as c "
        "join {2} tablesample (1 rows)"
    )
