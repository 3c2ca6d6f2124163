"""Scanning the rows of a plan with pyiceberg."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final

import pyarrow as pa
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.table import DataScan, FileScanTask, Table

from dagster_iceberg_spark.arrow.expressions import expression_of
from dagster_iceberg_spark.catalog.files import describe_file
from dagster_iceberg_spark.plan.binding import Intervals
from dagster_iceberg_spark.plan.coverage import hull, within_file
from dagster_iceberg_spark.plan.read import ReadPlan
from dagster_iceberg_spark.table.predicate import Predicate

MAXIMUM_TERMS: Final = 16
"""pyiceberg evaluates each term of a filter for each file; of more terms only those that a file may need are kept."""


@dataclass(frozen=True, slots=True)
class PlannedScan:
    """A scan of the plan's rows, with its columns in the order that they were asked for: a scan keeps the table's.

    Args:
        source: The table that is scanned.
        plan: What to read.
    """

    source: Table
    plan: ReadPlan

    def table(self) -> pa.Table:
        """Return all rows."""
        if not self._has_many_terms:
            return self._ordered(self.scan().to_arrow())
        parts = [scan.to_table(tasks) for scan, tasks in self._pieces()]
        empty = self._schema.empty_table()
        return self._ordered(pa.concat_tables([empty, *parts], promote_options="permissive"))

    def batches(self) -> pa.RecordBatchReader:
        """Return the rows batch by batch, as files are read."""
        if not self._has_many_terms:
            reader = self.scan().to_arrow_batch_reader()
            schema, batches = reader.schema, iter(reader)
        else:
            schema = self._schema
            pieces = chain.from_iterable(scan.to_record_batches(tasks) for scan, tasks in self._pieces())
            batches = (batch.cast(schema) for batch in pieces)
        if self.plan.stored_names:
            return pa.RecordBatchReader.from_batches(self._wanted_schema, map(self._renamed, batches))
        if self.plan.is_whole_row:
            return pa.RecordBatchReader.from_batches(schema, batches)
        columns = list(self.plan.columns)
        ordered = pa.schema([schema.field(name) for name in columns])
        return pa.RecordBatchReader.from_batches(ordered, (batch.select(columns) for batch in batches))

    def scan(self, predicate: Predicate | None = None) -> DataScan:
        """Return pyiceberg's scan.

        Args:
            predicate: The rows; None: the plan's.
        """
        return self.source.scan(
            row_filter=expression_of(self.plan.predicate if predicate is None else predicate),
            selected_fields=self._selected,
            snapshot_id=self.plan.snapshot_id,
        )

    @property
    def _has_many_terms(self) -> bool:
        boxes = self.plan.scope.boxes
        intervals = sum(len(item.intervals) for box in boxes for item in box if isinstance(item, Intervals))
        return len(boxes) + intervals > MAXIMUM_TERMS

    @property
    def _schema(self) -> pa.Schema:
        return schema_to_pyarrow(self.scan().projection(), include_field_ids=False)

    @property
    def _selected(self) -> tuple[str, ...]:
        plan = self.plan
        if not plan.stored_names:
            return ("*",) if plan.is_whole_row else plan.columns
        return tuple(name for column in plan.columns if (name := plan.stored_names[column]) is not None)

    def _ordered(self, table: pa.Table) -> pa.Table:
        plan = self.plan
        if not plan.stored_names:
            return table if plan.is_whole_row else table.select(list(plan.columns))
        return pa.Table.from_batches([self._renamed(batch) for batch in table.to_batches()], self._wanted_schema)

    def _renamed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the snapshot's rows under the table's columns, which have changed since."""
        wanted = self._wanted_schema
        columns = [
            pa.nulls(batch.num_rows, field.type)
            if (stored := self.plan.stored_names[field.name]) is None
            else batch.column(stored)
            if pa.types.is_nested(field.type)
            else batch.column(stored).cast(field.type)
            for field in wanted
        ]
        return pa.RecordBatch.from_arrays(columns, names=wanted.names)

    @property
    def _wanted_schema(self) -> pa.Schema:
        """The columns as the table has them now; structs, lists and maps as the snapshot has them."""
        now, stored = schema_to_pyarrow(self.source.schema(), include_field_ids=False), self._schema
        return pa.schema(
            [_nested_as(now.field(name), stored, self.plan.stored_names[name]) for name in self.plan.columns]
        )

    def _pieces(self) -> Iterator[tuple[ArrowScan, list[FileScanTask]]]:
        """Yield files that need the same filter, each with only those terms that its own rows may meet."""
        scope = self.plan.scope
        coarse = self.scan(hull(scope).predicate())
        by_filter: dict[Predicate, list[FileScanTask]] = {}
        for task in coarse.plan_files():
            left = within_file(scope, describe_file(task.file, self.source, scope.columns))
            if left.boxes:
                by_filter.setdefault(left.predicate(), []).append(task)
        for predicate, tasks in by_filter.items():
            yield (
                ArrowScan(
                    self.source.metadata,
                    self.source.io,
                    coarse.projection(),
                    expression_of(predicate),
                    case_sensitive=True,
                ),
                tasks,
            )


def _nested_as(field: pa.Field, stored: pa.Schema, name: str | None) -> pa.Field:
    is_stored = name is not None and pa.types.is_nested(field.type)
    return field.with_type(stored.field(name).type) if is_stored else field
