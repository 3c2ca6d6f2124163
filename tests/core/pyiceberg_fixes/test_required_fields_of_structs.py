"""Required fields of optional structs."""

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import IsNull, NotNull
from pyiceberg.table import Table

from dagster_iceberg_spark.pyiceberg_fixes.required_fields_of_structs import IsNullInStruct, NotNullInStruct

SCHEMA = pa.schema([("id", pa.int64()), ("s", pa.struct([pa.field("x", pa.int64(), nullable=False)]))])


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    table = catalog.create_table("db.t", schema=SCHEMA)
    table.append(pa.Table.from_pylist([{"id": 1, "s": {"x": 1}}, {"id": 2, "s": None}], schema=SCHEMA))
    return table


def ids(table: Table, predicate: Any) -> list[int]:
    found: list[int] = table.scan(row_filter=predicate("s.x")).to_arrow().column("id").to_pylist()
    return found


def test_required_fields_are_null_if_their_struct_is_null(table: Table) -> None:
    assert (ids(table, IsNullInStruct), ids(table, NotNullInStruct)) == ([2], [1])


def test_pyiceberg_still_assumes_required_fields_are_never_null(table: Table) -> None:
    assert (ids(table, IsNull), ids(table, NotNull)) == ([], [1, 2])
