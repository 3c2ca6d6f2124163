"""Scanning the rows of a plan with pyiceberg."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final

import pyarrow as pa
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.table import DataScan, FileScanTask, Table
from pyiceberg.table.metadata import TableMetadata

from dagster_iceberg_spark.arrow.expressions import expression_of
from dagster_iceberg_spark.arrow.field_ids import skip_columns_without_ids
from dagster_iceberg_spark.arrow.nested import rebuild_lists_and_maps
from dagster_iceberg_spark.arrow.streaming import batches_of
from dagster_iceberg_spark.arrow.widened import keep_constants
from dagster_iceberg_spark.catalog.failures import first_line, rule_for
from dagster_iceberg_spark.catalog.files import describe_file, files_added_by
from dagster_iceberg_spark.errors import InvestigationError
from dagster_iceberg_spark.plan.binding import Intervals
from dagster_iceberg_spark.plan.coverage import DataFile, hull, within_file
from dagster_iceberg_spark.plan.read import ReadPlan
from dagster_iceberg_spark.table.predicate import NO_ROW, Predicate, all_of

rebuild_lists_and_maps()
skip_columns_without_ids()
keep_constants()

_UNNAMED: Final = "Could not open Parquet input source '<Buffer>': "
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
        if self.plan.limit is not None:
            return self.batches().read_all()  # of no more files than it takes
        parts = [scan.to_table(tasks) for scan, tasks in self._pieces()]
        empty = self._projected.empty_table()
        return self._ordered(pa.concat_tables([empty, *parts], promote_options="permissive"))

    def batches(self) -> pa.RecordBatchReader:
        """Return the rows batch by batch, as files are read."""
        schema, projected, columns = self.schema, self._projected, list(self.plan.columns)
        pieces = chain.from_iterable(batches_of(scan, self.source.io, tasks) for scan, tasks in self._pieces())
        batches = _first((batch.cast(projected).select(columns) for batch in pieces), self.plan.limit)
        return pa.RecordBatchReader.from_batches(schema, batches)

    @property
    def schema(self) -> pa.Schema:
        """The columns, in their order."""
        projected = self._projected
        return pa.schema([projected.field(name) for name in self.plan.columns])

    def narrowed(self, columns: Sequence[str] | None, rows: Predicate, limit: int | None) -> "PlannedScan":
        """Return the scan of only those columns, rows, and so many of them.

        Args:
            columns: Some of the plan's; None: all.
            rows: What the rows have to be besides.
            limit: How many at most; None: all.
        """
        limits = [number for number in (self.plan.limit, limit) if number is not None]
        plan = replace(
            self.plan,
            columns=self.plan.columns if columns is None else tuple(columns) or self.plan.columns[:1],
            is_whole_row=self.plan.is_whole_row and columns is None,
            row_filter=all_of([self.plan.row_filter, rows]),
            limit=min(limits, default=None),
        )
        return replace(self, plan=plan)

    def scan(self, predicate: Predicate | None = None) -> DataScan:
        """Return pyiceberg's scan.

        Args:
            predicate: The rows; None: the plan's.
        """
        rows = self.plan.predicate if predicate is None else predicate
        scan = self.source.scan(
            # Of no snapshot, pyiceberg would scan the newest.
            row_filter=expression_of(NO_ROW if self.plan.snapshot_id is None else rows),
            selected_fields=("*",) if self.plan.is_whole_row else self.plan.columns,
            snapshot_id=self.plan.snapshot_id,
            limit=self.plan.limit,
        )
        # A catalog that plans scans itself would not know of our columns.
        if self.plan.is_as_stored and self.plan.is_current:
            return scan
        return scan.update(table_metadata=self._metadata, catalog=None)

    @property
    def _metadata(self) -> TableMetadata:
        """The table's metadata, in which the snapshot has the plan's columns, and so has the table.

        pyiceberg reads the snapshot's own columns, and filters by those that the table has now.
        """
        metadata, schema_id = self.source.metadata, self.plan.schema.schema_id
        snapshots = [
            item.model_copy(update={"schema_id": schema_id}) if item.snapshot_id == self.plan.snapshot_id else item
            for item in metadata.snapshots
        ]
        return metadata.model_copy(update={"snapshots": snapshots, "current_schema_id": schema_id})

    @property
    def _has_many_terms(self) -> bool:
        boxes = self.plan.scope.boxes
        intervals = sum(len(item.intervals) for box in boxes for item in box if isinstance(item, Intervals))
        return len(boxes) + intervals > MAXIMUM_TERMS

    @property
    def _projected(self) -> pa.Schema:
        return schema_to_pyarrow(self.scan().projection(), include_field_ids=False)

    def _described(self, task: FileScanTask) -> DataFile:
        return describe_file(task.file, self.source, self.plan.scope.columns, schema_id=self.plan.schema.schema_id)

    def _ordered(self, table: pa.Table) -> pa.Table:
        return table if self.plan.is_whole_row else table.select(list(self.plan.columns))

    def _pieces(self) -> Iterator[tuple[ArrowScan, list[FileScanTask]]]:
        """Yield files that need the same filter, each with only those terms that its own rows may meet."""
        if not self._has_many_terms:
            whole = self.scan()
            yield self._arrow_scan(whole, self.plan.predicate), self._files()
            return
        scope = self.plan.scope
        coarse = self.scan(all_of([hull(scope).predicate(), self.plan.row_filter]))
        by_filter: dict[Predicate, list[FileScanTask]] = {}
        for task in self._added() if self._reads_added else coarse.plan_files():
            left = within_file(scope, self._described(task))
            if left.boxes:
                wanted = all_of([left.predicate(), self.plan.row_filter])
                by_filter.setdefault(wanted, []).append(task)
        for predicate, tasks in by_filter.items():
            yield self._arrow_scan(coarse, predicate), tasks

    @property
    def _reads_added(self) -> bool:
        return self.plan.changes is not None and self.plan.changes.scan != "rows"

    def _added(self) -> Iterator[FileScanTask]:
        """Yield the files that the snapshots have added, none of which has removed rows."""
        for snapshot_id in self.plan.changes.snapshots if self.plan.changes else ():
            for file in files_added_by(self.source, snapshot_id):
                task = FileScanTask(data_file=file)
                if within_file(self.plan.scope, self._described(task)).boxes:
                    yield task

    def _files(self) -> list[FileScanTask]:
        if self._reads_added:
            return list(self._added())
        try:
            return list(self.scan().plan_files())
        except (TypeError, OverflowError):
            # pyiceberg compares partitions of NULL with values, and counts beyond its calendar: rows are told apart
            # by the whole filter in any case, files then by the partitions that are read alone.
            return list(self.scan(self.plan.scope.predicate()).plan_files())

    def _arrow_scan(self, scan: DataScan, predicate: Predicate) -> ArrowScan:
        rows = NO_ROW if self.plan.snapshot_id is None else predicate
        metadata, expression = scan.table_metadata, expression_of(rows)
        return _FileByFile(metadata, self.source.io, scan.projection(), expression, case_sensitive=True)


class _FileByFile(ArrowScan):
    """pyiceberg's reader, whose errors say which file is missing or damaged: it opens them without their names."""

    def _record_batches_from_scan_tasks_and_deletes(self, tasks: Iterable[FileScanTask], *rest: Any) -> Any:
        for task in tasks:
            try:
                yield from super()._record_batches_from_scan_tasks_and_deletes([task], *rest)
            except (pa.ArrowException, OSError) as error:
                rule = rule_for(error)
                if rule is None or rule.error is not InvestigationError:
                    raise
                path, found = task.file.file_path, first_line(error).replace(_UNNAMED, "").rstrip(".")
                raise InvestigationError.refusing(
                    "read", path, expected=rule.expected, found=found, hint=rule.hint
                ) from error


def _first(batches: Iterator[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    """Yield batches until there are so many rows."""
    if limit is None:
        yield from batches
        return
    left = limit
    while left > 0 and (batch := next(batches, None)) is not None:
        yield batch.slice(0, left)
        left -= batch.num_rows
