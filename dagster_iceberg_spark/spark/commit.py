"""One materialization, from the look at the table to the snapshot that carries its token."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from pyspark.sql import DataFrame
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, stop_after_delay, wait_random_exponential

from dagster_iceberg_spark.catalog.files import added_files, data_files
from dagster_iceberg_spark.catalog.look import look
from dagster_iceberg_spark.errors import (
    CommitConflictError,
    CommitOutcomeUnknownError,
    DataError,
    IcebergSparkError,
    NotAnIcebergTableError,
)
from dagster_iceberg_spark.plan.adoption import TokenCandidate, decide_adoption
from dagster_iceberg_spark.plan.coverage import DataFile, rows_by_partition
from dagster_iceberg_spark.plan.options import RENAMES, SCHEMA_EVOLUTION
from dagster_iceberg_spark.plan.renames import StoredNames
from dagster_iceberg_spark.plan.request import TableRequest
from dagster_iceberg_spark.plan.write import WritePlan, needs_files, plan_finish, plan_write
from dagster_iceberg_spark.spark.columns import by_stored_names, schema_of
from dagster_iceberg_spark.spark.failures import ENGINE_ERRORS, translated
from dagster_iceberg_spark.spark.frames import in_session
from dagster_iceberg_spark.spark.progress import Report, reported_progress
from dagster_iceberg_spark.spark.session import IcebergSession
from dagster_iceberg_spark.spark.tables import apply, prepare, refresh
from dagster_iceberg_spark.spark.writer import RowCounts, write
from dagster_iceberg_spark.table import lineage
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.lineage import Materialization
from dagster_iceberg_spark.table.schema import Schema
from dagster_iceberg_spark.table.scope import PartitionScope
from dagster_iceberg_spark.table.snapshot import Snapshot, TableState

_FIRST_WAIT_SECONDS: Final = 0.1
_LONGEST_WAIT_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class RetryLimits:
    """How often, and how long, a conflict is answered by planning again.

    Args:
        attempts: At most so many attempts, the first included.
        seconds: No new attempt starts after so many seconds.
    """

    attempts: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Publication:
    """What is to be materialized.

    Args:
        request: What the definition wants of the table.
        materialization: The run's scope and what the snapshot says.
        candidates: Tokens that may be in the table already.
        is_recorded: Whether Dagster holds a materialization by that run with that snapshot.
        limits: How conflicts are retried.
        report: Takes a line for the run's log.
    """

    request: TableRequest
    materialization: Materialization
    candidates: Sequence[TokenCandidate]
    is_recorded: Callable[[str, int], bool]
    limits: RetryLimits
    report: Report


@dataclass(frozen=True, slots=True)
class Commit:
    """What one materialization did.

    Args:
        identifier: The table.
        location: The URI of its directory.
        schema: Its columns after the commit.
        snapshot: The snapshot that carries the token.
        counts: What the write counted.
        write_seconds: Seconds from the first step to the snapshot's timestamp.
        commit_seconds: Seconds from the snapshot's timestamp to the engine's return.
        retries: How often it was planned again after a conflict.
        changes: Changes of the table's metadata, in words.
        is_adopted: Whether the snapshot was there already.
        has_created: Whether the table was created.
    """

    identifier: TableIdentifier
    location: str
    schema: Schema
    snapshot: Snapshot
    counts: RowCounts = field(default_factory=RowCounts)
    write_seconds: float = 0.0
    commit_seconds: float = 0.0
    retries: int = 0
    changes: tuple[str, ...] = ()
    is_adopted: bool = False
    has_created: bool = False


def materialize(session: IcebergSession, publication: Publication, frame: DataFrame) -> Commit:
    """Commit the frame as exactly one snapshot, or adopt the one that is there.

    Raises:
        CommitConflictError: Other writers kept committing first.
        CommitOutcomeUnknownError: The commit may or may not have happened.
        ConfigurationError, DataError: The plan or a row was refused; nothing is committed.
    """
    subject = str(publication.request.identifier)
    with in_session(frame, session.spark, subject=subject) as own_frame:
        return _materialize(session, publication, own_frame, subject)


def _materialize(session: IcebergSession, publication: Publication, frame: DataFrame, subject: str) -> Commit:
    shape = replace(schema_of(frame, subject=subject), is_case_sensitive=session.is_case_sensitive)
    attempts = Retrying(
        retry=retry_if_exception_type(CommitConflictError),
        stop=stop_after_attempt(publication.limits.attempts) | stop_after_delay(publication.limits.seconds),
        wait=wait_random_exponential(multiplier=_FIRST_WAIT_SECONDS, max=_LONGEST_WAIT_SECONDS),
        before_sleep=lambda state: publication.report(
            f"Conflict on {subject}, planning again (attempt {state.attempt_number + 1} of "
            f"{publication.limits.attempts}): {state.outcome.exception() if state.outcome else ''}"
        ),
        reraise=True,
    )
    for attempt in attempts:
        with attempt:
            return _attempt(session, publication, frame, shape, retries=attempt.retry_state.attempt_number - 1)
    raise AssertionError  # pragma: no cover - `reraise` leaves the loop


def _attempt(
    session: IcebergSession, publication: Publication, frame: DataFrame, shape: Schema, *, retries: int
) -> Commit:
    request, materialization = publication.request, publication.materialization
    started = time.time()
    state = look(session.catalog, request.identifier)
    if state is not None:
        state = state.compared_like(shape)
        adoption = decide_adoption(
            state,
            publication.candidates,
            materialization,
            branch=request.options.branch,
            disposition=request.options.write_disposition,
            is_recorded=publication.is_recorded,
        )
        if adoption.warning:
            publication.report(adoption.warning)
        if adoption.snapshot is not None:
            planned_on = state.schemas.get(adoption.snapshot.schema_id or 0, Schema(()))
            return _finished(session, publication, shape, state, planned_on, _adopted(state, adoption.snapshot))
    names = StoredNames.of(
        request.options.renames, shape, state.schema if state else None, subject=str(request.identifier)
    )
    stored = request.by_names(names)
    scope = names.of_scope(materialization.scope)
    files = None if state is None else _files(session, stored, scope, state)
    plan = plan_write(stored, replace(materialization, scope=scope), names.of_schema(shape), state, files)
    prepare(session, plan)
    known = frozenset(state.snapshots) if state else frozenset[int]()
    counts = _write(session, publication, plan, by_stored_names(frame, shape, names), known=known)
    finished = time.time()
    commit, after = _committed(session, plan, counts, known, started=started, finished=finished, retries=retries)
    return _finished(session, publication, shape, after, state.schema if state else Schema(()), commit)


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
    session: IcebergSession, request: TableRequest, scope: PartitionScope, state: TableState
) -> Sequence[DataFile] | None:
    base = state.base(request.options.branch)
    if base is None or not needs_files(request, scope, state):
        return None
    columns = {field.name for dimension in scope.dimensions if (field := state.schema.field(dimension.column))}
    return data_files(session.catalog, request.identifier, base.snapshot_id, sorted(columns))


def _write(
    session: IcebergSession, publication: Publication, plan: WritePlan, frame: DataFrame, *, known: frozenset[int]
) -> RowCounts:
    """Run the plan; an answer that got lost is looked up before anything is said of it."""
    if plan.create is None and not plan.changes:
        refresh(session, plan.identifier)
    try:
        with reported_progress(session.spark, publication.report, subject=str(plan.identifier)):
            return write(session, plan, frame)
    except DataError as error:
        raise _with_what_is_left(error, plan) from error.__cause__
    except ENGINE_ERRORS as error:
        failure = translated(error, action="write", subject=str(plan.identifier), redact=session.catalog.redact)
        if isinstance(failure, CommitOutcomeUnknownError):
            if _own_snapshot(look(session.catalog, plan.identifier), plan, known) is not None:
                publication.report(f"The answer to the commit of {plan.identifier} was lost; its snapshot is there.")
                return RowCounts()
            token = plan.snapshot_properties[lineage.COMMIT_TOKEN]
            raise CommitOutcomeUnknownError.refusing(
                "tell the outcome of the commit to",
                str(plan.identifier),
                expected=f"a snapshot with `{lineage.COMMIT_TOKEN}` = {token}",
                found=f"none yet ({failure})",
                hint="look for that token in the table's snapshots once the catalog is back, then run the asset again.",
            ) from error
        if plan.create is not None and isinstance(failure, CommitConflictError):
            _require_created(session, plan)
        raise _with_what_is_left(failure, plan) from error


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


def _with_what_is_left(error: IcebergSparkError, plan: WritePlan) -> IcebergSparkError:
    """Return the error with what the preparation has changed: rows and snapshots are as before."""
    left = ["the table was created and is empty"] if plan.create else []
    left += map(str, plan.changes)
    return type(error)(f"{error} Nothing was committed; what stays: {', '.join(left)}.") if left else error


def _committed(
    session: IcebergSession,
    plan: WritePlan,
    counts: RowCounts,
    known: frozenset[int],
    *,
    started: float,
    finished: float,
    retries: int,
) -> tuple[Commit, TableState]:
    state = look(session.catalog, plan.identifier)
    snapshot = _own_snapshot(state, plan, known)
    if state is None or snapshot is None:
        token = plan.snapshot_properties[lineage.COMMIT_TOKEN]
        raise CommitOutcomeUnknownError.refusing(
            "find the commit to",
            str(plan.identifier),
            expected=f"a snapshot with `{lineage.COMMIT_TOKEN}` = {token}",
            found="none, although the engine reported success",
            hint="another writer may have rolled the table back or replaced it; look at its history.",
        )
    counts = _with_listed_rows(session, plan, snapshot, counts)
    committed = snapshot.committed_at_ms / 1000
    commit = Commit(
        identifier=plan.identifier,
        location=state.location,
        schema=state.schema,
        snapshot=snapshot,
        counts=counts,
        write_seconds=max(0.0, committed - started),
        commit_seconds=max(0.0, finished - committed),
        retries=retries,
        changes=tuple(map(str, plan.changes)),
        has_created=plan.create is not None,
    )
    return commit, state


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


def _own_snapshot(state: TableState | None, plan: WritePlan, known: frozenset[int]) -> Snapshot | None:
    """Return the snapshot that carries our token and was not there before; never simply the current one."""
    if state is None:
        return None
    token = plan.snapshot_properties[lineage.COMMIT_TOKEN]
    return next(
        (
            snapshot
            for snapshot in state.ancestors(plan.branch)
            if snapshot.snapshot_id not in known and snapshot.summary.get(lineage.COMMIT_TOKEN) == token
        ),
        None,
    )
