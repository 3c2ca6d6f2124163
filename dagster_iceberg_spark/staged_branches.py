"""The staged branches of the tables of a code location, such as those of rows that failed an audit."""

import datetime as dt
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import dagster as dg

from dagster_iceberg_spark.asset_tables import drop_branch, stored_tables
from dagster_iceberg_spark.plan.staging import is_staged_branch
from dagster_iceberg_spark.table import lineage
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.snapshot import TableState


@dataclass(frozen=True, slots=True)
class StagedBranch:
    """A staged branch of a table, and what its newest snapshot records of the run that staged it.

    Args:
        staged_at: When the rows were staged, or None if the branch holds none.
        rows: The number of rows that the snapshot added.
    """

    table: TableIdentifier
    name: str
    asset: str | None = None
    run_id: str | None = None
    partitions: str | None = None
    staged_at: dt.datetime | None = None
    rows: int = 0

    def document(self) -> dict[str, str | int | None]:
        """Return the branch for JSON."""
        return {
            "table": str(self.table),
            "branch": self.name,
            "asset": self.asset,
            "run_id": self.run_id,
            "partitions": self.partitions,
            "staged_at": None if self.staged_at is None else self.staged_at.isoformat(timespec="seconds"),
            "rows": self.rows,
        }


def staged_branches(definitions: dg.Definitions, *, drop: Collection[str] = ()) -> Iterator[StagedBranch]:
    """Yield the staged branches of the tables of a code location's assets. Drop those of the names in `drop`.

    Raises:
        ConfigurationError: The code location has no IO manager of this package.
    """
    with stored_tables(definitions, action="list the staged branches of") as tables:
        for table in tables:
            for branch in _staged_in(table.state):
                yield branch
                if branch.name in drop:
                    drop_branch(table.io_manager, table.state.identifier, branch.name)


def _staged_in(state: TableState) -> Iterator[StagedBranch]:
    others = {snapshot_id for ref, snapshot_id in state.refs.items() if not is_staged_branch(ref)}
    for name in sorted(filter(is_staged_branch, state.branches)):
        head = state.head(name)
        if head is None or head.snapshot_id in others or lineage.COMMIT_TOKEN not in head.summary:
            yield StagedBranch(state.identifier, name)
            continue
        yield StagedBranch(
            table=state.identifier,
            name=name,
            asset=head.summary.get(lineage.ASSET_KEY),
            run_id=head.summary.get(lineage.RUN_ID),
            partitions=head.summary.get(lineage.PARTITION_KEYS),
            staged_at=head.committed_at,
            rows=head.count("added-records"),
        )
