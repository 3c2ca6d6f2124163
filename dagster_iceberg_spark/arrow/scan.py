"""Scans the rows of a plan with pyiceberg.

pyiceberg's reader submits all files to its threads at once and keeps the results. If the consumer is slower than the
disk, the whole table is in memory (https://github.com/apache/iceberg-python/issues/3036, closed as stale). Here, files
are read on demand.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import ArrowScan, _read_all_delete_files, schema_to_pyarrow
from pyiceberg.manifest import FileFormat
from pyiceberg.table import DataScan, FileScanTask, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.utils.concurrent import ExecutorFactory

from dagster_iceberg_spark.catalog.description import first_line
from dagster_iceberg_spark.catalog.expressions import expression_of
from dagster_iceberg_spark.catalog.failures import kind_of
from dagster_iceberg_spark.catalog.files import description_of, files_added_by
from dagster_iceberg_spark.errors import ConfigurationError, InvestigationError
from dagster_iceberg_spark.plan.partitions.binding import BoundScope, Intervals
from dagster_iceberg_spark.plan.read.read_plan import ReadPlan, partition_files
from dagster_iceberg_spark.plan.write.overwrite_filter import DataFile, hull, within_file
from dagster_iceberg_spark.pyiceberg_fixes import lists_and_maps, missing_field_ids, narrowed_literals, null_partitions
from dagster_iceberg_spark.pyiceberg_fixes.calendar_edges import plan_files
from dagster_iceberg_spark.pyiceberg_fixes.lists_and_maps import with_parts
from dagster_iceberg_spark.table.predicate import NO_ROW, Predicate, all_of

_ENDS = (8, 12, 16, 20, 32)
_DIGITS = 32


def with_texts(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with its uuids as texts, including those inside other columns."""
    schema = texts_in(batch.schema)
    if schema.equals(batch.schema):
        return batch
    return pa.record_batch([_texts(column) for column in batch.columns], schema=schema)


def texts_in(schema: pa.Schema) -> pa.Schema:
    """Return the schema with uuids as texts."""
    return pa.schema([_text_field(field) for field in schema], metadata=schema.metadata)


def _text_field(field: pa.Field) -> pa.Field:
    return field.with_type(_text_type(field.type))


def _text_type(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.UuidType):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([_text_field(kind.field(index)) for index in range(kind.num_fields)])
    if pa.types.is_large_list(kind):
        return pa.large_list(_text_field(kind.value_field))
    if pa.types.is_list(kind):
        return pa.list_(_text_field(kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(_text_field(kind.key_field), _text_field(kind.item_field))
    return kind


def _texts(array: pa.Array) -> pa.Array:
    kind = _text_type(array.type)
    if kind.equals(array.type):
        return array
    if isinstance(array, pa.ExtensionArray):
        return _texts_of(array.storage)
    if isinstance(array, pa.StructArray):
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays([_texts(part) for part in array.flatten()], fields=list(kind), mask=mask)
    parts = [array.keys, array.items] if isinstance(array, pa.MapArray) else [array.values]
    return with_parts(array, [_texts(part) for part in parts], kind)


def _texts_of(values: pa.Array) -> pa.Array:
    """Return binary values as texts, in the format of `uuid.UUID`."""
    known = values.drop_null()
    digits = b"".join(known.to_pylist()).hex().encode()
    offsets = pa.array(range(0, len(digits) + 1, _DIGITS), pa.int32())
    whole = pa.StringArray.from_buffers(len(known), offsets.buffers()[1], pa.py_buffer(digits))
    parts = [pc.utf8_slice_codeunits(whole, start, end) for start, end in zip((0, *_ENDS), _ENDS, strict=False)]
    texts = pc.binary_join_element_wise(*parts, "-")
    places = pc.subtract(pc.cumulative_sum(pc.cast(values.is_valid(), pa.int32())), 1)
    return texts.take(pc.if_else(values.is_valid(), places, None))


lists_and_maps.install()
missing_field_ids.install()
narrowed_literals.install()
null_partitions.install()

_UNNAMED: Final = "Could not open Parquet input source '<Buffer>': "
MAXIMUM_TERMS: Final = 16
"""pyiceberg evaluates each term of a filter for each file. Of more terms, only those that a file may need are kept."""


@dataclass(frozen=True, slots=True)
class PlannedScan:
    """A scan of the plan's rows, with the columns in the plan's order. pyiceberg's scan keeps the table's order.

    Args:
        files: The files that may have rows of the plan, or None before they are planned.
        on_planned: Called with the seconds that planning the files has taken.
    """

    source: Table
    plan: ReadPlan
    files: tuple[FileScanTask, ...] | None = None
    on_planned: Callable[[float], None] | None = None

    def table(self) -> pa.Table:
        """Return all rows."""
        if self.plan.limit is not None:
            return self.batches().read_all()  # from no more files than necessary
        batches = (batch for scan, tasks in self._pieces() for batch in scan.to_record_batches(tasks))
        parts = [pa.Table.from_batches([batch]) for batch in batches]  # their list types may differ
        empty = pa.Table.from_batches([], self._projection)
        table = pa.concat_tables([empty, *parts], promote_options="permissive")
        return table if self.plan.is_whole_row else table.select(list(self.plan.columns))

    def batches(self) -> pa.RecordBatchReader:
        """Return the rows batch by batch, while files are read."""
        schema, projected, columns = self.schema, self._projection, list(self.plan.columns)
        pieces = chain.from_iterable(batches_of(scan, self.source.io, tasks) for scan, tasks in self._pieces())
        batches = _first((batch.cast(projected).select(columns) for batch in pieces), self.plan.limit)
        return pa.RecordBatchReader.from_batches(schema, batches)

    def by_file(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the rows of each file, with the path of the file."""
        scan = self._arrow_scan(self.plan.predicate)
        for task in self.planned_files():
            for batch in scan.to_record_batches([task]):
                yield task.file.file_path, batch

    def planned_files(self) -> list[FileScanTask]:
        """Return the files that may have rows of the plan."""
        if self.files is not None:
            return list(self.files)
        began = time.monotonic()
        files = readable_files(self._planned_files, self._refusal)
        if self.on_planned is not None:
            self.on_planned(time.monotonic() - began)
        return files

    def _planned_files(self) -> list[FileScanTask]:
        if self.plan.changes is not None and self.plan.changes.scan != "rows":
            return list(self._added_files())
        scope = (hull(self.plan.scope) if self._has_many_terms else self.plan.scope).predicate()
        # The row filter is evaluated for each row in any case.
        narrow = self.scan(all_of([scope, self.plan.row_filter]))
        return plan_files(narrow, lambda: self.scan(scope))

    def _refusal(self, reason: str) -> ConfigurationError:
        return ConfigurationError.refusing(
            "load",
            str(self.plan.identifier),
            expected="a table that pyarrow can read",
            found=f"that {reason}",
            hint="load it as a pyspark.sql.DataFrame, or rewrite its data files in Parquet, which applies deletes.",
        )

    def files_with_bounds(self, tasks: Iterable[FileScanTask]) -> Iterator[tuple[FileScanTask, DataFile]]:
        """Yield each file with the bounds of its rows."""
        description = description_of(self.source, self.plan.scope.columns, schema_id=self.plan.schema.schema_id)
        return ((task, description(task.file)) for task in tasks)

    @property
    def schema(self) -> pa.Schema:
        """The columns in the plan's order."""
        return pa.schema(map(self._projection.field, self.plan.columns))

    def narrow(self, columns: Sequence[str] | None, rows: Predicate, limit: int | None) -> "PlannedScan":
        """Return the scan with fewer columns or rows."""
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
        """Return pyiceberg's scan of the rows, by default the plan's."""
        rows = self.plan.predicate if predicate is None else predicate
        scan = self.source.scan(
            # Without a snapshot, pyiceberg would scan the newest.
            row_filter=expression_of(NO_ROW if self.plan.snapshot_id is None else rows),
            selected_fields=("*",) if self.plan.is_whole_row else self.plan.columns,
            snapshot_id=self.plan.snapshot_id,
            limit=self.plan.limit,
        )
        # A catalog with server-side scan planning would not know these columns.
        if self.plan.is_as_stored and self.plan.is_current:
            return scan
        return scan.update(table_metadata=self._metadata, catalog=None)

    @property
    def _metadata(self) -> TableMetadata:
        """The table's metadata with the plan's columns as the schema of the snapshot and of the table.

        pyiceberg reads with the schema of the snapshot, and filters with the current schema of the table.
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
    def _projection(self) -> pa.Schema:
        return texts_in(schema_to_pyarrow(self.scan(NO_ROW).projection(), include_field_ids=False))

    def _pieces(self) -> Iterator[tuple[ArrowScan, list[FileScanTask]]]:
        """Yield groups of files with the same filter, which has only the terms that their rows may meet."""
        if not self._has_many_terms:
            yield self._arrow_scan(self.plan.predicate), self.planned_files()
            return
        scope = self.plan.scope
        by_filter: dict[Predicate, list[FileScanTask]] = {}
        for task, file in self.files_with_bounds(self.planned_files()):
            left = within_file(scope, file)
            if left.boxes:
                by_filter.setdefault(all_of([left.predicate(), self.plan.row_filter]), []).append(task)
        for predicate, tasks in by_filter.items():
            yield self._arrow_scan(predicate), tasks

    def _added_files(self) -> Iterator[FileScanTask]:
        """Yield the files that the snapshots added. None of the snapshots has removed rows."""
        snapshots = self.plan.changes.snapshots if self.plan.changes else ()
        added = chain.from_iterable(files_added_by(self.source, snapshot_id) for snapshot_id in snapshots)
        for task, file in self.files_with_bounds(FileScanTask(data_file=file) for file in added):
            if within_file(self.plan.scope, file).boxes:
                yield task

    def _arrow_scan(self, predicate: Predicate) -> ArrowScan:
        scan = self.scan(NO_ROW)
        rows = expression_of(NO_ROW if self.plan.snapshot_id is None else predicate)
        return _FileByFile(scan.table_metadata, self.source.io, scan.projection(), rows, case_sensitive=True)


class _FileByFile(ArrowScan):
    """pyiceberg's reader with the path of the missing or damaged file in its errors, which pyiceberg leaves out.

    Uuids are texts, as in Spark.
    """

    def _record_batches_from_scan_tasks_and_deletes(self, tasks: Iterable[FileScanTask], *rest: Any) -> Any:
        for task in tasks:
            try:
                yield from map(with_texts, super()._record_batches_from_scan_tasks_and_deletes([task], *rest))
            except (pa.ArrowException, OSError) as error:
                kind = kind_of(error)
                if kind is None or kind.error is not InvestigationError:
                    raise
                path, found = task.file.file_path, first_line(error).replace(_UNNAMED, "").rstrip(".")
                raise kind.refusal("read", path, found) from error


def planned_scans(
    source: Table, plans: Mapping[str, ReadPlan], on_planned: Callable[[float], None] | None = None
) -> dict[str, PlannedScan]:
    """Return the scan of each plan. They differ only in their partitions, and their files are planned together."""
    boxes = tuple(dict.fromkeys(box for plan in plans.values() for box in plan.scope.boxes))
    whole = PlannedScan(source, replace(next(iter(plans.values())), scope=BoundScope(boxes)), on_planned=on_planned)
    tasks = whole.planned_files()
    found = partition_files(
        [plan.scope for plan in plans.values()], [file for _, file in whole.files_with_bounds(tasks)]
    )
    return {
        name: PlannedScan(source, plan, tuple(tasks[position] for position in positions))
        for (name, plan), positions in zip(plans.items(), found, strict=True)
    }


def readable_files(
    plan: Callable[[], Iterable[FileScanTask]], refuse: Callable[[str], Exception]
) -> list[FileScanTask]:
    """Return the files of a scan, or raise the error that `refuse` builds from the reason why they cannot be read."""
    try:
        files = list(plan())
    except ValueError as error:
        if "equality deletes" not in str(error):
            raise
        reason = "its rows are deleted by equality, which pyiceberg cannot evaluate"
        raise refuse(reason) from error
    formats = {FileFormat(task.file.file_format) for task in files} - {FileFormat.PARQUET, FileFormat.ORC}
    if formats:
        reason = f"its data files are in the format {formats.pop().value.title()}, which pyarrow does not read"
        raise refuse(reason)
    return files


def _first(batches: Iterator[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    """Yield batches up to a number of rows."""
    if limit is None:
        yield from batches
        return
    left = limit
    while left > 0 and (batch := next(batches, None)) is not None:
        yield batch.slice(0, left)
        left -= batch.num_rows


READ_AHEAD_BYTES: Final = 16 * 1024 * 1024
"""Files of up to this total size on disk are read in parallel, so many small files take as long as one."""
READ_AHEAD_DECODED_BYTES: Final = 64 * 1024 * 1024
"""They are also limited to this estimated size in memory: a few kilobytes on disk may decode to much more."""
_BYTES_OF_UNKNOWN_ROW: Final = 512


def batches_of(scan: ArrowScan, io: FileIO, tasks: Iterable[FileScanTask]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the files in their order: large files batch by batch, small files several at a time."""
    left, bytes_of_row = deque(tasks), 0
    while left:
        for batch in _read(scan, io, _next_group(left, bytes_of_row or _BYTES_OF_UNKNOWN_ROW)):
            bytes_of_row = max(bytes_of_row, batch.nbytes // max(batch.num_rows, 1))
            yield batch


def _read(scan: ArrowScan, io: FileIO, group: list[FileScanTask]) -> Iterator[pa.RecordBatch]:
    if len(group) > 1:
        yield from scan.to_record_batches(group)
    else:
        deletes = _read_all_delete_files(io, group)
        yield from scan._record_batches_from_scan_tasks_and_deletes(group, deletes)  # noqa: SLF001 - none is public


def batches_by_file(scan: ArrowScan, io: FileIO, tasks: Sequence[FileScanTask]) -> Iterator[list[pa.RecordBatch]]:
    """Yield the rows of each file, several files at a time."""
    deletes = _read_all_delete_files(io, tasks)

    def read(task: FileScanTask) -> list[pa.RecordBatch]:
        return list(scan._record_batches_from_scan_tasks_and_deletes([task], deletes))  # noqa: SLF001 - as in `_read`

    yield from ExecutorFactory.get_or_create().map(read, tasks)


def _next_group(left: deque[FileScanTask], bytes_of_row: int) -> list[FileScanTask]:
    """Take the files to read next: one, and more within the limits."""
    group: list[FileScanTask] = []
    stored = decoded = 0
    while left:
        stored += left[0].file.file_size_in_bytes
        decoded += left[0].file.record_count * bytes_of_row
        if group and (stored > READ_AHEAD_BYTES or decoded > READ_AHEAD_DECODED_BYTES):
            break
        group.append(left.popleft())
    return group
