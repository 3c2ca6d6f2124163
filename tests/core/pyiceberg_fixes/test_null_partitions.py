"""Filters on a partition with the value NULL."""

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions.visitors import ResidualVisitor
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform

from dagster_iceberg_spark.pyiceberg_fixes import null_partitions

COMPARISONS = {"less_than": "<", "less_than_or_equal": "<=", "greater_than": ">", "greater_than_or_equal": ">="}


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    """A table with one file in the NULL partition and one in another."""
    null_partitions.install()
    table = catalog.create_table("db.t", schema=pa.schema([("p", pa.int64())]))
    with table.update_spec() as update:
        update.add_field("p", IdentityTransform(), "p")
    table.append(pa.table({"p": pa.array([1, None], pa.int64())}))
    return table


def rows_of(name: str) -> str:
    """Return a filter that includes the NULL partition, so that pyiceberg computes its residual."""
    return f"p is null or p {COMPARISONS[name]} 0"


@pytest.mark.parametrize("name", COMPARISONS)
def test_a_comparison_with_null_is_not_true(table: Table, name: str) -> None:
    found = table.scan(row_filter=rows_of(name)).to_arrow().column("p").to_pylist()
    assert sorted(found, key=str) == ([1, None] if name.startswith("greater") else [None])


@pytest.mark.parametrize("name", COMPARISONS)
def test_pyiceberg_still_fails(table: Table, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    visit = f"visit_{name}"
    monkeypatch.setattr(ResidualVisitor, visit, getattr(ResidualVisitor, visit).__wrapped__)
    with pytest.raises(TypeError, match="NoneType"):
        list(table.scan(row_filter=rows_of(name)).plan_files())
