"""Filters on promoted columns, evaluated by pyiceberg in files with either type."""

from decimal import Decimal
from itertools import combinations
from typing import Any, Final

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.io import pyarrow as pyiceberg_arrow
from pyiceberg.table import Table
from pyiceberg.types import DecimalType, DoubleType, LongType

from dagster_iceberg_spark.catalog.expressions import expression_of
from dagster_iceberg_spark.pyiceberg_fixes import narrowed_literals
from dagster_iceberg_spark.table.predicate import Comparison, In, Not, Predicate
from tests.core.table.evaluator import matches

INT_LIMIT: Final = 2**31
FLOAT_LIMIT: Final = 3.4028234663852886e38
NARROW: Final[dict[str, tuple[pa.DataType, list[Any]]]] = {
    "f": (pa.float32(), [0.1, 19.9, None, float("nan"), float("inf"), -0.0, 0.0, FLOAT_LIMIT]),
    "i": (pa.int32(), [INT_LIMIT - 1, 5, None, -INT_LIMIT, 0, 1, 2, 3]),
    "p": (
        pa.decimal128(9, 2),
        [
            None if item is None else Decimal(item)
            for item in ("9999999.99", "0.10", None, "-9999999.99", "0.00", "1.00", "2.00", "3.00")
        ],
    ),
}
WIDE: Final[dict[str, tuple[pa.DataType, list[Any]]]] = {
    "f": (pa.float64(), [0.1, 19.9, None, 1e300, -1e300, 0.1000000014901161, 0.10000000149011612, 0.0]),
    "i": (pa.int64(), [INT_LIMIT, -INT_LIMIT - 1, None, INT_LIMIT - 1, 3 * INT_LIMIT, 5, 6, 7]),
    "p": (
        pa.decimal128(12, 2),
        [
            None if item is None else Decimal(item)
            for item in ("9999999999.99", "10000000.00", None, "1.00", "-10000000.00", "9999999.99", "5.00", "6.00")
        ],
    ),
}
CONSTANTS: Final[dict[str, list[Any]]] = {
    "f": [0.1, 19.9, 0.0, 1e300, -1e300, 0.10000000149011612, FLOAT_LIMIT, 1e-50],
    "i": [INT_LIMIT - 1, INT_LIMIT, 3 * INT_LIMIT, -INT_LIMIT - 1, -INT_LIMIT, 5],
    "p": [Decimal(item) for item in ("9999999.99", "10000000.00", "9999999999.99", "-10000000.00", "1.00")],
}


def rows_of(columns: dict[str, tuple[pa.DataType, list[Any]]]) -> pa.Table:
    schema = pa.schema([(name, kind) for name, (kind, _) in columns.items()])
    return pa.table({name: values for name, (_, values) in columns.items()}, schema=schema)


@pytest.fixture(scope="module")
def widened(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """A table with a file of the narrow types and a file of the wide types."""
    narrowed_literals.install()
    directory = tmp_path_factory.mktemp("lake")
    catalog = load_catalog("lake", type="sql", uri=f"sqlite:///{directory}/c.db", warehouse=f"file://{directory}")
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", schema=rows_of(NARROW).schema)
    table.append(rows_of(NARROW))
    with table.update_schema() as update:
        update.update_column("f", DoubleType())
        update.update_column("i", LongType())
        update.update_column("p", DecimalType(12, 2))
    table.append(rows_of(WIDE))
    return table


def predicates(column: str) -> list[Predicate]:
    constants = CONSTANTS[column]
    compared = [Comparison(column, operator, value) for operator in ("<", "<=", ">", ">=") for value in constants]
    listed = [In(column, (value,)) for value in constants] + [In(column, pair) for pair in combinations(constants, 2)]
    return [*compared, *listed]


@pytest.mark.parametrize(
    "column", [pytest.param(column, marks=pytest.mark.full) if column != "i" else column for column in NARROW]
)
def test_literals_are_compared_without_narrowing(widened: Table, column: str) -> None:
    """Also in files from before the column was promoted."""
    held = [*rows_of(NARROW).column(column).to_pylist(), *rows_of(WIDE).column(column).to_pylist()]
    for predicate in predicates(column):
        for asked in (predicate, Not(predicate)):
            expected = [value for value in held if matches(asked, {column: value})]
            found = widened.scan(row_filter=expression_of(asked), selected_fields=(column,)).to_arrow()
            assert (asked, sorted(map(str, found.column(column).to_pylist()))) == (asked, sorted(map(str, expected)))


@pytest.mark.parametrize(
    ("asked", "value", "rows", "rows_expected"),
    [(Comparison("f", ">", 0.1), 0.10000000149011612, 1, 2), (Not(Comparison("i", ">", INT_LIMIT)), None, 1, 0)],
    ids=["loses a float", "keeps NULL"],
)
def test_pyiceberg_still_narrows_literals(
    widened: Table, asked: Any, value: Any, rows: int, rows_expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found() -> int:
        column = "f" if value is not None else "i"
        values: list[Any] = widened.scan(row_filter=expression_of(asked)).to_arrow().column(column).to_pylist()
        return values.count(value)

    assert found() == rows_expected
    monkeypatch.setattr(pyiceberg_arrow, "bind", pyiceberg_arrow.bind.__wrapped__)  # type: ignore[attr-defined]
    assert found() == rows
