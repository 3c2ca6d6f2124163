"""Environments, and the rules for writes to a branch. A table has one schema for all of its branches.

An environment is a set of branches, one in each table that it has written. It reads its own branch of a table where
there is one, and `main` otherwise. It never changes `main`.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.plan.options.output_options import AUDITS, WriteOptions
from dagster_iceberg_spark.plan.schema.renames import lost_columns
from dagster_iceberg_spark.plan.write.write_request import TableRequest, WriteTarget
from dagster_iceberg_spark.table.lineage import BRANCH_START
from dagster_iceberg_spark.table.snapshot import MAIN_BRANCH, TableState
from dagster_iceberg_spark.table.updates import CreateBranch, TableUpdate

_PREFIX: Final = "env_"
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]")
_DIGITS: Final = 6
ENVIRONMENT_RETENTION_DAYS: Final = 30
_REPLAY_RETENTION_DAYS: Final = 7
REPLAYED_RUN: Final = "dagster_iceberg_spark/replay_of"
"""Tag of a run that replays another one: the id of that run."""


@dataclass(frozen=True, slots=True)
class Environment:
    """An environment.

    Args:
        name: Its name, such as that of a branch in Git.
        retention_days: The days without a write after which the expiry of snapshots removes a branch.
        is_replay: Whether a run is replayed in it. A replay changes nothing that all branches of a table share, and no
            release publishes its rows.
    """

    name: str
    retention_days: int = ENVIRONMENT_RETENTION_DAYS
    is_replay: bool = False

    @property
    def branch(self) -> str:
        """The name of its branches. Characters that Spark does not accept in a name are replaced."""
        safe = _UNSAFE.sub("_", self.name)
        if safe == self.name:
            return f"{_PREFIX}{safe}"
        return f"{_PREFIX}{safe}_{hashlib.sha256(self.name.encode()).hexdigest()[:_DIGITS]}"

    @property
    def target(self) -> WriteTarget:
        """What its writes may change."""
        return WriteTarget(self.retention_days, keeps_layout=True, may_add_columns=not self.is_replay)

    def options(self, options: WriteOptions, *, subject: str) -> WriteOptions:
        """Return the options of a write in the environment."""
        if options.branch != MAIN_BRANCH:
            raise ConfigurationError.refusing(
                "write",
                subject,
                expected="an asset without `iceberg/branch`, because the environment has a branch of its own",
                found=f"`iceberg/branch`: {options.branch!r}, in the environment {self.name!r}",
                hint="leave `iceberg/branch` out where `environment` is set.",
            )
        if self.is_replay:
            policy = options.schema_evolution
            evolution = "strict" if policy == "strict" else "add_columns"
            changes = {"schema_evolution": evolution, "publish": "step", "on_failure": "drop"}
            options = options.model_copy(update=changes)
        return options.model_copy(update={"branch": self.branch})


def replay_environment(run_id: str) -> Environment:
    """Return the environment that a replay of a run writes to."""
    return Environment(f"replay-{run_id}", _REPLAY_RETENTION_DAYS, is_replay=True)


def branch_start(state: TableState, branch: str) -> int | None:
    """Return the snapshot of `main` that a branch begins or began at, or None if it had none or that is unknown.

    The snapshots of an environment record it. Another branch began at the newest snapshot that `main` has too.
    """
    if branch not in state.refs:
        return state.refs.get(MAIN_BRANCH)
    of_main = {snapshot.snapshot_id for snapshot in state.ancestors(MAIN_BRANCH)}
    for snapshot in state.ancestors(branch):
        if snapshot.snapshot_id in of_main:
            return snapshot.snapshot_id
        if BRANCH_START in snapshot.summary:
            return int(snapshot.summary[BRANCH_START])
    return None


def start_properties(state: TableState | None, branch: str) -> dict[str, str]:
    """Return what a snapshot of an environment records of the beginning of its branch."""
    start = branch_start(state, branch) if state is not None and is_environment_branch(branch) else None
    return {} if start is None else {BRANCH_START: str(start)}


def is_environment_branch(name: str) -> bool:
    """Return whether a branch name is that of an environment."""
    return name.startswith(_PREFIX)


def new_branch(request: TableRequest, state: TableState | None) -> tuple[TableUpdate, ...]:
    """Return the update that creates the branch that the rows are published to, if it does not exist."""
    branch, retention_days = request.options.branch, request.target.retention_days
    exists = branch == MAIN_BRANCH or (state is not None and branch in state.refs)
    if exists:
        return ()
    if retention_days is None:
        return (CreateBranch(branch),)
    # Its first snapshots are needed to compare and to promote it.
    return (CreateBranch(branch, retention_days=retention_days, keeps_snapshots=True),)


def refuse_losses_of_main(
    options: WriteOptions, state: TableState, after: Sequence[TableUpdate], *, subject: str
) -> None:
    """Reject a write that would drop or rename columns of the readers of `main`, who do not see its rows yet."""
    refused = partial(ConfigurationError.refusing, "change", subject)
    if options.branch == MAIN_BRANCH and options.publish == "step":
        return
    losses = lost_columns(options.renames, state.schema, after, subject=subject)
    if losses and options.branch == MAIN_BRANCH:
        raise refused(
            expected="a write that keeps the columns of the table until a release publishes its rows",
            found=f"that it would {losses[0]}",
            hint="materialize the asset once with `iceberg/publish`: `step`.",
        )
    if losses:
        raise refused(
            expected=f"a write that keeps the columns of `main`, to the branch {options.branch!r}",
            found=f"that it would {losses[0]}",
            hint="write `main` that way first, or add the column: a table has one schema for all of its branches.",
        )


def refuse_outdated_branch(
    request: TableRequest, state: TableState | None, columns: Iterable[str], *, subject: str
) -> None:
    """Reject a write to a branch that filters by a column which the branch's newest snapshot lacks or names otherwise.

    Iceberg 1.12 resolves the columns of a filter in the schema of the branch's newest snapshot ("Cannot find field").
    """
    branch = request.branch
    head = None if state is None or branch == MAIN_BRANCH else state.head(branch)
    stored = None if state is None or head is None or head.schema_id is None else state.schemas.get(head.schema_id)
    if state is None or stored is None:
        return
    held = {field.field_id: field.name for field in stored}
    for name in columns:
        field = state.schema.field(name)
        if field is not None and held.get(field.field_id) != field.name:
            change: Literal["added", "renamed"] = "renamed" if field.field_id in held else "added"
            staging, column = request.staging, f"the column {field.name!r}"
            expected = f"a branch {branch!r} whose newest snapshot has {column}"
            hint = "append to the branch first, for example a DataFrame without rows: its next snapshot has the column."
            if staging is not None:
                expected = f"a newest snapshot of {staging.target!r} that has {column}, for a staged write"
                hint = f"materialize the asset once without `{AUDITS}`: its next snapshot has the column."
            found = f"one from before the column was {change}"
            raise ConfigurationError.refusing("write", subject, expected=expected, found=found, hint=hint)
