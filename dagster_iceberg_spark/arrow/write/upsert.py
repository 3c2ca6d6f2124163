"""Merges a batch with the stored rows of its keys: a file in which a row changes is read and written again."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial, reduce
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.table import ALWAYS_TRUE, FileScanTask, Table

from dagster_iceberg_spark.arrow.scan import batches_by_file, readable_files
from dagster_iceberg_spark.arrow.write.files import slim
from dagster_iceberg_spark.arrow.write.fitting import Fitting
from dagster_iceberg_spark.arrow.write.matching import RowFilter
from dagster_iceberg_spark.catalog.document import document_of
from dagster_iceberg_spark.catalog.expressions import expression_of
from dagster_iceberg_spark.errors import EngineUnfitError
from dagster_iceberg_spark.plan.write.merging import MAXIMUM_LISTED_KEYS, key_error
from dagster_iceberg_spark.plan.write.write_plan import Merge, WritePlan
from dagster_iceberg_spark.pyiceberg_fixes.calendar_edges import plan_files
from dagster_iceberg_spark.table.identifier import free_name
from dagster_iceberg_spark.table.lineage import COUNTED_ROWS
from dagster_iceberg_spark.table.predicate import Comparison, In, Predicate, all_of
from dagster_iceberg_spark.table.schema import parse_schema

_Places: TypeAlias = NDArray[np.int64]
"""For each row of a table, the place of its key in the batch, or -1."""
_Flags: TypeAlias = NDArray[np.bool_]
_EXAMPLES: Final = 3


class Merging:
    """The batch of a merge on its way to the files.

    Attributes:
        rewritten: The paths of the files that are written again.
        unchanged: The number of rows of the batch that change nothing.
    """

    def __init__(
        self,
        table: Table,
        plan: WritePlan,
        action: Merge,
        read_at: int | None,
        *,
        is_case_sensitive: bool,
        limit: int | None,
    ) -> None:
        """Prepare the merge with the rows of the snapshot `read_at`, the head of a branch of the table, or None.

        `limit` is how many bytes the files may have that may have keys of the batch.
        """
        self._table, self._plan, self._action, self._read_at, self._limit = table, plan, action, read_at, limit
        self._columns = replace(parse_schema(document_of(table.schema())), is_case_sensitive=is_case_sensitive)
        self._fitting = Fitting.of_stored(table, plan)
        self._keys = list(map(self._columns.exact, action.keys))
        is_insert = action.rules.strategy == "insert_only"
        updated = () if is_insert else map(self._columns.exact, action.updated)
        self._updates = [name for name in updated if name not in self._keys]
        self.rewritten = frozenset[str]()
        self.unchanged = self._inserted = self._updated = 0

    @property
    def properties(self) -> dict[str, str]:
        """The row counts, for the summary of the snapshot."""
        counts = {"inserted": self._inserted, "updated": self._updated}
        return {COUNTED_ROWS.format(name): str(number) for name, number in counts.items()}

    def chunks(self, batch: pa.Table) -> Iterator[pa.Table]:
        """Yield the rows to write: all rows of the files in which a row changes, and the rows with new keys.

        Args:
            batch: The rows of the batch, in the table's columns.

        Raises:
            MergeKeyError: A key is NULL, or has several rows in the batch.
            EngineUnfitError: The files that may have keys of the batch are too large, or cannot be read.
        """
        self._check(batch)
        is_met, is_changed = np.zeros(batch.num_rows, bool), np.zeros(batch.num_rows, bool)
        for task, places in self._matches(batch):
            is_met[places[places >= 0]] = True
            if not self._updates or not (places >= 0).any():
                continue
            rows, are_changed = self._merged(self._stored(task), batch, places)
            if are_changed.any():
                is_changed[places[are_changed]] = True
                self._updated += int(are_changed.sum())
                self.rewritten |= {task.file.file_path}
                yield rows
        self._inserted = int((~is_met).sum())
        self.unchanged = int((is_met & ~is_changed).sum())
        if self._inserted:
            yield batch.filter(pa.array(~is_met))

    def _check(self, batch: pa.Table) -> None:
        """Reject keys that are NULL or have several rows."""
        counted = batch.select(self._keys).group_by(self._keys).aggregate([([], "count_all")])
        is_bad = pc.greater(counted.column("count_all"), 1)
        if self._action.rules.null_keys == "error":
            is_bad = reduce(pc.or_, (pc.is_null(counted.column(name)) for name in self._keys), is_bad)
        bad = counted.filter(is_bad).slice(0, _EXAMPLES)
        if bad.num_rows:
            shown = list(zip(*(_texts(bad.column(name)) for name in self._keys), strict=True))
            counts = bad.column("count_all").to_pylist()
            raise key_error(str(self._plan.identifier), self._action.keys, self._action.rules, shown, counts)

    def _matches(self, batch: pa.Table) -> Iterator[tuple[FileScanTask, _Places]]:
        """Yield each file that may have keys of the batch, with the places of its rows."""
        tasks = self._tasks(batch)
        columns = self._table.schema().select(*self._keys, *self._plan.owned.columns)
        parts = list(self._read(tasks, columns))
        if not parts:
            return
        rows, number = pa.concat_tables(parts), free_name("number", self._table.schema().column_names)
        rows = rows.append_column(number, pa.array(np.arange(rows.num_rows)))
        owned = RowFilter(self._action.scope, columns).matching(rows)
        places = np.full(rows.num_rows, -1)
        places[owned.column(number).to_numpy()] = _places_of(owned.select(self._keys), batch.select(self._keys))
        yield from zip(tasks, np.split(places, np.cumsum([part.num_rows for part in parts])[:-1]), strict=True)

    def _tasks(self, batch: pa.Table) -> list[FileScanTask]:
        """Return the files that may have keys of the batch."""
        if self._read_at is None or not batch.num_rows:
            return []
        refuse = partial(EngineUnfitError.because, str(self._plan.identifier))
        wider = self._table.scan(snapshot_id=self._read_at)
        scan = wider.filter(expression_of(all_of([self._action.scope, *self._near(batch)])))
        tasks = readable_files(lambda: plan_files(scan, lambda: wider), refuse)
        if self._limit is not None and sum(task.file.file_size_in_bytes for task in tasks) > self._limit:
            raise refuse(f"the files that may have keys of the batch have more than {self._limit >> 20} MB")
        return tasks

    def _near(self, batch: pa.Table) -> Iterator[Predicate]:
        """Yield conditions that hold for every row of the table with a key of the batch."""
        for name in self._keys:
            values = batch.column(name)
            if values.null_count or not (pa.types.is_integer(values.type) or pa.types.is_string(values.type)):
                continue
            with suppress(UnicodeDecodeError):  # of a text that Python does not have
                if batch.num_rows <= MAXIMUM_LISTED_KEYS:
                    yield In(name, tuple(values.unique().to_pylist()))
                else:
                    ends = pc.min_max(values).as_py()
                    yield from (Comparison(name, ">=", ends["min"]), Comparison(name, "<=", ends["max"]))

    def _stored(self, task: FileScanTask) -> pa.Table:
        """Return the rows of a file, in the table's columns."""
        return self._fitting.fit(next(self._read([task], self._table.schema())))

    def _read(self, tasks: Sequence[FileScanTask], columns: IcebergSchema) -> Iterator[pa.Table]:
        """Yield the rows of each file."""
        scan = ArrowScan(self._table.metadata, self._table.io, columns, ALWAYS_TRUE)
        for batches in batches_by_file(scan, self._table.io, tasks):
            yield slim(pa.Table.from_batches(batches, None if batches else schema_to_pyarrow(columns)))

    def _merged(self, stored: pa.Table, batch: pa.Table, places: _Places) -> tuple[pa.Table, _Flags]:
        """Return the stored rows with the values of the batch, and which of them have changed."""
        is_met = places >= 0
        taken = np.where(is_met, stored.num_rows + places, np.arange(stored.num_rows))
        are_changed = np.zeros(stored.num_rows, bool)
        for name in self._updates:
            position = stored.schema.get_field_index(name)
            before = stored.column(position)
            after = pa.chunked_array([*before.chunks, *batch.column(name).chunks], before.type).take(pa.array(taken))
            are_changed[is_met] |= _differ(after.filter(pa.array(is_met)), before.filter(pa.array(is_met)))
            stored = stored.set_column(position, stored.schema.field(position), after)
        return stored, are_changed


def _texts(values: pa.ChunkedArray) -> list[Any]:
    """Return values for a message, also those that Python does not have, such as the year 0."""
    if not (pa.types.is_string(values.type) or pa.types.is_binary(values.type)):
        return list(values.cast(pa.string()).to_pylist())
    given = values.cast(pa.binary()).to_pylist()
    return [None if value is None else value.decode(errors="replace") for value in given]


def _places_of(rows: pa.Table, batch: pa.Table) -> _Places:
    """Return the place of each row's key in the batch. NULL equals NULL."""
    codes = np.zeros(batch.num_rows + rows.num_rows, np.int64)
    for ours, theirs in zip(batch.columns, rows.columns, strict=True):
        values: Any = pa.chunked_array([*ours.chunks, *theirs.chunks], ours.type).combine_chunks()
        encoded = values.dictionary_encode(null_encoding="encode")
        codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy()
        codes = np.unique(codes, return_inverse=True)[1]  # as small as possible, so that no product overflows
    found = pc.index_in(pa.array(codes[batch.num_rows :]), value_set=pa.array(codes[: batch.num_rows]))
    return np.asarray(found.fill_null(-1), np.int64)


def _differ(after: pa.ChunkedArray, before: pa.ChunkedArray) -> _Flags:
    """Return which values differ. As in Spark, NULL equals NULL, NaN equals NaN, and 0.0 equals -0.0."""
    if pa.types.is_nested(after.type):
        try:
            pairs = list(zip(after.to_pylist(), before.to_pylist(), strict=True))
        except (OverflowError, ValueError):  # of a value that Python does not have
            return np.ones(len(after), bool)
        return np.array([_plain(new, after.type) != _plain(old, after.type) for new, old in pairs], bool)
    tests = [pc.is_null, pc.is_nan] if pa.types.is_floating(after.type) else [pc.is_null]
    are_same = pc.equal(after, before).fill_null(False)  # noqa: FBT003
    for test in tests:
        both = pc.and_(test(after), test(before)).fill_null(False)  # noqa: FBT003
        are_same = pc.or_(are_same, both)
    return ~np.asarray(are_same, bool)


def _plain(value: Any, kind: pa.DataType) -> Any:
    """Return a value that equals those with the same entries: the entries of a map have no order."""
    if value is None or not pa.types.is_nested(kind):
        return value
    if pa.types.is_struct(kind):
        return [_plain(value[part.name], part.type) for part in kind]
    if pa.types.is_map(kind):
        return sorted(([_plain(key, kind.key_type), _plain(item, kind.item_type)] for key, item in value), key=repr)
    return [_plain(item, kind.value_type) for item in value]
