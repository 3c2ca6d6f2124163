"""One materialization, from the look at the table to the snapshot that carries its token."""

import datetime as dt
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from pyspark.sql import DataFrame
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    stop_after_attempt,
    stop_after_delay,
    wait_random_exponential,
)

from dagster_iceberg_spark.arrow.expressions import expression_of
from dagster_iceberg_spark.catalog.damage import bring_back
from dagster_iceberg_spark.catalog.files import added_files, data_files
from dagster_iceberg_spark.catalog.look import look
from dagster_iceberg_spark.errors import (
    CatalogUnavailableError,
    ChangesConsumedError,
    CommitConflictError,
    CommitOutcomeUnknownError,
    DataError,
    IcebergSparkError,
    NotAnIcebergTableError,
    RetryableError,
)
from dagster_iceberg_spark.plan.adoption import (
    decide_adoption,
    displaced_by,
    has_read_changes,
    operation_tag,
    refuse_twins,
    searched_since_ms,
)
from dagster_iceberg_spark.plan.binding import BoundScope
from dagster_iceberg_spark.plan.definition import WAP_ENABLED, WAP_SETTINGS, is_switched_on, refuse_staging
from dagster_iceberg_spark.plan.incremental import refuse_consumed
from dagster_iceberg_spark.plan.options import RENAMES, SCHEMA_EVOLUTION
from dagster_iceberg_spark.plan.overwrite_filter import DataFile, rows_by_partition
from dagster_iceberg_spark.plan.renames import StoredNames
from dagster_iceberg_spark.plan.request import TableRequest
from dagster_iceberg_spark.plan.write import (
    WritePlan,
    columns_that_need_files,
    plan_finish,
    plan_write,
    replaced_by,
    rows_told_by_partition,
)
from dagster_iceberg_spark.spark import sql
from dagster_iceberg_spark.spark.columns import as_planned, is_connect, schema_of
from dagster_iceberg_spark.spark.counts import RowCounts
from dagster_iceberg_spark.spark.engine_failure import ENGINE_ERRORS
from dagster_iceberg_spark.spark.execution import TaggedWork, run_stoppable
from dagster_iceberg_spark.spark.failures import translated
from dagster_iceberg_spark.spark.fence import stop_earlier
from dagster_iceberg_spark.spark.frames import in_session
from dagster_iceberg_spark.spark.outcome import (
    has_committed,
    is_intact,
    own_snapshots,
    resolve_lost_answer,
    seen_before,
)
from dagster_iceberg_spark.spark.progress import reported_progress
from dagster_iceberg_spark.spark.publication import Commit, Publication, RetryLimits
from dagster_iceberg_spark.spark.session import IcebergSession
from dagster_iceberg_spark.spark.tables import apply, prepare, refresh
from dagster_iceberg_spark.spark.touched import computed, touched_partitions
from dagster_iceberg_spark.spark.writer import write
from dagster_iceberg_spark.table import lineage
from dagster_iceberg_spark.table.schema import Schema
from dagster_iceberg_spark.table.scope import PartitionScope
from dagster_iceberg_spark.table.snapshot import Snapshot, TableState

_FIRST_WAIT_SECONDS: Final = 0.1
_LONGEST_WAIT_SECONDS: Final = 5.0
_NAMED_FILES: Final = 20
_CLOCK_TOLERANCE: Final = dt.timedelta(seconds=2)


@dataclass(slots=True)
class _Course:
    """What the attempts of one `materialize` share.

    Args:
        started: When the first one began, in seconds of the monotonic clock.
        known: The snapshots that were there before it; None: nobody has looked yet.
        retries: How many attempts there were before this one.
        retry_seconds: Seconds that they took.
        computed: The frame, where its rows had to be computed before they are written.
        changes: What they have changed in the table's metadata, in words.
        has_created: Whether one of them created the table.
    """

    started: float
    known: frozenset[int] | None = None
    retries: int = 0
    retry_seconds: float = 0.0
    computed: DataFrame | None = None
    changes: list[str] = field(default_factory=list)
    has_created: bool = False

    def begin_attempt(self, number: int) -> None:
        self.retries = number - 1
        self.retry_seconds = time.monotonic() - self.started if self.retries else 0.0

    def has_prepared(self, plan: WritePlan) -> None:
        self.changes += [change for change in map(str, plan.changes) if change not in self.changes]
        self.has_created = self.has_created or plan.create is not None


def materialize(session: IcebergSession, publication: Publication, frame: DataFrame) -> Commit:
    """Commit the frame as exactly one snapshot, or adopt the one that is there.

    Raises:
        CommitConflictError: Other writers kept committing first.
        ChangesConsumedError: The frame is made of changes that another materialization has taken.
        CatalogUnavailableError: The catalog, the store or the server kept failing; nothing is committed, as far as can
            be told: the next attempt looks.
        CommitOutcomeUnknownError: The commit may or may not have happened.
        ConfigurationError, DataError: The plan or a row was refused; nothing is committed.
    """
    subject = str(publication.request.identifier)
    with in_session(frame, session.spark, subject=subject) as own_frame:
        return _materialize(session, publication, own_frame, subject)


def _materialize(session: IcebergSession, publication: Publication, frame: DataFrame, subject: str) -> Commit:
    shape = replace(schema_of(frame, subject=subject), is_case_sensitive=session.is_case_sensitive)
    if is_connect(session.spark):
        stop_earlier(session.spark, publication.earlier_attempts(), report=publication.report, subject=subject)
    course = _Course(time.monotonic())
    attempts = Retrying(
        retry=retry_if_exception(_helps_to_plan_again),
        stop=stop_after_attempt(publication.limits.attempts) | stop_after_delay(publication.limits.seconds),
        wait=wait_random_exponential(multiplier=_FIRST_WAIT_SECONDS, max=_LONGEST_WAIT_SECONDS),
        before_sleep=lambda state: publication.report(_retry_line(state, publication.limits, subject)),
        reraise=True,
    )
    for attempt in attempts:
        with attempt:
            course.begin_attempt(attempt.retry_state.attempt_number)
            return _attempt(session, publication, frame, shape, course)
    raise AssertionError  # pragma: no cover - `reraise` leaves the loop


def _helps_to_plan_again(error: BaseException) -> bool:
    """Say whether the same frame may be written by another attempt; of other inputs it has to be made anew."""
    return isinstance(error, RetryableError) and not isinstance(error, ChangesConsumedError)


def _retry_line(state: RetryCallState, limits: RetryLimits, subject: str) -> str:
    error = state.outcome.exception() if state.outcome else None
    what = "Conflict on" if isinstance(error, CommitConflictError) else "Trouble with"
    return f"{what} {subject}, planning again (attempt {state.attempt_number + 1} of {limits.attempts}): {error}"


def _attempt(
    session: IcebergSession, publication: Publication, frame: DataFrame, shape: Schema, course: _Course
) -> Commit:
    request, materialization = publication.request, publication.materialization
    started = time.time()
    state = look(session.catalog, request.identifier, back_to=_back_to(publication, course.known))
    own = own_snapshots(state, publication, course.known)
    if course.known is None:
        course.known = frozenset(state.snapshots) if state else frozenset[int]()
    if state is not None:
        state = state.compared_like(shape)
        if own and is_intact(session, publication, state, own[0]):
            commit = _commit_of(state, own[0], started=started, finished=started, course=course)
            return _finished(session, publication, shape, state, _columns_of(state, own[0]), commit)
        if own:
            return _attempt(session, publication, frame, shape, course)
        adoption = decide_adoption(
            state,
            publication.candidates,
            materialization,
            branch=request.options.branch,
            disposition=request.options.write_disposition,
            record_of=publication.record_of,
        )
        if adoption.warning:
            publication.report(adoption.warning)
        if adoption.snapshot is not None:
            if not is_intact(session, publication, state, adoption.snapshot):
                return _attempt(session, publication, frame, shape, course)
            adopted = _adopted(state, adoption.snapshot)
            return _finished(session, publication, shape, state, _columns_of(state, adoption.snapshot), adopted)
    refuse_consumed(
        state,
        materialization,
        request.options,
        is_pending=partial(has_read_changes, candidates=publication.candidates),
        subject=str(request.identifier),
    )
    if is_switched_on(WAP_ENABLED, request.options, state):
        staging = {name: session.spark.conf.get(name, None) for name in WAP_SETTINGS}
        refuse_staging(staging, subject=str(request.identifier))
    names = StoredNames.of(
        request.options.renames, shape, state.schema if state else None, subject=str(request.identifier)
    )
    stored = request.by_names(names)
    scope = names.of_scope(materialization.scope)
    touched, given = None, names.of_schema(shape)
    if request.options.write_disposition == "overwrite_partitions":
        # What is refused is refused before anything is computed.
        checked = plan_write(stored, replace(materialization, scope=scope), given, state).checked
        told_by = replaced_by(stored, scope, given, state)
        course.computed = course.computed or computed(session, publication, frame)
        frame = course.computed
        touched = touched_partitions(session, publication, told_by, as_planned(frame, shape, names, checked))
    files = None if state is None else _files(session, stored, scope, given, state, touched)
    plan = plan_write(stored, replace(materialization, scope=scope), given, state, files, touched)
    prepare(session, plan)
    course.has_prepared(plan)
    counts = _write(session, publication, plan, as_planned(frame, shape, names, plan.checked), course)
    finished = time.time()
    commit, after = _committed(session, publication, plan, counts, course, started=started, finished=finished)
    return _finished(session, publication, shape, after, state.schema if state else Schema(()), commit)


def _back_to(publication: Publication, known: frozenset[int] | None) -> Callable[[Snapshot], bool] | None:
    """Say which snapshot the history has to go back to, so that no append of these rows is overlooked.

    What replaces or merges rows may do so again.
    """
    since_ms = searched_since_ms(publication.candidates)
    if since_ms is not None and publication.request.options.write_disposition == "append":
        return lambda snapshot: snapshot.committed_at_ms < since_ms
    return None if known is None else seen_before(known)


def _columns_of(state: TableState, snapshot: Snapshot) -> Schema:
    """Return the columns that the snapshot was planned on, as far as it tells."""
    return state.schemas.get(snapshot.schema_id or 0, Schema(()))


def _finished(
    session: IcebergSession,
    publication: Publication,
    shape: Schema,
    state: TableState,
    planned_on: Schema,
    commit: Commit,
) -> Commit:
    """Make the changes that waited for the data; where that fails the next run makes them, for the data is safe."""
    request = publication.request
    try:
        changes = plan_finish(request, shape, state, planned_on)
        if not changes:
            return commit
        apply(session, request.identifier, changes)
        after = look(session.catalog, request.identifier)
    except IcebergSparkError as error:
        publication.report(
            f"The rows of {request.identifier} are committed, but its columns could not be changed as "
            f"`{SCHEMA_EVOLUTION}` and `{RENAMES}` ask; the next run tries again. {error}"
        )
        return commit
    done = tuple(map(str, changes))
    return replace(commit, schema=after.schema if after else commit.schema, changes=(*commit.changes, *done))


def _files(
    session: IcebergSession,
    request: TableRequest,
    scope: PartitionScope,
    given: Schema,
    state: TableState,
    touched: BoundScope | None,
) -> Sequence[DataFile] | None:
    base, columns = state.base(request.options.branch), columns_that_need_files(request, scope, given, state, touched)
    if base is None or not columns:
        return None
    files = data_files(session.catalog, request.identifier, base.snapshot_id, columns)
    rows = None if touched is not None else rows_told_by_partition(request, scope, given, state, files)
    if rows is None:
        return files
    found = data_files(session.catalog, request.identifier, base.snapshot_id, (), rows=expression_of(rows))
    paths = {file.path for file in found}
    return tuple(replace(file, may_be_owned=file.path in paths) for file in files)


def _write(
    session: IcebergSession, publication: Publication, plan: WritePlan, frame: DataFrame, course: _Course
) -> RowCounts:
    """Run the plan; an answer that got lost is looked up before anything is said of it."""
    if plan.create is None and not plan.changes:
        refresh(session, plan.identifier)
    subject, known = str(plan.identifier), course.known or frozenset()
    began = dt.datetime.now(dt.timezone.utc)
    work = TaggedWork(operation_tag(publication.materialization.commit_token), publication.announce)
    try:
        with reported_progress(session.spark, publication.report, subject=subject):
            return run_stoppable(
                session.spark,
                work,
                lambda: write(session, plan, frame, work),
                report=publication.report,
                subject=subject,
            )
    except DataError as error:
        _name_leftovers(session, publication, began)
        raise _with_what_is_left(error, plan, course) from error.__cause__
    except ENGINE_ERRORS as error:
        failure = translated(error, action="write", subject=subject, redact=session.catalog.redact)
        if isinstance(failure, CommitOutcomeUnknownError):
            resolve_lost_answer(session, publication, work, known, error=error, failure=failure)
            return RowCounts()
        if not isinstance(failure, DataError):  # which ends a write before it commits
            try:
                if has_committed(session, publication, known):
                    return RowCounts()
            except CatalogUnavailableError:
                raise failure from error
        if not isinstance(failure, CommitConflictError):  # after which Iceberg deletes them itself
            _name_leftovers(session, publication, began)
        if plan.create is not None and isinstance(failure, CommitConflictError):
            _require_created(session, plan)
        raise _with_what_is_left(failure, plan, course) from error


def _name_leftovers(session: IcebergSession, publication: Publication, began: dt.datetime) -> None:
    """Name the data files that a failed write may have left; what cannot be listed is no second error."""
    from dagster_iceberg_spark.catalog.leftovers import leftovers

    identifier = publication.request.identifier
    try:
        paths = leftovers(session.catalog, identifier, began - _CLOCK_TOLERANCE)
    except IcebergSparkError:
        return
    if paths:
        publication.report(
            f"{len(paths)} data file(s) of {identifier} are younger than the failed write and of no snapshot: "
            f"{', '.join(paths[:_NAMED_FILES])}{', ...' if len(paths) > _NAMED_FILES else ''}. They cost room and harm "
            f"nothing; `{sql.remove_orphans(session.catalog.name, identifier)}` removes them when they are three days "
            "old."
        )


def _require_created(session: IcebergSession, plan: WritePlan) -> None:
    """Raise where the name is taken by something that lets no table be created and is none, such as a view.

    Raises:
        NotAnIcebergTableError: There is no table after its creation.
    """
    if look(session.catalog, plan.identifier) is None:
        raise NotAnIcebergTableError.refusing(
            "write",
            str(plan.identifier),
            expected="a free name, or an Iceberg table",
            found="something else of that name, such as a view",
            hint="choose another name with `iceberg/table`.",
        )


def _with_what_is_left(error: IcebergSparkError, plan: WritePlan, course: _Course) -> IcebergSparkError:
    """Return the error with what the preparation has changed: rows and snapshots are as before."""
    left = ["the table was created and is empty"] if plan.create else []
    left += course.changes
    return type(error)(f"{error} Nothing was committed; what stays: {', '.join(left)}.") if left else error


def _committed(
    session: IcebergSession,
    publication: Publication,
    plan: WritePlan,
    counts: RowCounts,
    course: _Course,
    *,
    started: float,
    finished: float,
) -> tuple[Commit, TableState]:
    known = course.known or frozenset()
    state = look(session.catalog, plan.identifier, back_to=seen_before(known))
    own = own_snapshots(state, publication, course.known)
    if state is None or not own:
        token = plan.snapshot_properties[lineage.COMMIT_TOKEN]
        raise CommitOutcomeUnknownError.refusing(
            "find the commit to",
            str(plan.identifier),
            expected=f"a snapshot with `{lineage.COMMIT_TOKEN}` = {token}",
            found="none, although the engine reported success",
            hint="another writer may have rolled the table back or replaced it; look at its history.",
        )
    branch = publication.request.options.branch
    displaced = displaced_by(state, own[0], known, branch=branch)
    if displaced:
        bring_back(session.catalog, state, own[0], displaced, branch=branch)
        publication.report(
            f"Iceberg had taken snapshot {displaced[0].snapshot_id} of another writer out of the history of "
            f"{state.identifier}: it is current again."
        )
    twins = refuse_twins(state.identifier, own, disposition=publication.request.options.write_disposition)
    if twins is not None:
        publication.report(twins)
    counts = _with_listed_rows(session, plan, own[0], counts)
    commit = _commit_of(state, own[0], started=started, finished=finished, course=course)
    return replace(commit, counts=counts), state


def _commit_of(state: TableState, snapshot: Snapshot, *, started: float, finished: float, course: _Course) -> Commit:
    committed = snapshot.committed_at_ms / 1000
    return Commit(
        identifier=state.identifier,
        location=state.location,
        schema=state.schema,
        snapshot=snapshot,
        write_seconds=max(0.0, committed - started),
        commit_seconds=max(0.0, finished - committed),
        retries=course.retries,
        retry_seconds=course.retry_seconds,
        changes=tuple(course.changes),
        has_created=course.has_created,
    )


def _with_listed_rows(session: IcebergSession, plan: WritePlan, snapshot: Snapshot, counts: RowCounts) -> RowCounts:
    """Add the rows of each partition, where the metadata of the new files tells them."""
    if not plan.listed_partitions or plan.carries_over:
        return counts
    columns = {column for _, scope in plan.listed_partitions for column in scope.columns}
    files = added_files(session.catalog, plan.identifier, snapshot.snapshot_id, sorted(columns))
    listed = rows_by_partition(plan.listed_partitions, files)
    if listed is None:
        return counts
    return RowCounts(rows=sum(listed.values()), dropped=counts.dropped, by_partition=listed)


def _adopted(state: TableState, snapshot: Snapshot) -> Commit:
    return Commit(
        identifier=state.identifier, location=state.location, schema=state.schema, snapshot=snapshot, is_adopted=True
    )
