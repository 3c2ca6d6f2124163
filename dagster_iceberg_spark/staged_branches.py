"""The staged branches of the tables of a code location, such as those of rows that failed an audit."""

import datetime as dt
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import dagster as dg

from dagster_iceberg_spark.asset_tables import drop_branch, opened, stored_assets
from dagster_iceberg_spark.catalog.look import look
from dagster_iceberg_spark.errors import ConfigurationError
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
    stored = stored_assets(definitions)
    if not stored:
        raise ConfigurationError.refusing(
            "list the staged branches of",
            "the code location",
            expected="a resource that is an IcebergPySparkIOManager",
            found=f"the resources {', '.join(map(repr, definitions.resources or ())) or 'none'}",
        )
    with ExitStack() as stack:
        for key, assets in stored.items():
            io_manager = stack.enter_context(opened(key, assets.resource))
            catalog = io_manager.spark.catalog_description
            for identifier in dict.fromkeys(io_manager.definition_of(spec).request.identifier for spec in assets.specs):
                state = look(catalog, identifier)
                for branch in _staged_in(state) if state else ():
                    yield branch
                    if branch.name in drop:
                        drop_branch(io_manager, identifier, branch.name)


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
            staged_at=dt.datetime.fromtimestamp(head.committed_at_ms / 1000, dt.timezone.utc),
            rows=head.count("added-records"),
        )
