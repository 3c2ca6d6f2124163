"""Assets in SQL files.

docs/components.md: SparkSqlComponent; Limits
"""

import re
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster.components.core.component_tree import ComponentTreeException
from dagster.components.testing import create_defs_folder_sandbox

from dagster_iceberg_spark import ConfigurationError, SparkSqlComponent
from dagster_iceberg_spark.features.components.sql_assets import SqlFile
from tests.features.lineage.lineage_queries import QUERIES, TABLES
from tests.lakes import Lake, frame_asset

BERLIN = 'partitions_def: {type: daily, start_date: "2024-01-01", timezone: Europe/Berlin}'


def component_of(directory: Path, files: dict[str, str], **attributes: Any) -> dg.Definitions:
    """Return the definitions of a folder of SQL files."""
    with create_defs_folder_sandbox() as sandbox:
        body = {"type": "dagster_iceberg_spark.SparkSqlComponent", "attributes": attributes}
        path = sandbox.scaffold_component(component_cls=SparkSqlComponent, defs_yaml_contents=body)
        (path / "example.sql").unlink(missing_ok=True)
        for name, text in files.items():
            (path / f"{name}.sql").write_text(text)
        with sandbox.load_component_and_build_defs(defs_path=path) as (_, definitions):
            return definitions


def read(directory: Path, text: str) -> SqlFile:
    path = directory / "t.sql"
    path.write_text(text)
    return SqlFile.read(path, dg.ResolutionContext.default())


def test_tables_by_name_and_by_reference_become_dependencies(tmp_path: Path) -> None:
    files = {
        "a": "select 1 as x",
        "b": "/* ---\nkey: shop/b\nkinds: [table]\niceberg/write_disposition: append\n--- */\n"
        "select * from A join {{ ref('raw/c') }}",
        "d": "/* only a comment: of nothing */ select * from {{ ref('b') }} join nyc.e join lake.nyc.f",
    }
    definitions = component_of(tmp_path, files, group_name="models", key_prefix="own")
    assets: Any = definitions.assets
    specs = {spec.key.to_user_string(): spec for asset in assets for spec in asset.specs}
    deps = {key: sorted(dep.asset_key.to_user_string() for dep in spec.deps) for key, spec in specs.items()}
    assert deps == {"own/a": [], "shop/b": ["own/a", "raw/c"], "own/d": ["nyc/e", "shop/b"]}
    assert (specs["own/a"].group_name, specs["own/a"].kinds) == ("models", {"sql", "spark", "iceberg"})
    assert (specs["shop/b"].metadata["iceberg/write_disposition"], specs["shop/b"].kinds) == ("append", {"table"})
    assert specs["own/a"].code_version != specs["own/d"].code_version


def test_the_path_of_a_contract_begins_at_the_file(tmp_path: Path) -> None:
    file = read(tmp_path, "/* ---\niceberg/contract: ../orders.odcs.yaml#lines\n--- */\nselect 1 as id")
    found = Path(file.attributes["metadata"]["iceberg/contract"])
    assert found.parent.resolve() == tmp_path.parent.resolve()
    assert found.name == "orders.odcs.yaml#lines"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("/* ---\nowner: me\n--- */\nselect 1", "found `owner` in line 2"),
        ("/* ---\ngroup_name: a\ntags: 5\n--- */\nselect 1", "found `tags` in line 3"),
        ("/* ---\n\nkinds: [a\n--- */\nselect 1", "in line 3"),
        ("/* ---\n- a\n--- */\nselect 1", "expected a mapping in the comment at the top, found list"),
        (
            '/* ---\npartitions_def: {type: daily, start: "x"}\n--- */\nselect 1',
            "`partitions_def.start_date` in line 2",
        ),
        (
            '/* ---\ngroup_name: "{{ nothing }}"\n--- */\nselect 1',
            "t.sql:2 - group_name: UndefinedError: 'nothing' not found",
        ),
    ],
)
def test_a_wrong_header_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        read(tmp_path, text)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    "before", ["\ufeff", "-- sqlfluff:dialect:sparksql\n", "/* Copyright */\n\n-- a\n  -- b\n", "\n\n  ", "/**/"]
)
def test_other_comments_may_stand_before_the_header(tmp_path: Path, before: str) -> None:
    file = read(tmp_path, f"{before}/* ---\ngroup_name: a\n--- */\nselect {{{{ nothing }}}},")
    assert file.attributes["group_name"] == "a"
    wrong = read(tmp_path, f"{before}/* ---\ngroup_name: a\n--- */\nselect {{{{")
    with pytest.raises(ConfigurationError, match=f"in line {before.count(chr(10)) + 4}"):
        wrong.query()


@pytest.mark.parametrize(
    "text",
    [
        "select 1\n/* ---\ngroup_name: a\n--- */",
        "/* ---\ngroup_name: a\n*/\nselect 1",
        "/* --- group_name: a --- */\nselect 1",
        "/* ---\ngroup_name: a\n--- */\n/* ---\ngroup_name: b\n--- */\nselect 1",
    ],
)
def test_a_header_that_would_not_be_read_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigurationError, match="expected one header before the query"):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("select {{ partition.begin }}", "has no attribute 'begin'"),
        ("/* ---\ndescription: x\n--- */\nselect {{ nothing }}", "found 'nothing' is undefined"),
        ("/* ---\ndescription: x\n--- */\nselect {{", "in line 4"),
        ("/* ---\ndescription: x\n--- */\nselect from where", "Line 4"),
        ("drop table a", "found DROP"),
    ],
)
def test_a_wrong_query_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    file = read(tmp_path, text)
    with pytest.raises(ConfigurationError) as raised:
        file.query()
    assert message in str(raised.value)


def test_all_values_of_a_partition_may_stand_in_a_query(tmp_path: Path) -> None:
    names = ("start", "end", "key")
    values = ", ".join(f"{{{{ partition.{name} }}}} as {name}" for name in names)
    found = read(tmp_path, f"select {values} from a where k in {{{{ partition.keys }}}}").query()
    assert [table.parts for table in found.tables] == [("a",)]


def test_a_folder_without_queries_and_unknown_metadata_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ComponentTreeException) as raised:
        component_of(tmp_path, {})
    assert "expected files with the suffix .sql, found none" in str(raised.value.__cause__)
    with pytest.raises(ComponentTreeException) as raised:
        component_of(tmp_path, {"a": "select 1 as x", "A": "select 2 as x"})
    assert "expected one file of each name, found several of a" in str(raised.value.__cause__)
    with pytest.raises(ComponentTreeException) as raised:
        component_of(tmp_path, {"a": "/* ---\niceberg/partition_bye: [x]\n--- */\nselect 1 as x"})
    assert "did you mean `iceberg/partition_by`" in str(raised.value.__cause__)
    with pytest.raises(ComponentTreeException) as raised:
        component_of(tmp_path, {"a": "select * from b version as of 1", "b": "select 1 as x"})
    assert "found a version of 'b'" in str(raised.value.__cause__)
    with pytest.raises(ComponentTreeException) as raised:
        component_of(tmp_path, {"a": f"/* ---\n{BERLIN}\n--- */\nselect 1 as x"})
    assert "expected `partition_expr` with the name of the column" in str(raised.value.__cause__)


def test_a_header_may_have_checks(tmp_path: Path) -> None:
    text = "/* ---\nchecks: {{not_null: [x], row_count: [1, 5], fresh: 2 days, {}}}\n--- */\nselect 1 as x"
    definitions = component_of(tmp_path, {"t": text.format("blocking: true")})
    (checks,) = definitions.asset_checks or ()
    assert {key.name for key in checks.check_keys} == {"not_null_x", "row_count", "fresh"}
    wrong_ones = {"uniqe: [x]": "unexpected keyword argument 'uniqe'", "change: {row: 1}": "did you mean 'rows'"}
    for wrong, message in wrong_ones.items():
        with pytest.raises(ComponentTreeException) as raised:
            component_of(tmp_path, {"t": text.format(wrong)})
        assert message in str(raised.value.__cause__)


@pytest.mark.spark
def test_queries_read_the_partitions_of_their_inputs_and_replace_their_own(lake: Lake, tmp_path: Path) -> None:
    files = {
        "hours": f"/* ---\n{BERLIN}\npartition_expr: at\n--- */\nselect explode(sequence({{{{ partition.start }}}}, "
        "{{ partition.end }} - interval 1 hour, interval 1 hour)) as at, '{a}' as `b { c`",
        "days": f"/* ---\n{BERLIN}\npartition_expr: day\n--- */\n"
        "with own as (select hours.at, `b {{ '{' }} c` as c, x.factor from hours join {{ ref('factors') }} x)\n"
        "select date({{ partition.key }}) as day, count(at) * max(factor) as n, max(c) as c from own",
    }
    definitions = component_of(tmp_path, files)
    assets = [*(definitions.assets or ()), frame_asset("factors", "select 2 as factor")]
    for day in ("2024-03-30", "2024-03-31", "2024-03-31"):
        result = lake.materialize(*assets, partition_key=day)
    assert lake.rows("days", "n", "c") == [(46, "{a}"), (48, "{a}")]
    assert [item["dagster.partition_keys"] for item in lake.summaries("days")] == [
        "2024-03-30",
        "2024-03-31",
        "2024-03-31",
    ]
    (made,) = result.asset_materializations_for_node("days")
    lineage: Any = made.metadata["dagster/column_lineage"].value
    found = {column: [dep.column_name for dep in deps] for column, deps in lineage.deps_by_column.items()}
    assert found == {"day": [], "n": ["factor", "at"], "c": ["b { c"]}


@pytest.mark.spark
@pytest.mark.full
@pytest.mark.each_engine
@pytest.mark.since("4.0", "connect")  # the protocol of 3.5 carries no MERGE
def test_queries_without_partitions_read_one_another(lake: Lake, tmp_path: Path) -> None:
    files = {
        "base": "select id from range(4)",
        "whole": "select id from base",
        "log": "/* ---\niceberg/write_disposition: append\n--- */\nselect id from base where id > 2",
        "merged": "/* ---\niceberg/write_disposition: merge\niceberg/merge_keys: [id]\n--- */\nselect id from base",
        "audited": "/* ---\niceberg/audits: {some: count(*) > 0}\n--- */\nselect id from base",
    }
    definitions = component_of(tmp_path, files)
    for _ in range(2):
        lake.materialize(*(definitions.assets or ()))
    found = {name: lake.rows(name) for name in files}
    every = [0, 1, 2, 3]
    assert found == {"base": every, "whole": every, "log": [3, 3], "merged": every, "audited": every}


@pytest.mark.spark
@pytest.mark.each_engine
@pytest.mark.parametrize("every", [pytest.param(8, marks=pytest.mark.full), pytest.param(1, marks=pytest.mark.slow)])
def test_the_queries_of_a_corpus_give_the_rows_that_spark_gives(lake: Lake, tmp_path: Path, every: int) -> None:
    queries = [*QUERIES.items()][::every]
    tables = [frame_asset(name, rows_of(columns)) for name, columns in TABLES.items()]
    lake.materialize(*tables)
    files = {
        f"query_{number}": query.sql.replace("{", "{{ '{' }}") for number, query in enumerate(dict(queries).values())
    }
    models: Any = component_of(tmp_path, files).assets
    lake.materialize(*tables, *models, selection=list(models))
    lake.session.sql("use lake.db")
    wrong = []
    for number, (name, query) in enumerate(queries):
        found, expected = lake.session.table(f"lake.db.query_{number}"), lake.session.sql(query.sql)
        if sorted(map(repr, found.collect())) != sorted(map(repr, expected.collect())):
            wrong.append(name)
    lake.session.sql("use spark_catalog.default")
    assert not wrong


def rows_of(columns: str) -> str:
    """Return a query of some rows with these columns, whose keys meet those of other tables."""
    values = {
        "bigint": "id % 5",
        "int": "id % 7",
        "decimal": "id * 1.5",
        "string": "concat('x', id % 3)",
        "date": "date_add(date'1994-01-01', cast(id * 50 as int))",
        "timestamp": "timestamp_seconds(id)",
        "struct": "struct(concat('n', id), array('a', 'b'))",
        "array": "array(id, 1)",
        "map": "map('k', concat('v', id))",
    }
    found = re.findall(r"(`[^`]*`|\w+) (\S+?)(?:, |$)", columns)
    selected = [f"cast({values[re.split('[(<]', kind)[0]]} as {kind}) as {name}" for name, kind in found]
    return f"select {', '.join(selected)} from range(20)"


@pytest.mark.spark
@pytest.mark.full
@pytest.mark.parametrize(
    ("header", "select", "message"),
    [
        ("", "{{ partition.key }}", "expected an asset with partitions, for `partition`, found none"),
        ("partitions_def: {type: static, partition_keys: [a]}", "{{ partition.start }}", "expected partitions by time"),
    ],
)
def test_values_that_the_run_does_not_have_are_refused(
    classic_lake: Lake, tmp_path: Path, header: str, select: str, message: str
) -> None:
    text = f"/* ---\ndescription: x\npartition_expr: k\n{header}\n--- */\nselect {select} as k"
    definitions = component_of(tmp_path, {"t": text})
    with pytest.raises(Exception, match=message):
        classic_lake.materialize(*(definitions.assets or ()), partition_key="a" if header else None)


@pytest.mark.spark
@pytest.mark.full
def test_a_key_is_a_literal_whatever_is_in_it(lake: Lake, tmp_path: Path) -> None:
    key = 'it\'s \\ {x} -- "\u00e9"'
    text = (
        "/* ---\npartition_expr: k\n"
        "partitions_def: {type: static, partition_keys: ['it''s \\ {x} -- \"\u00e9\"', b]}\n--- */\n"
        "select {{ partition.key }} as k, 1 as n from {{ ref('one') }} "
        "where {{ partition.key }} in {{ partition.keys }}"
    )
    definitions = component_of(tmp_path, {"t": text})
    lake.materialize(*(definitions.assets or ()), frame_asset("one", "select 1 as x"), partition_key=key)
    assert lake.rows("t", "k") == [key]
