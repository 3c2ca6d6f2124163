"""Spark as an engine of the commit protocol: the DataFrame of one materialization in one session."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

from dagster_iceberg_spark.catalog import branches
from dagster_iceberg_spark.catalog.column_defaults import require_defaults
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.look import look
from dagster_iceberg_spark.commit.attempts import materialize
from dagster_iceberg_spark.errors import CatalogUnavailableError, CommitConflictError, IcebergSparkError
from dagster_iceberg_spark.plan.partitions.binding import BoundScope
from dagster_iceberg_spark.plan.publication.staged_rows import StagedRows
from dagster_iceberg_spark.plan.schema.renames import StoredNames
from dagster_iceberg_spark.plan.write.definition import WAP_ENABLED, WAP_SETTINGS, is_switched_on, refuse_staging
from dagster_iceberg_spark.plan.write.draft import WriteDraft
from dagster_iceberg_spark.plan.write.write_plan import WritePlan
from dagster_iceberg_spark.plan.write.write_request import WriteRequest, operation_tag
from dagster_iceberg_spark.spark import sql, tables
from dagster_iceberg_spark.spark.columns import as_planned, schema_of
from dagster_iceberg_spark.spark.failures import ENGINE_ERRORS, is_unanswered, translate
from dagster_iceberg_spark.spark.read.frames import in_session
from dagster_iceberg_spark.spark.session.runtime import is_connect
from dagster_iceberg_spark.spark.session.session import IcebergSession
from dagster_iceberg_spark.spark.tables import change_branches, prepare, refresh
from dagster_iceberg_spark.spark.versions import version_of
from dagster_iceberg_spark.spark.write.audits import SparkAudits, evaluable
from dagster_iceberg_spark.spark.write.earlier_operations import stop_earlier
from dagster_iceberg_spark.spark.write.execution import (
    TaggedWork,
    compute_once,
    reported_progress,
    run_stoppable,
    touched_partitions,
)
from dagster_iceberg_spark.spark.write.writer import write
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.schema import Schema
from dagster_iceberg_spark.table.snapshot import Commit, RowCounts, TableState
from dagster_iceberg_spark.table.updates import BranchUpdate, DropBranch, TableUpdate, TagUpdate


def commit_frame(session: IcebergSession, request: WriteRequest, frame: DataFrame) -> Commit:
    """Commit the DataFrame as exactly one snapshot, or adopt an existing one."""
    with in_session(frame, session.spark, subject=request.subject) as own_frame:
        given = replace(schema_of(own_frame, subject=request.subject), is_case_sensitive=session.is_case_sensitive)
        if is_connect(session.spark):
            stop_earlier(session.spark, request.earlier_attempts(), report=request.report, subject=request.subject)
        return materialize(SparkEngine(session, request, own_frame, given), request)


@dataclass(slots=True)
class SparkEngine:
    """The session with the DataFrame.

    Args:
        given: The columns of the DataFrame.
    """

    session: IcebergSession
    request: WriteRequest
    frame: DataFrame
    given: Schema
    errors: tuple[type[Exception], ...] = ENGINE_ERRORS
    _is_computed: bool = False
    _work: TaggedWork | None = None

    @property
    def catalog(self) -> CatalogDescription:
        """The catalog of the session."""
        return self.session.catalog

    def require_writable(self, state: TableState | None) -> None:
        """Reject a session that stages its writes."""
        if is_switched_on(WAP_ENABLED, self.request.table.options, state):
            staging = {name: self.session.spark.conf.get(name, None) for name in WAP_SETTINGS}
            refuse_staging(staging, subject=self.request.subject)

    def require_supported(self, draft: WriteDraft) -> None:
        """Reject what the session's version of Spark cannot do."""
        options = self.request.table.options
        require_defaults(self.catalog, draft.changes, subject=self.request.subject)
        version_of(self.session.spark).require_supported(
            self.session.spark,
            self.request.subject,
            merges=options.merges,
            mixes_specs=options.write_disposition == "overwrite_partitions" and not draft.has_one_spec,
        )

    def touched(self, draft: WriteDraft, names: StoredNames) -> BoundScope:
        """Return the rows of the partitions that the DataFrame's rows fall in, which are computed once."""
        partition_columns = draft.partition_columns()
        if not self._is_computed:
            self.frame, self._is_computed = compute_once(self.session, self.request, self.frame), True
        planned = as_planned(self.frame, self.given, names, draft.checked)
        return touched_partitions(self.session, self.request, partition_columns, planned)

    def prepare(self, plan: WritePlan) -> None:
        """Run the plan's statements."""
        prepare(self.session, plan)

    def write(self, plan: WritePlan, names: StoredNames) -> RowCounts:
        """Write the DataFrame. An interruption stops the engine."""
        session, request = self.session, self.request
        frame = as_planned(self.frame, self.given, names, plan.checked)
        if plan.create is None and not plan.changes:
            refresh(session, plan.identifier)
        work = self._work = TaggedWork(operation_tag(request.materialization.commit_token), request.announce)
        with reported_progress(session.spark, request.report, subject=request.subject):
            return run_stoppable(
                session.spark,
                work,
                lambda: write(session, plan, frame, work),
                report=request.report,
                subject=request.subject,
            )

    def translate(self, error: Exception) -> IcebergSparkError:
        """Return Spark's error as the package's."""
        return translate(error, action="write", subject=self.request.subject, redact=self.catalog.redact)

    def has_ended(self, error: Exception) -> bool:
        """Stop this attempt's operations on a server that did not answer, and return whether they have ended."""
        if self._work is None or not is_unanswered(error):
            return False
        attempts, request = self._work.attempts, self.request
        try:
            stop_earlier(self.session.spark, attempts, report=request.report, subject=request.subject)
        except CatalogUnavailableError:
            return False
        return True

    def change_branches(self, identifier: TableIdentifier, changes: Sequence[BranchUpdate]) -> None:
        """Create and drop branches in order."""
        change_branches(self.session, identifier, changes)

    def change_tags(self, identifier: TableIdentifier, changes: Sequence[TagUpdate]) -> bool:
        """Set and drop tags."""
        if not branches.change_tags(self.catalog, identifier, changes):
            tables.change_tags(self.session, identifier, changes)
        return True

    def apply(self, identifier: TableIdentifier, changes: Sequence[TableUpdate]) -> None:
        """Change the table's metadata."""
        tables.apply(self.session, identifier, changes)

    def audits(self, state: TableState | None) -> SparkAudits:
        """Return the audits, which Spark has analysed."""
        expressions = evaluable(self.session, self.request, self.frame, self.given, state)
        return SparkAudits(self.session, self.request, expressions)

    def fast_forward(self, state: TableState, rows: StagedRows) -> bool:
        """Move the target by Iceberg's procedure."""
        return fast_forward(self.session, state, rows)


def fast_forward(session: IcebergSession, state: TableState, rows: StagedRows) -> bool:
    """Move the target by Iceberg's procedure, which verifies that the target's head is an ancestor.

    Return false if the target has moved.

    It moves to the head of the staged branch, which `choose_publication` has verified a moment ago.
    """
    staging = rows.staging
    refresh(session, state.identifier)
    catalog, identifier = session.catalog, state.identifier
    try:
        session.spark.sql(sql.fast_forward(catalog.name, identifier, branch=staging.target, to=staging.branch))
    except ENGINE_ERRORS as error:
        failure = translate(error, action="publish", subject=str(identifier), redact=catalog.redact)
        after = look(catalog, identifier)
        head = None if after is None else after.refs.get(staging.target)
        has_moved = head != state.refs.get(staging.target)
        if not has_moved and not isinstance(failure, CommitConflictError):  # which a commit to any branch causes
            raise failure from error
        if head != rows.snapshot.snapshot_id:
            return False
    change_branches(session, state.identifier, [DropBranch(staging.branch)])
    return True
