"""What changes of queries and of Python code change in tables, and in those that are derived from them.

docs/reviewing.md: What breaks?
"""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import DataFrame

from dagster_iceberg_spark.features.code_changes.asset_code import assets_in
from dagster_iceberg_spark.features.code_changes.code_impact import CodeStates, code_impact
from dagster_iceberg_spark.features.code_changes.plan.effects import Effect
from tests.features.components.test_sql import component_of
from tests.lakes import Lake, annotation_of

pytestmark = pytest.mark.spark

FILES = {
    "orders": "SELECT 1 AS id, 100L AS cents, 'x' AS note, DATE '2024-01-01' AS day",
    "daily": "SELECT day, sum(cents) AS cents, count(*) AS n FROM orders GROUP BY day",
    "copy": "SELECT * FROM orders",
}


def report_of(lake: Lake) -> dg.AssetsDefinition:
    @dg.asset(io_manager_key="iceberg")
    def report(daily: annotation_of(DataFrame, lake)) -> Any:  # type: ignore[valid-type]
        return daily.where("day is not null").select("n", "cents")

    return report


def definitions_of(lake: Lake, directory: Path, **files: str | None) -> dg.Definitions:
    texts = {name: text for name, text in {**FILES, **files}.items() if text is not None}
    models: Any = component_of(directory, texts).assets
    return dg.Definitions([*models, report_of(lake)], resources=lake.resources)


def impact(lake: Lake, directory: Path, **files: str | None) -> dict[str, Any]:
    """Return what files in place of others change, by asset."""
    before, after = definitions_of(lake, directory), definitions_of(lake, directory, **files)
    states = CodeStates(*({item.key: item for item in assets_in(side, directory)} for side in (before, after)))
    found = code_impact([after], states, lake.instance)
    return {item.key: item for item in found}


@pytest.fixture
def stored(lake: Lake, tmp_path: Path) -> Lake:
    definitions = definitions_of(lake, tmp_path)
    assert isinstance(definitions.assets, list)
    lake.materialize(*definitions.assets)
    return lake


@pytest.mark.each_engine
def test_what_a_query_changes_reaches_what_is_derived_from_it(stored: Lake, tmp_path: Path) -> None:
    heads = {name: stored.table(name).metadata for name in FILES}
    found = impact(stored, tmp_path, orders="SELECT 1 AS id, 101L AS cents, 5 AS score, DATE '2024-01-01' AS day")
    assert {key: item.effect for key, item in found.items()} == {
        "orders": Effect(added=("score",), lost=("note",), changed=("cents",)),
        "copy": Effect(added=("score",), lost=("note",), changed=("cents",)),
        "daily": Effect(changed=("cents",)),
        "report": Effect(changed=("cents",), source="recorded"),
    }
    assert [found[key].change for key in ("orders", "daily")] == [("query",), ()]
    assert found["daily"].bytes == int(stored.summaries("daily")[-1]["total-files-size"])
    assert {name: stored.table(name).metadata for name in FILES} == heads, "tables stay as they are"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"orders": FILES["orders"].replace("SELECT 1 AS id", "SELECT /* 1 */ 1 AS id")}, {"orders": Effect()}),
        (
            {"daily": "WITH d AS (SELECT cents AS c, day AS at FROM orders) "
             "SELECT at AS day, sum(c) AS cents, count(*) AS n FROM d GROUP BY at"},
            {"daily": Effect()},
        ),
        (
            {"daily": FILES["daily"].replace("FROM orders", "FROM orders WHERE id > 0")},
            {"daily": Effect(is_whole=True), "report": Effect(is_whole=True, source="recorded")},
        ),
        (
            {"daily": FILES["daily"].replace("GROUP BY day", "GROUP BY day, id")},
            {"daily": Effect(is_whole=True), "report": Effect(is_whole=True, source="recorded")},
        ),
        ({"copy": "SELECT *, 1 AS one FROM orders"}, {"copy": Effect(added=("one",))}),
        ({"copy": "SELECT note, * EXCEPT (note) FROM orders"}, {"copy": Effect()}),
        ({"copy": None}, {"copy": Effect(is_whole=True, source="unknown")}),
        ({"extra": "SELECT id FROM orders"}, {"extra": Effect(added=("id",))}),
    ],
)  # fmt: skip
def test_only_what_a_query_means_counts(
    lake: Lake, tmp_path: Path, files: dict[str, str | None], expected: dict[str, Effect]
) -> None:
    definitions = definitions_of(lake, tmp_path)
    assert isinstance(definitions.assets, list)
    lake.materialize(*definitions.assets)
    assert {key: item.effect for key, item in impact(lake, tmp_path, **files).items()} == expected


@pytest.mark.full
def test_what_breaks_is_named(stored: Lake, tmp_path: Path) -> None:
    found = impact(stored, tmp_path, orders="SELECT 1 AS id, DATE '2024-01-01' AS day, 'x' AS note")
    (broken,) = found["daily"].effect.breaks
    assert "cents" in broken
    assert found["report"].effect.is_whole
    found = impact(stored, tmp_path, daily="SELECT day, count(*) AS n FROM orders GROUP BY day")
    assert found["report"].effect.breaks == ("its last run read the column cents of daily, which is lost",)
    found = impact(stored, tmp_path, orders=FILES["orders"].replace("100L", "'much'"))
    (refused, *_) = found["orders"].effect.breaks
    assert refused.startswith("Cannot write db.orders: expected")
    assert found["daily"].effect.retyped == {"cents": ("long", "double")}
