"""Loading a plan as Arrow, pandas, polars, DuckDB or pyiceberg objects."""

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import DataScan, Table

from dagster_iceberg_spark.arrow.expressions import expression_of
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.look import asked, open_catalog
from dagster_iceberg_spark.errors import ConfigurationError, UpstreamMissingError
from dagster_iceberg_spark.plan.read import ReadPlan


@dataclass(frozen=True, slots=True)
class PlannedScan:
    """A scan, and the order of the columns it was asked for: a scan itself keeps the table's.

    Args:
        scan: pyiceberg's scan.
        columns: The columns in order; None: all, in the table's order.
    """

    scan: DataScan
    columns: tuple[str, ...] | None

    def table(self) -> pa.Table:
        """Return all rows."""
        table = self.scan.to_arrow()
        return table if self.columns is None else table.select(list(self.columns))

    def batches(self) -> pa.RecordBatchReader:
        """Return the rows batch by batch, as files are read."""
        reader = self.scan.to_arrow_batch_reader()
        if self.columns is None:
            return reader
        columns = list(self.columns)
        schema = pa.schema([reader.schema.field(name) for name in columns])
        return pa.RecordBatchReader.from_batches(schema, (batch.select(columns) for batch in reader))


@dataclass(frozen=True, slots=True)
class InputType:
    """A Python type that an input can be annotated with.

    Args:
        module: The module that users import it from.
        name: Its name there.
        load: Makes it of a scan.
        extra: The extra of this package that installs it, if it is not there anyway.
    """

    module: str
    name: str
    load: Callable[[PlannedScan], Any]
    extra: str | None = None

    @property
    def path(self) -> str:
        """The dotted name."""
        return f"{self.module}.{self.name}"

    def is_annotated_by(self, annotation: object) -> bool:
        """Say whether the annotation is this type, without importing its module."""
        module = sys.modules.get(self.module)
        return module is not None and getattr(module, self.name, None) is annotation


def _polars(planned: PlannedScan) -> Any:
    return importlib.import_module("polars").from_arrow(planned.table())


def _duckdb(planned: PlannedScan) -> Any:
    return importlib.import_module("duckdb").from_arrow(planned.table())


INPUT_TYPES: Final = (
    InputType("pyarrow", "Table", PlannedScan.table),
    InputType("pyarrow", "RecordBatchReader", PlannedScan.batches),
    InputType("pandas", "DataFrame", lambda planned: planned.table().to_pandas(), extra="pandas"),
    InputType("polars", "DataFrame", _polars, extra="polars"),
    InputType("polars", "LazyFrame", lambda planned: _polars(planned).lazy(), extra="polars"),
    InputType("duckdb", "DuckDBPyRelation", _duckdb, extra="duckdb"),
    InputType("pyiceberg.table", "DataScan", lambda planned: planned.scan),
)
"""What an input loads as without a JVM, besides pyiceberg's own Table, which no filter applies to."""


def input_type_of(annotation: object) -> InputType | None:
    """Return the input type of the annotation, if it is one that loads without a JVM."""
    return next((known for known in INPUT_TYPES if known.is_annotated_by(annotation)), None)


def is_pyiceberg_table(annotation: object) -> bool:
    """Say whether the annotation asks for pyiceberg's table."""
    return annotation is Table


def read(description: CatalogDescription, plan: ReadPlan, input_type: InputType) -> Any:
    """Return the plan's rows as the input type.

    Raises:
        UpstreamMissingError: The table is gone.
        CatalogUnavailableError: The catalog or the store does not answer.
        ConfigurationError: The type's package is not installed.
    """

    def load() -> Any:
        table = _load(description, plan)
        scan = table.scan(
            row_filter=expression_of(plan.predicate),
            selected_fields=("*",) if plan.is_whole_row else plan.columns,
            snapshot_id=plan.snapshot_id,
        )
        return input_type.load(PlannedScan(scan, None if plan.is_whole_row else plan.columns))

    try:
        return asked(description, load, action=f"read {plan.identifier} from")
    except ImportError as error:
        raise ConfigurationError.refusing(
            "load",
            str(plan.identifier),
            expected=f"the package of {input_type.path}",
            found=str(error),
            hint=f"install `dagster-iceberg-spark[{input_type.extra}]`." if input_type.extra else None,
        ) from error


def pyiceberg_table(description: CatalogDescription, plan: ReadPlan) -> Table:
    """Return pyiceberg's own table, freshly loaded.

    Raises:
        UpstreamMissingError: The table is gone.
    """
    return asked(description, lambda: _load(description, plan), action=f"load {plan.identifier} from")


def _load(description: CatalogDescription, plan: ReadPlan) -> Table:
    try:
        return open_catalog(description).load_table(plan.identifier.parts)
    except NoSuchTableError as error:
        raise UpstreamMissingError.refusing(
            "read", str(plan.identifier), expected="the table that was there a moment ago", found="none"
        ) from error
