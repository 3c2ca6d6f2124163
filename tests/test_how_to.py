"""What the how-to guides tell to do, done."""

from pathlib import Path
from typing import Any

import pytest

from dagster_iceberg_spark import SqlCatalog
from tests.lakes import Lake, frame_asset, open_lake
from tests.test_docs import DOCS, python_blocks


def function_of(page: str, name: str) -> Any:
    """Return a function that a page defines."""
    names: dict[str, Any] = {}
    for block in python_blocks(DOCS / "how-to" / page):
        exec(compile(block, page, "exec"), names)
    return names[name]


@pytest.mark.spark
@pytest.mark.full
def test_tables_move_to_another_catalog_with_their_history(classic_lake: Lake, tmp_path: Path) -> None:
    old = classic_lake
    for value in (1, 2):
        old.materialize(frame_asset("rows", f"select {value} as v"))
    catalog = SqlCatalog(name="other", uri=f"sqlite:///{tmp_path}/other.db", warehouse=str(tmp_path / "wh"))
    for new in open_lake(catalog, tmp_path, None):
        register = function_of("move-to-glue.md", "register_tables")
        assert register(old.spark, new.spark, "db") == ["db.rows"]
        assert register(old.spark, new.spark, "db") == []
        new.materialize(frame_asset("rows", "select 3 as v"))
        assert (new.rows("rows", "v"), old.rows("rows", "v")) == ([3], [2])
        assert len(new.table("rows").snapshots()) == 3
