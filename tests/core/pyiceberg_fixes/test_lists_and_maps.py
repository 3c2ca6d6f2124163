"""Lists and maps, as pyiceberg reads them."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import ArrowProjectionVisitor

from dagster_iceberg_spark.pyiceberg_fixes import lists_and_maps

STRUCT = pa.struct([pa.field("x", pa.int64())])
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("l", pa.list_(STRUCT)),
        ("m", pa.map_(pa.string(), STRUCT)),
        ("ll", pa.list_(pa.list_(STRUCT))),
        ("mm", pa.map_(pa.string(), pa.map_(pa.string(), STRUCT))),
    ]
)
ROWS: list[dict[str, Any]] = [
    {"id": 0, "l": None, "m": None, "ll": None, "mm": None},
    {"id": 1, "l": [{"x": 1}], "m": [("k", {"x": 1})], "ll": [[{"x": 1}], None], "mm": [("k", [("k", {"x": 1})])]},
    {"id": 2, "l": [], "m": [], "ll": [], "mm": [("k", None)]},
]


@pytest.fixture(autouse=True)
def _fixed() -> None:
    lists_and_maps.install()


def rows_read(catalog: SqlCatalog, rows: list[dict[str, Any]], file: Path) -> tuple[pa.Table, pa.Table]:
    """Write rows, rename a field of each struct, and return the rows written and the rows read."""
    whole = pa.Table.from_pylist(rows, schema=SCHEMA)
    parquet.write_table(whole, file)
    table = catalog.create_table("db.t", schema=SCHEMA)
    table.add_files([str(file)])
    with table.update_schema() as update:
        for path in ("l.element", "m.value", "ll.element.element", "mm.value.value"):
            update.rename_column(f"{path}.x", "y")
    return whole, table.scan().to_arrow().sort_by("id")


def renamed(value: Any) -> Any:
    if isinstance(value, dict):
        return {"y": value["x"]}
    return type(value)(map(renamed, value)) if isinstance(value, list | tuple) else value


@pytest.mark.parametrize("rows", [3, pytest.param(140_000, marks=pytest.mark.full)])
def test_lists_and_maps_are_read_as_written(catalog: SqlCatalog, rows: int, tmp_path: Path) -> None:
    """Also from row groups that are larger than one of Arrow's batches, which Arrow returns in slices."""
    given = [{**ROWS[index % 3], "id": index} for index in range(rows)]
    whole, found = rows_read(catalog, given, tmp_path / "rows.parquet")
    for name in SCHEMA.names:
        assert found.column(name).to_pylist() == renamed(whole.column(name).to_pylist()), name


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("list", "map"):
        monkeypatch.setattr(ArrowProjectionVisitor, name, getattr(ArrowProjectionVisitor, name).__wrapped__)


@pytest.mark.parametrize("name", ["l", "m"])
def test_pyiceberg_still_reads_null_as_empty(plain: None, catalog: SqlCatalog, name: str, tmp_path: Path) -> None:
    _, found = rows_read(catalog, ROWS, tmp_path / "rows.parquet")
    assert found.column(name).to_pylist()[0] == []


@pytest.mark.parametrize(("name", "read"), [("ll", [[{"y": None}], None]), ("mm", [("k", [("k", {"y": None})])])])
def test_pyiceberg_still_matches_nested_structs_by_name(
    plain: None, catalog: SqlCatalog, name: str, read: Any, tmp_path: Path
) -> None:
    _, found = rows_read(catalog, ROWS, tmp_path / "rows.parquet")
    assert found.column(name).to_pylist()[1] == read
