"""Environments: long-lived sets of branches, one in each table that the environment has written.

An environment reads its own branch of a table where there is one, and `main` otherwise. It never changes `main`.
"""

import hashlib
import re
from dataclasses import dataclass, replace
from typing import Final

from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.plan.options.output_options import WriteOptions
from dagster_iceberg_spark.plan.write.write_request import WriteTarget
from dagster_iceberg_spark.table.lineage import BRANCH_START
from dagster_iceberg_spark.table.snapshot import MAIN_BRANCH, TableState

_PREFIX: Final = "env_"
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]")
_DIGITS: Final = 6
RETENTION_DAYS: Final = 30
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
    retention_days: int = RETENTION_DAYS
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
            options = replace(options, schema_evolution="strict" if policy == "strict" else "add_columns")
            options = replace(options, publish="step", on_failure="drop")
        return replace(options, branch=self.branch)


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
