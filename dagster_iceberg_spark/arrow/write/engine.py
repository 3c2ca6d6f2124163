"""Arrow as an engine of the commit protocol: rows in this process, data files by pyarrow, commits by pyiceberg."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import Any, Final, cast

import pyarrow as pa
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.table import ALWAYS_TRUE, Table
from pyiceberg.transforms import parse_transform

from dagster_iceberg_spark.arrow.scan import batches_of, readable_files
from dagster_iceberg_spark.arrow.write.audits import ArrowAudits, refuse_unfit
from dagster_iceberg_spark.arrow.write.files import DataFiles, as_numbers, slim, stored_schema
from dagster_iceberg_spark.arrow.write.fitting import Fitting
from dagster_iceberg_spark.arrow.write.matching import RowFilter
from dagster_iceberg_spark.arrow.write.rows import HeldRows, schema_of, size_of
from dagster_iceberg_spark.arrow.write.upsert import Merging
from dagster_iceberg_spark.catalog.branches import change_branch, change_tags
from dagster_iceberg_spark.catalog.changes import change_table, create_table, pyiceberg_type
from dagster_iceberg_spark.catalog.data_commit import DataChange, commit_data, straddling_files
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.document_commit import table_to_commit_to
from dagster_iceberg_spark.catalog.look import can_commit, translated_answers
from dagster_iceberg_spark.commit.attempts import materialize
from dagster_iceberg_spark.errors import CommitConflictError, DataError, EngineUnfitError, IcebergSparkError
from dagster_iceberg_spark.failure_kinds import FailureKind
from dagster_iceberg_spark.plan.partitions.binding import BoundScope
from dagster_iceberg_spark.plan.publication.staged_rows import StagedRows
from dagster_iceberg_spark.plan.schema.renames import StoredNames
from dagster_iceberg_spark.plan.write.adoption import leaves_merge_alone
from dagster_iceberg_spark.plan.write.arrow_engine import unfit_for_arrow
from dagster_iceberg_spark.plan.write.draft import WriteDraft
from dagster_iceberg_spark.plan.write.replaced_rows import rows_of_partitions
from dagster_iceberg_spark.plan.write.write_plan import Append, AppendAlone, Guard, Merge, WritePlan
from dagster_iceberg_spark.plan.write.write_request import WriteRequest
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.predicate import EVERY_ROW
from dagster_iceberg_spark.table.schema import Schema
from dagster_iceberg_spark.table.snapshot import MAIN_BRANCH, ROW_LINEAGE_VERSION, Commit, RowCounts, TableState
from dagster_iceberg_spark.table.updates import BranchUpdate, CreateBranch, TableUpdate, TagUpdate
from dagster_iceberg_spark.timeouts import REPORT_INTERVAL_SECONDS

_PROPERTIES: Final = {
    "target-file-size-bytes": "write.target-file-size-bytes",
    "compression-codec": "write.parquet.compression-codec",
    "compression-level": "write.parquet.compression-level",
}
"""The table properties that write options stand in for."""
_USES_ORDER: Final = "use-table-distribution-and-ordering"


def commit_rows(
    description: CatalogDescription,
    request: WriteRequest,
    rows: HeldRows,
    *,
    is_case_sensitive: bool,
    carried_bytes: int | None,
) -> Commit:
    """Commit the rows as exactly one snapshot, or adopt an existing one.

    Raises:
        EngineUnfitError: The write needs Spark. Nothing has been changed.
    """
    given = schema_of(rows.schema, is_case_sensitive=is_case_sensitive)
    return materialize(ArrowEngine(description, request, rows, given, carried_bytes), request)


@dataclass(frozen=True, slots=True)
class ArrowEngine:
    """The rows and the catalog.

    Args:
        given: The columns of the rows.
        carried_bytes: How many bytes of rows of other partitions it may write again, or None for any number.
    """

    catalog: CatalogDescription
    request: WriteRequest
    rows: HeldRows
    given: Schema
    carried_bytes: int | None
    errors: tuple[type[Exception], ...] = (IcebergSparkError,)

    def require_writable(self, state: TableState | None) -> None:
        """Accept any table: no session of Spark stages these writes."""

    def require_supported(self, draft: WriteDraft) -> None:
        """Reject what only Spark can write."""
        if not can_commit(self.catalog):
            self._refuse("the catalog is a directory, to which pyiceberg cannot commit")
        self._refuse(unfit_for_arrow(draft))

    def touched(self, draft: WriteDraft, names: StoredNames) -> BoundScope:
        """Return the rows of the partitions that the given rows fall in."""
        fields = draft.partition_columns()
        positions = {field.name: index for index, field in enumerate(names.of_schema(self.given))}
        found = dict[tuple[Any, ...], None]()
        for chunk in self.rows.chunks():
            columns = []
            for field, column in fields if chunk.num_rows else ():
                if column.name not in positions:
                    self._refuse(f"the partition column {field.column!r} is a field of a struct, or not in the rows")
                kind = pyiceberg_type(column.type)
                values = chunk.column(positions[column.name]).cast(schema_to_pyarrow(kind))
                transform = parse_transform(str(field.transform)).pyarrow_transform(kind)
                columns.append(as_numbers(transform(values)))
            if chunk.num_rows and columns:
                names_of = [f"p{index}" for index in range(len(columns))]
                distinct = pa.table(columns, names=names_of).group_by(names_of).aggregate([])
                found |= dict.fromkeys(zip(*(column.to_pylist() for column in distinct.columns), strict=True))
            elif chunk.num_rows:
                found[()] = None
        return rows_of_partitions(fields, found, subject=self.request.subject)

    def prepare(self, plan: WritePlan) -> None:
        """Create the table and apply the plan's changes through pyiceberg."""
        if plan.create is not None:
            create_table(self.catalog, plan.identifier, plan.create)
        if plan.changes:
            self.apply(plan.identifier, plan.changes)
        self.change_branches(plan.identifier, plan.staging)

    def write(self, plan: WritePlan, names: StoredNames) -> RowCounts:
        """Write data files, and commit them as one snapshot. Without a commit, the files are deleted."""
        table = table_to_commit_to(self.catalog, plan.identifier, action="write")
        files = DataFiles(
            table, self._properties(plan, table), is_sorted=plan.write_options.get(_USES_ORDER) != "false"
        )
        writing = _Writing(self.request, plan, table, Fitting(names.of_schema(self.given), stored_schema(table), plan))
        if isinstance(plan.action, Merge):
            return self._merge(plan, plan.action, table, files, writing)
        carried = _CarriedRows(table, plan, self.carried_bytes)
        added = self._write_files(files, chain(writing.chunks(self.rows), carried.chunks()))
        self._commit(plan, files, table, _change(plan, added, table.metadata.default_spec_id, carried))
        return writing.counts()

    def _merge(self, plan: WritePlan, action: Merge, table: Table, files: DataFiles, writing: "_Writing") -> RowCounts:
        head = table.snapshot_by_name(plan.branch)
        read_at = None if head is None else head.snapshot_id
        if action.materialization.reads_changes and read_at != action.base_snapshot_id:
            raise CommitConflictError.to_plan_again(
                "merge into",
                plan.identifier,
                expected=f"snapshot {action.base_snapshot_id}, at which the changes were new",
                found=f"snapshot {read_at}",
            )
        is_case_sensitive, limit = self.given.is_case_sensitive, self.carried_bytes
        merging = Merging(table, plan, action, read_at, is_case_sensitive=is_case_sensitive, limit=limit)
        batch = pa.concat_tables(writing.chunks(self.rows))
        added = self._write_files(files, merging.chunks(batch))
        change = DataChange(
            added,
            table.metadata.default_spec_id,
            rewritten=merging.rewritten,
            read_at=read_at,
            only_upon=(read_at,),
            tolerates=partial(leaves_merge_alone, scope=action.scope, materialization=action.materialization),
        )
        self._commit(plan, files, table, change, merging.properties if added else {})
        return RowCounts(dropped=writing.dropped, unchanged=merging.unchanged)

    def _write_files(self, files: DataFiles, chunks: Iterator[pa.Table]) -> list[DataFile]:
        try:
            with translated_answers(self.catalog, action=f"write the data files of {self.request.identifier} in"):
                return files.write(chunks)
        except BaseException as error:
            files.delete()
            if not isinstance(error, Exception):
                self.request.report(
                    f"Interrupted: the write of {self.request.identifier} is stopped, nothing is committed."
                )
            raise

    def _commit(
        self,
        plan: WritePlan,
        files: DataFiles,
        table: Table,
        change: DataChange,
        properties: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        try:
            commit_data(
                self.catalog,
                plan.identifier,
                plan.branch,
                change,
                {**plan.snapshot_properties, **properties, "engine-name": "pyarrow", "engine-version": pa.__version__},
                table=table,
            )
        except (CommitConflictError, DataError, EngineUnfitError):
            files.delete()
            raise

    def translate(self, error: Exception) -> IcebergSparkError:
        """Return the error, which is the package's own."""
        return cast("IcebergSparkError", error)

    def has_ended(self, error: Exception) -> bool:  # noqa: ARG002
        """Return false: a request that the catalog did not answer may still be made."""
        return False

    def change_branches(self, identifier: TableIdentifier, changes: Sequence[BranchUpdate]) -> None:
        """Create and drop branches in order."""
        for change in changes:
            if not change_branch(self.catalog, identifier, change) and isinstance(change, CreateBranch):
                self._begin_branch(identifier, change)

    def change_tags(self, identifier: TableIdentifier, changes: Sequence[TagUpdate]) -> bool:
        """Set and drop tags. Return false in a directory, to which Arrow does not write."""
        return change_tags(self.catalog, identifier, changes)

    def apply(self, identifier: TableIdentifier, changes: Sequence[TableUpdate]) -> None:
        """Change the table's metadata."""
        for branch in change_table(self.catalog, identifier, changes):
            self._begin_branch(identifier, branch)

    def audits(self, state: TableState | None) -> ArrowAudits:
        """Return the audits, or reject those that are evaluated in SQL."""
        audits, given = self.request.table.options.audits, self.given
        others = () if state is None else (field for field in state.schema if given.field(field.name) is None)
        columns = given.like((*given, *others))
        refuse_unfit(audits, columns, subject=self.request.subject)
        return ArrowAudits(self.catalog, tuple(audits), columns)

    def fast_forward(self, state: TableState, rows: StagedRows) -> bool:
        """Never called: pyiceberg commits to every table that this engine writes."""
        raise NotImplementedError(state, rows)

    def _begin_branch(self, identifier: TableIdentifier, branch: CreateBranch) -> None:
        """Begin a branch at the head of `main`, or with an empty snapshot, as Iceberg's Java library does."""
        table = table_to_commit_to(self.catalog, identifier, action="write")
        main = table.metadata.refs.get(MAIN_BRANCH)
        if main is not None:
            change_branch(self.catalog, identifier, replace(branch, snapshot_id=main.snapshot_id))
            return
        empty = DataChange((), table.metadata.default_spec_id, only_upon=(None,), begins_branch=True)
        commit_data(self.catalog, identifier, branch.name, empty, {}, table=table, retention_days=branch.retention_days)

    def _properties(self, plan: WritePlan, table: Table) -> Mapping[str, str]:
        options = {_PROPERTIES[name]: value for name, value in plan.write_options.items() if name in _PROPERTIES}
        return {**table.metadata.properties, **options}

    def _refuse(self, reason: str | None) -> None:
        if reason is not None:
            raise EngineUnfitError.because(self.request.subject, reason)


def _change(plan: WritePlan, added: Sequence[Any], spec_id: int, carried: "_CarriedRows") -> DataChange:
    match plan.action:
        case Append():
            return DataChange(added, spec_id)
        case AppendAlone(base_snapshot_id):
            return DataChange(added, spec_id, only_upon=(base_snapshot_id,))
        case _:
            return DataChange(added, spec_id, plan.owned, carried.paths, carried.read_at)


class _CarriedRows:
    """The rows of other partitions in files that hold replaced rows too. They are written again."""

    def __init__(self, table: Table, plan: WritePlan, limit: int | None) -> None:
        """Find the files."""
        self._table, self._plan, self._limit = table, plan, limit
        files = straddling_files(table, plan.branch, plan.owned) if plan.carries_over else {}
        self.paths = frozenset(files)
        head = table.snapshot_by_name(plan.branch)
        self.read_at = None if head is None else head.snapshot_id

    def chunks(self) -> Iterator[pa.Table]:
        """Yield the rows, in the table's columns.

        Raises:
            EngineUnfitError: There are more of them than Arrow may hold.
        """
        if not self.paths:
            return
        table, schema = self._table, self._table.schema()
        refuse = partial(EngineUnfitError.because, str(self._plan.identifier))
        if table.metadata.format_version >= ROW_LINEAGE_VERSION:
            raise refuse("files of the replaced rows hold rows of other partitions, whose ids Spark keeps")
        fitting = Fitting.of_stored(table, self._plan)
        owned = RowFilter(self._plan.owned.predicate(), schema)
        scan = table.scan(snapshot_id=self.read_at)
        tasks = [task for task in readable_files(scan.plan_files, refuse) if task.file.file_path in self.paths]
        read = 0
        for batch in batches_of(ArrowScan(table.metadata, table.io, schema, ALWAYS_TRUE), table.io, tasks):
            read += size_of(batch)
            if self._limit is not None and read > self._limit:
                reason = f"files of the replaced rows hold more than {self._limit >> 20} MB of other partitions"
                raise refuse(reason)
            yield owned.others(fitting.fit(slim(pa.Table.from_batches([batch]))))


class _Writing:
    """The rows of a plan on their way to the files: fitted, guarded and counted."""

    def __init__(self, request: WriteRequest, plan: WritePlan, table: Table, fitting: Fitting) -> None:
        """Prepare the filters."""
        schema = table.schema()
        self._request, self._plan, self._fitting = request, plan, fitting
        self._owned = RowFilter(EVERY_ROW if plan.guard is None else plan.guard.owned, schema)
        self._counted = {key: RowFilter(predicate, schema) for key, predicate in plan.counted_partitions}
        self._rows = self.dropped = 0
        self._by_partition = dict.fromkeys(self._counted, 0)
        self._began = self._reported = time.monotonic()

    def chunks(self, rows: HeldRows) -> Iterator[pa.Table]:
        """Yield the rows that are written, in the table's columns."""
        for chunk in rows.chunks():
            fitted = self._fitting.fit(chunk)
            if self._plan.guard is not None:
                fitted = self._guarded(fitted, self._plan.guard)
            self._rows += fitted.num_rows
            for key, rows_of_key in self._counted.items():
                self._by_partition[key] += rows_of_key.matching(fitted).num_rows
            yield fitted
            self._report()

    def counts(self) -> RowCounts:
        """Return the counts that the snapshot's summary does not have."""
        is_counted = (
            self._counted or self._plan.carries_over or (self._plan.guard is not None and self._plan.guard.drops)
        )
        if not is_counted:
            return RowCounts()
        return RowCounts(rows=self._rows, dropped=self.dropped, by_partition=self._by_partition)

    def _guarded(self, rows: pa.Table, guard: Guard) -> pa.Table:
        kept = self._owned.matching(rows)
        if kept.num_rows == rows.num_rows:
            return rows
        if guard.drops:
            self.dropped += rows.num_rows - kept.num_rows
            return kept
        other = self._owned.others(rows).slice(0, 1)
        shown = ", ".join(f"{name}={_shown(other.column(name)[0].as_py())}" for name in guard.columns)
        raise FailureKind.ROW_OUTSIDE_PARTITION.refusal(
            "write", self._request.subject, f"a row with {shown} in the run of {guard.partitions}"
        )

    def _report(self) -> None:
        now = time.monotonic()
        if now - self._reported >= REPORT_INTERVAL_SECONDS:
            self._reported = now
            written = f"{self._rows} rows written after {now - self._began:.0f} s"
            self._request.report(f"Writing {self._request.subject}: {written}.")


def _shown(value: Any) -> str:
    if value is None:
        return "NULL"
    return value.isoformat() if hasattr(value, "isoformat") and hasattr(value, "tzinfo") else str(value)
