"""Determines the outcome of a commit, whatever the engine reports: whether its token and its files are in the table."""

import time
from collections.abc import Callable
from itertools import takewhile

from dagster_iceberg_spark.catalog.damage import has_its_files, roll_back
from dagster_iceberg_spark.catalog.look import look
from dagster_iceberg_spark.commit.engine import Engine
from dagster_iceberg_spark.errors import CatalogUnavailableError, CommitConflictError, CommitOutcomeUnknownError
from dagster_iceberg_spark.plan.publication.staged_rows import is_published
from dagster_iceberg_spark.plan.write.adoption import decide_adoption, refuse_twins
from dagster_iceberg_spark.plan.write.write_request import WriteRequest
from dagster_iceberg_spark.table import lineage
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.snapshot import Snapshot, TableState
from dagster_iceberg_spark.table.sql_text import table_name
from dagster_iceberg_spark.table.updates import DropBranch
from dagster_iceberg_spark.timeouts import SETTLING_SECONDS


def seen_before(known: frozenset[int]) -> Callable[[Snapshot], bool]:
    """Return a test whether a snapshot existed before. `committed_snapshots` searches as far back as that."""
    return lambda snapshot: snapshot.snapshot_id in known


def committed_snapshots(
    state: TableState | None, request: WriteRequest, known: frozenset[int] | None
) -> tuple[Snapshot, ...]:
    """Return the new snapshots that carry our token, or whose run has resumed ours, newest first."""
    if state is None or known is None:
        return ()
    token = request.materialization.commit_token
    for branch, _ in request.searched_branches:
        new = takewhile(lambda snapshot: snapshot.snapshot_id not in known, state.ancestors(branch))
        found = tuple(snapshot for snapshot in new if token in lineage.settled_tokens(snapshot.summary))
        if found:
            return found
    return ()


def find_commit(state: TableState, request: WriteRequest, known: frozenset[int] | None) -> tuple[Snapshot, bool] | None:
    """Return the snapshot of an earlier attempt, if the table has it, and whether another process committed it.

    `known` are the snapshots that existed before the write began, as far as the token may be in them.

    Raises:
        DuplicateCommitError: Rows were appended twice.
        OrphanedCommitError: It is unknown whether an appended snapshot belongs to the materialization.
    """
    disposition = request.table.options.write_disposition
    committed = committed_snapshots(state, request, known)
    if committed:
        refuse_twins(state.identifier, committed, disposition=disposition)
        return committed[0], False
    for branch, candidates in request.searched_branches:
        decided = decide_adoption(
            state,
            candidates,
            request.materialization,
            branch=branch,
            disposition=disposition,
            record_of=request.record_of,
        )
        if decided.warning:
            request.report(decided.warning)
        if decided.snapshot is not None:
            return decided.snapshot, True
    return None


def is_intact(engine: Engine, request: WriteRequest, state: TableState, snapshot: Snapshot) -> bool:
    """Return whether a snapshot in the table can be read. An unreadable one is rolled back, or raises an error.

    A staged branch with an unreadable snapshot is dropped.
    """
    if has_its_files(engine.catalog, state.identifier, snapshot):
        return True
    staging, branch = request.table.staging, request.branch
    if staging is not None:
        if not is_published(state, staging, snapshot):
            engine.change_branches(state.identifier, [DropBranch(staging.branch)])
            request.report(
                f"The engine had deleted the files of the staged snapshot {snapshot.snapshot_id} of "
                f"{state.identifier}: its branch is dropped, and the rows are staged again."
            )
            return False
        branch = staging.target
    roll_back(engine.catalog, state, snapshot, branch=branch)
    request.report(
        f"The engine had deleted the files of snapshot {snapshot.snapshot_id} of {state.identifier}, which an attempt "
        f"of this step had committed: the table is rolled back to {snapshot.parent_snapshot_id}, and written again."
    )
    return False


def resolve_lost_answer(
    engine: Engine,
    request: WriteRequest,
    known: frozenset[int],
    *,
    error: Exception,
    failure: CommitOutcomeUnknownError,
) -> None:
    """Return if the write has committed. First wait until no operation runs that could commit, then look for the token.

    `CatalogUnavailableError` means that the write has not committed, and will not. `CommitOutcomeUnknownError` means
    that there is no snapshot, but the write may still commit one.
    """
    identifier, token = request.identifier, request.materialization.commit_token
    found = f"none yet ({failure})"
    for seconds in SETTLING_SECONDS:
        time.sleep(seconds)
        has_ended = engine.has_ended(error)
        try:
            if has_committed(engine, request, known):
                return
        except CatalogUnavailableError as unavailable:
            found = f"no answer to the question either ({failure} {unavailable})"
            continue
        if has_ended:
            raise CatalogUnavailableError.refusing(
                "write", str(identifier), expected="a server that answers", found=str(failure)
            ) from error
    raise CommitOutcomeUnknownError.refusing(
        "determine the outcome of the commit to",
        str(identifier),
        expected=f"a snapshot with `{lineage.COMMIT_TOKEN}` = {token}",
        found=found,
        hint=f"look for it with `{_query_of(engine.catalog.name, identifier, token)}`, then execute the run "
        "again from its failure: that takes the snapshot over if it is there, and writes if not.",
    ) from error


def has_committed(engine: Engine, request: WriteRequest, known: frozenset[int]) -> bool:
    """Return whether the write has committed, whatever the engine reported.

    If the engine deleted the files of the committed snapshot, the snapshot is rolled back, which is a conflict.
    """
    identifier = request.identifier
    state = look(engine.catalog, identifier, back_to=seen_before(known))
    committed = committed_snapshots(state, request, known)
    if state is None or not committed:
        return False
    if not is_intact(engine, request, state, committed[0]):
        raise CommitConflictError.to_plan_again(
            "write",
            identifier,
            expected="one answer to the commit",
            found="that the catalog committed it and answered that it had not",
        )
    request.report(f"The answer to the commit of {identifier} was lost; its snapshot is there.")
    return True


def _query_of(catalog: str, identifier: TableIdentifier, token: str) -> str:
    """Return the query with which a person finds the snapshot of a commit token."""
    condition = f"summary['{lineage.COMMIT_TOKEN}'] = '{token}'"
    return f"SELECT snapshot_id FROM {table_name(catalog, identifier)}.snapshots WHERE {condition}"  # noqa: S608 - for a person
