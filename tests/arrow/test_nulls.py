"""NULL lists and maps of structs, as pyiceberg reads them."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog

from dagster_iceberg_spark.arrow.nulls import keep_nulls, with_nulls_of

STRUCT = pa.struct([pa.field("x", pa.int64())])
SCHEMA = pa.schema([("id", pa.int64()), ("l", pa.list_(STRUCT)), ("m", pa.map_(pa.string(), STRUCT))])
ROWS: list[dict[str, Any]] = [
    {"id": 0, "l": None, "m": None},
    {"id": 1, "l": [{"x": 1}], "m": [("k", {"x": 1})]},
    {"id": 2, "l": [], "m": []},
]


@pytest.fixture
def catalog(tmp_path: Path) -> Any:
    keep_nulls()
    return load_catalog("lake", type="sql", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}")


@pytest.mark.parametrize("rows", [3, 300_000])
def test_they_are_read_as_they_were_written(catalog: SqlCatalog, rows: int, tmp_path: Path) -> None:
    """Also from row groups of more rows than Arrow hands out at once, of which it gives slices."""
    from pyarrow import parquet

    whole = pa.Table.from_pylist([{**ROWS[index % 3], "id": index} for index in range(rows)], schema=SCHEMA)
    file = tmp_path / "rows.parquet"
    parquet.write_table(whole, file)
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", schema=SCHEMA)
    table.add_files([str(file)])
    found = table.scan().to_arrow().sort_by("id")
    for name in ("l", "m"):
        assert found.column(name).to_pylist() == whole.column(name).to_pylist()


def test_what_has_no_nulls_is_left_as_it_is() -> None:
    built = pa.array([[1]])
    assert with_nulls_of(pa.array([[1]]), built) is built
    assert with_nulls_of(None, None) is None
