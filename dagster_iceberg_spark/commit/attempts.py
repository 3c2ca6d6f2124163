"""One materialization: load the table, adopt an earlier snapshot or plan and write, and return the commit."""

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice

import tenacity

from dagster_iceberg_spark import errors
from dagster_iceberg_spark.catalog.damage import bring_back
from dagster_iceberg_spark.catalog.expressions import expression_of
from dagster_iceberg_spark.catalog.files import added_files, data_files
from dagster_iceberg_spark.catalog.look import look
from dagster_iceberg_spark.commit import outcome
from dagster_iceberg_spark.commit.engine import Engine
from dagster_iceberg_spark.commit.staged_write import StagedWrite
from dagster_iceberg_spark.commit.waiting import claimed
from dagster_iceberg_spark.plan.options.output_options import RENAMES, SCHEMA_EVOLUTION
from dagster_iceberg_spark.plan.partitions.binding import BoundScope
from dagster_iceberg_spark.plan.publication.staged_rows import OvertakenError
from dagster_iceberg_spark.plan.read.history import NEWEST
from dagster_iceberg_spark.plan.read.incremental import refuse_consumed, refuse_second
from dagster_iceberg_spark.plan.schema.renames import StoredNames
from dagster_iceberg_spark.plan.write import adoption
from dagster_iceberg_spark.plan.write.definition import refuse_other_columns
from dagster_iceberg_spark.plan.write.draft import WriteDraft, draft_write, plan_finish
from dagster_iceberg_spark.plan.write.overwrite_filter import DataFile, rows_by_partition
from dagster_iceberg_spark.plan.write.placement import taken_name
from dagster_iceberg_spark.plan.write.write_plan import WritePlan
from dagster_iceberg_spark.plan.write.write_request import WriteRequest
from dagster_iceberg_spark.table import lineage
from dagster_iceberg_spark.table.schema import Schema
from dagster_iceberg_spark.table.snapshot import Commit, RowCounts, Snapshot, TableState
from dagster_iceberg_spark.timeouts import FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS


def materialize(engine: Engine, request: WriteRequest, *, known: frozenset[int] | None = None) -> Commit:
    """Commit the engine's rows as exactly one snapshot, or adopt an existing one.

    `known` are the snapshots that existed before the write began, or None if it begins now.

    `CatalogUnavailableError` means that, as far as the package can determine, nothing is committed. The next attempt
    searches for the token again.
    """
    attempts, limits = _Attempts(engine, request, known=known), request.limits
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception(_can_be_planned_again),
        stop=lambda state: attempts.count >= limits.attempts or tenacity.stop_after_delay(limits.seconds)(state),
        wait=tenacity.wait_random_exponential(multiplier=FIRST_WAIT_SECONDS, max=LONGEST_WAIT_SECONDS),
        before_sleep=lambda state: request.report(_retry_line(state, request, attempts.count)),
        reraise=True,
    )
    with claimed(engine, request) if known is None else nullcontext():
        attempts.started = time.monotonic()
        return retrying(attempts.attempt)


def _can_be_planned_again(error: BaseException) -> bool:
    """Return whether another attempt may write the same DataFrame. After `ChangesConsumedError`, it is outdated."""
    return isinstance(error, errors.RetryableError) and not isinstance(error, errors.ChangesConsumedError)


def _retry_line(state: tenacity.RetryCallState, request: WriteRequest, number: int) -> str:
    error = state.outcome.exception() if state.outcome else None
    what = "Conflict on" if isinstance(error, errors.CommitConflictError) else "Trouble with"
    attempt = f"attempt {number + 1} of {request.limits.attempts}"
    return f"{what} {request.subject}, planning again ({attempt}): {error}"


@dataclass(slots=True)
class _Attempts:
    """The attempts of one `materialize`, and their shared state."""

    engine: Engine
    request: WriteRequest
    started: float = field(default_factory=time.monotonic)
    known: frozenset[int] | None = None  # the snapshots before the first attempt, or None before it has looked
    number: int = 0
    overtaken: int = 0  # the attempts that lost to commits of other rows
    retry_seconds: float = 0.0  # that the attempts before the last one took
    changes: list[str] = field(default_factory=list)  # that the attempts have made to the table's metadata, in words
    has_created: bool = False
    staged: StagedWrite | None = None
    owned: BoundScope | None = None  # the rows that the last planned write replaces

    @property
    def count(self) -> int:
        """The number of attempts, without those that another writer's commit of other rows has overtaken."""
        return self.number - self.overtaken

    def attempt(self) -> Commit:
        """Load the table, then adopt a snapshot or plan and write. A staged write is published."""
        self.retry_seconds = time.monotonic() - self.started if self.number else 0.0
        self.number += 1
        began = time.time()
        state = self._look()
        options, subject = self.request.table.options, self.request.subject
        refuse_other_columns(options, self.engine.given, state, subject=subject)  # audits may name the columns
        if self.staged is None:
            self.staged = StagedWrite.of(self.engine, self.request, state)
        if self.known is None:
            self.known = frozenset(state.snapshots) if state else frozenset[int]()
        rolled_back: set[int] = set()
        while state is not None and (found := outcome.find_commit(state, self.request, self.known)) is not None:
            snapshot, is_adopted = found
            if snapshot.snapshot_id in rolled_back:
                raise errors.CommitConflictError.to_plan_again(
                    "write",
                    self.request.subject,
                    expected=f"a history without snapshot {snapshot.snapshot_id}, which was rolled back",
                    found="the snapshot: the catalog still returns it",
                )
            if outcome.is_intact(self.engine, self.request, state, snapshot):
                return self._resume(state, snapshot, began, is_adopted=is_adopted)
            rolled_back.add(snapshot.snapshot_id)
            state = self._look()
        self._require_writable(state)
        plan, names = self._plan(state)
        self.owned = plan.owned
        self.engine.prepare(plan)
        self.changes += [change for change in map(str, plan.changes) if change not in self.changes]
        self.has_created = self.has_created or plan.create is not None
        counts = self._write(plan, names)
        commit, after = self._commit_of_token(plan, counts, began=began, ended=time.time())
        commit, after = self._publish(commit, after)
        return self._finish(commit, after, planned_on=state.schema if state else Schema(()))

    def _look(self) -> TableState | None:
        state = look(self.engine.catalog, self.request.identifier, back_to=self._back_to())
        return None if state is None else state.compared_like(self.engine.given)

    def _back_to(self) -> Callable[[Snapshot], bool] | None:
        """Return how far the history must go back so that no append of these rows is missed.

        A write that replaces or merges rows can be repeated and needs no older history.
        """
        started_at = self.request.materialization.started_at
        if self.request.table.options.concurrent_writes == "first_wins" and started_at is not None:
            return lambda snapshot: snapshot.committed_at < started_at
        since_ms = adoption.searched_since_ms(self.request.candidates)
        if since_ms is not None and self.request.table.options.write_disposition == "append":
            return lambda snapshot: snapshot.committed_at_ms < since_ms
        return None if self.known is None else outcome.seen_before(self.known)

    def _resume(self, state: TableState, snapshot: Snapshot, began: float, *, is_adopted: bool) -> Commit:
        """Make the changes that waited for the snapshot's data, and return the commit."""
        if is_adopted:
            commit = Commit(state.identifier, state.location, state.schema, snapshot, is_adopted=True)
        else:
            commit = self._commit_of(state, snapshot, began=began, ended=began)
        commit, state = self._publish(commit, state)
        # The columns that the snapshot was planned with, if its metadata records them.
        return self._finish(commit, state, planned_on=state.schemas.get(snapshot.schema_id or 0, Schema(())))

    def _publish(self, commit: Commit, state: TableState) -> tuple[Commit, TableState]:
        """Audit and publish the snapshot of a staged write. Return the commit, and the state of the table after it."""
        if self.staged is None:
            return commit, state
        try:
            published, after = self.staged.audit_and_publish(commit, state, self.owned)
        except OvertakenError:
            self.overtaken += 1
            raise
        if after is None:
            raise _without_commit(self.request, f"a snapshot of {self.staged.staging.target!r} with")
        return published, after

    def _require_writable(self, state: TableState | None) -> None:
        """Reject changes that another materialization has consumed, and engines that would not commit the rows."""
        request = self.request
        refuse_consumed(
            state,
            request.materialization,
            request.table.options,
            is_pending=partial(adoption.has_read_changes, candidates=request.candidates),
            subject=request.subject,
        )
        refuse_second(state, request.materialization, request.table.options, subject=request.subject)
        self.engine.require_writable(state)

    def _plan(self, state: TableState | None) -> tuple[WritePlan, StoredNames]:
        """Return the plan, and the table's names of the given columns."""
        request, given, stored = self.request, self.engine.given, state.schema if state else None
        options = request.table.options
        names = StoredNames.of(options.renames, given, stored, subject=request.subject)
        materialization = replace(request.materialization, scope=names.of_scope(request.materialization.scope))
        draft = draft_write(request.table.by_names(names), materialization, names.of_schema(given), state)
        self.engine.require_supported(draft)
        is_by_partition = options.write_disposition == "overwrite_partitions"
        touched = self.engine.touched(draft, names) if is_by_partition else None
        return draft.plan(self._files(draft, touched), touched), names

    def _files(self, draft: WriteDraft, touched: BoundScope | None) -> Sequence[DataFile] | None:
        """Return the table's data files with the bounds that the plan needs, or None if it needs none."""
        catalog, identifier = self.engine.catalog, self.request.identifier
        base, columns = draft.state.base(self.request.branch) if draft.state else None, draft.file_columns(touched)
        if base is None or not columns:
            return None
        files = data_files(catalog, identifier, base.snapshot_id, columns)
        rows = None if touched is not None else draft.rows_to_find_by_partition(files)
        if rows is None:
            return files
        found = data_files(catalog, identifier, base.snapshot_id, (), rows=expression_of(rows))
        paths = {file.path for file in found}
        return tuple(replace(file, may_be_owned=file.path in paths) for file in files)

    def _write(self, plan: WritePlan, names: StoredNames) -> RowCounts:
        """Run the plan. If the response is lost, determine the outcome of the commit before reporting anything."""
        engine, request, known = self.engine, self.request, self.known or frozenset()
        try:
            return engine.write(plan, names)
        except errors.EngineUnfitError:
            raise
        except errors.DataError as error:
            raise self._with_what_is_left(error, plan) from error.__cause__
        except engine.errors as error:
            failure = self._translate(error)
            if isinstance(failure, errors.CommitOutcomeUnknownError):
                outcome.resolve_lost_answer(engine, request, known, error=error, failure=failure)
                return RowCounts()
            if not isinstance(failure, errors.DataError):  # whose error ends a write before it commits
                try:
                    if outcome.has_committed(engine, request, known):
                        return RowCounts()
                except errors.CatalogUnavailableError:
                    raise failure from error
            if plan.create is not None and isinstance(failure, errors.CommitConflictError | errors.SchemaMismatchError):
                _require_created(engine, plan)
            raise self._with_what_is_left(failure, plan) from (error.__cause__ if failure is error else error)

    def _translate(self, error: Exception) -> errors.IcebergSparkError:
        """Return the engine's error as the package's. Raise a conflict if the staged branch was dropped.

        In a catalog that keeps no branches, the branch of the second attempt has gone too. If there is only one
        attempt, the engine's error stands, because it looks like that of such a catalog.
        """
        failure = self.engine.translate(error)
        if self.staged is not None and self.number == 1 and self.request.limits.attempts > 1:
            self.staged.require_branch(failure)
        return failure

    def _with_what_is_left(self, error: errors.IcebergSparkError, plan: WritePlan) -> errors.IcebergSparkError:
        """Return the error with the changes of the preparation. Rows and snapshots are as before."""
        left = ["the table was created and is empty"] if plan.create else []
        left += self.changes
        return type(error)(f"{error} Nothing was committed; what stays: {', '.join(left)}.") if left else error

    def _commit_of_token(
        self, plan: WritePlan, counts: RowCounts, *, began: float, ended: float
    ) -> tuple[Commit, TableState]:
        """Return the commit of the snapshot with our token, and the state of the table after it."""
        engine, request, known = self.engine, self.request, self.known or frozenset()
        state = look(engine.catalog, plan.identifier, back_to=outcome.seen_before(known))
        committed = outcome.committed_snapshots(state, request, self.known)
        if state is None or not committed:
            raise _without_commit(request, "a snapshot with")
        displaced = adoption.displaced_snapshots(state, committed[0], known, branch=request.branch)
        if displaced:
            bring_back(engine.catalog, state, committed[0], displaced, branch=request.branch)
            request.report(
                f"Iceberg had taken snapshot {displaced[0].snapshot_id} of another writer out of the history of "
                f"{state.identifier}: it is current again."
            )
        twins = adoption.refuse_twins(state.identifier, committed, disposition=request.table.options.write_disposition)
        if twins is not None:
            request.report(twins)
        counts = _with_listed_rows(engine, plan, committed[0], counts)
        return replace(self._commit_of(state, committed[0], began=began, ended=ended), counts=counts), state

    def _commit_of(self, state: TableState, snapshot: Snapshot, *, began: float, ended: float) -> Commit:
        committed = snapshot.committed_at_ms / 1000
        return Commit(
            identifier=state.identifier,
            location=state.location,
            schema=state.schema,
            snapshot=snapshot,
            write_seconds=max(0.0, committed - began),
            commit_seconds=max(0.0, ended - committed),
            retries=self.number - 1,
            retry_seconds=self.retry_seconds,
            changes=tuple(self.changes),
            has_created=self.has_created,
        )

    def _finish(self, commit: Commit, state: TableState, *, planned_on: Schema) -> Commit:
        """Make the changes that waited for the data. If this fails, the data is safe and the next run makes them."""
        request, newest = self.request, islice(state.history(commit.snapshot.snapshot_id), NEWEST)
        commit = replace(commit, history=tuple(newest))
        if commit.staged_branch is not None:  # the rows that these changes wait for are not published yet
            return commit
        try:
            changes = plan_finish(request.table, self.engine.given, state, planned_on)
            if not changes:
                return commit
            self.engine.apply(request.identifier, changes)
            after = look(self.engine.catalog, request.identifier)
        except errors.IcebergSparkError as error:
            request.report(
                f"The rows of {request.identifier} are committed, but its columns could not be changed as "
                f"`{SCHEMA_EVOLUTION}` and `{RENAMES}` ask; the next run tries again. {error}"
            )
            return commit
        done = tuple(map(str, changes))
        return replace(commit, schema=after.schema if after else commit.schema, changes=(*commit.changes, *done))


def _without_commit(request: WriteRequest, expected: str) -> errors.CommitOutcomeUnknownError:
    return errors.CommitOutcomeUnknownError.refusing(
        "find the commit to",
        request.subject,
        expected=f"{expected} `{lineage.COMMIT_TOKEN}` = {request.materialization.commit_token}",
        found="none, although the engine reported success",
        hint="another writer may have rolled the table back or replaced it; look at its history.",
    )


def _require_created(engine: Engine, plan: WritePlan) -> None:
    """Reject a name that belongs to something other than a table, so that no table can be created.

    Spark finds the metadata tables of a table, such as `files`, below its name, where a namespace may be called so.
    """
    if look(engine.catalog, plan.identifier) is None:
        raise taken_name(plan.identifier)


def _with_listed_rows(engine: Engine, plan: WritePlan, snapshot: Snapshot, counts: RowCounts) -> RowCounts:
    """Return the counts with the rows of each partition, if they are in the metadata of the new files."""
    if not plan.listed_partitions or plan.carries_over:
        return counts
    columns = {column for _, scope in plan.listed_partitions for column in scope.columns}
    files = added_files(engine.catalog, plan.identifier, snapshot.snapshot_id, sorted(columns))
    listed = rows_by_partition(plan.listed_partitions, files)
    if listed is None:
        return counts
    return RowCounts(rows=sum(listed.values()), dropped=counts.dropped, by_partition=listed)
