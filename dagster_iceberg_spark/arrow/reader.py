"""Loading a plan as Arrow, pandas, polars, DuckDB or pyiceberg objects."""

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pyarrow as pa

from dagster_iceberg_spark.arrow.scan import PlannedScan
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.look import find_table, translated_answers
from dagster_iceberg_spark.errors import ConfigurationError, UpstreamMissingError
from dagster_iceberg_spark.plan.read import ReadPlan


class Rows(Protocol):
    """Rows that can be taken whole or batch by batch."""

    def table(self) -> pa.Table:
        """Return all rows."""

    def batches(self) -> pa.RecordBatchReader:
        """Return the rows batch by batch."""


class NoRows:
    """No rows, of no columns: what is known of a table that is not there."""

    def table(self) -> pa.Table:
        """Return the table without rows."""
        return pa.table({})

    def batches(self) -> pa.RecordBatchReader:
        """Return no batch."""
        return pa.RecordBatchReader.from_batches(pa.schema([]), [])


@dataclass(frozen=True, slots=True)
class InputType:
    """A Python type that an input can be annotated with.

    Args:
        module: The module that users import it from.
        name: Its name there.
        load: Makes it of rows.
        extra: The extra of this package that installs it, if it is not there anyway.
        needs_columns: Whether there is none of it without columns.
    """

    module: str
    name: str
    load: Callable[[Any], Any]
    extra: str | None = None
    needs_columns: bool = False

    @property
    def path(self) -> str:
        """The dotted name."""
        return f"{self.module}.{self.name}"

    def is_annotated_by(self, annotation: object) -> bool:
        """Say whether the annotation is this type, without importing its module."""
        module = sys.modules.get(self.module)
        return module is not None and getattr(module, self.name, None) is annotation


def _polars(rows: Rows) -> Any:
    return importlib.import_module("polars").from_arrow(rows.table())


def _duckdb(rows: Rows) -> Any:
    return importlib.import_module("duckdb").from_arrow(rows.table())


INPUT_TYPES: Final = (
    InputType("pyarrow", "Table", lambda rows: rows.table()),
    InputType("pyarrow", "RecordBatchReader", lambda rows: rows.batches()),
    InputType("pandas", "DataFrame", lambda rows: rows.table().to_pandas(), extra="pandas"),
    InputType("polars", "DataFrame", _polars, extra="polars"),
    InputType("polars", "LazyFrame", lambda rows: _polars(rows).lazy(), extra="polars"),
    InputType("duckdb", "DuckDBPyRelation", _duckdb, extra="duckdb", needs_columns=True),
    InputType("pyiceberg.table", "DataScan", lambda planned: planned.scan(), needs_columns=True),
    InputType("pyiceberg.table", "Table", lambda planned: planned.source, needs_columns=True),
)
"""What an input loads as without a JVM. No filter applies to pyiceberg's own Table."""


def input_type_of(annotation: object) -> InputType | None:
    """Return the input type of the annotation, if it is one that loads without a JVM."""
    return next((known for known in INPUT_TYPES if known.is_annotated_by(annotation)), None)


def read(description: CatalogDescription, plan: ReadPlan, input_type: InputType) -> Any:
    """Return the plan's rows as the input type.

    Raises:
        UpstreamMissingError: The table is gone.
        CatalogUnavailableError: The catalog or the store does not answer.
        ConfigurationError: The type's package is not installed.
    """
    table = find_table(description, plan.identifier, snapshot_id=plan.snapshot_id)
    if table is None:
        raise UpstreamMissingError.refusing(
            "read", str(plan.identifier), expected="the table that was there a moment ago", found="none"
        )
    planned = PlannedScan(table, plan)
    with translated_answers(description, action=f"read {plan.identifier} from"):
        return _loaded(input_type, planned, subject=str(plan.identifier))


def no_rows(input_type: InputType, *, subject: str) -> Any:
    """Return the input type without rows and without columns; it must not need columns.

    Raises:
        ConfigurationError: The type's package is not installed.
    """
    return _loaded(input_type, NoRows(), subject=subject)


def _loaded(input_type: InputType, rows: Rows, *, subject: str) -> Any:
    try:
        return input_type.load(rows)
    except ImportError as error:
        raise ConfigurationError.refusing(
            "load",
            subject,
            expected=f"the package of {input_type.path}",
            found=str(error),
            hint=f"install `dagster-iceberg-spark[{input_type.extra}]`." if input_type.extra else None,
        ) from error
