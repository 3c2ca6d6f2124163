"""The boundary at which the versions of a history (SCD 2) begin, and the batches that come too late."""

import datetime as dt
import hashlib
from functools import partial

from dagster_iceberg_spark.errors import ConfigurationError, DataError
from dagster_iceberg_spark.plan.options.output_options import MERGE
from dagster_iceberg_spark.plan.partitions.binding import BoundScope
from dagster_iceberg_spark.plan.write.adoption import leaves_alone
from dagster_iceberg_spark.plan.write.merging import OF_RUN, MergeRules
from dagster_iceberg_spark.table.lineage import BOUNDARY, HISTORY, Materialization
from dagster_iceberg_spark.table.snapshot import TableState


def boundary_of(
    rules: MergeRules, materialization: Materialization, owned: BoundScope, *, subject: str
) -> dt.datetime | None:
    """Return when the versions of a history begin, or None for a merge without versions."""
    refused = partial(ConfigurationError.refusing, "merge into", subject)
    if rules.strategy != "scd2":
        return None
    if rules.retire == "all" and not owned.is_whole_table:
        raise refused(
            expected=f"`retire` of `{MERGE}` as 'partitions' or 'never', for an asset whose runs own their partitions",
            found="'all'",
        )
    if isinstance(rules.boundary, dt.datetime):
        return rules.boundary
    if rules.boundary == OF_RUN:
        return materialization.started_at
    windows = {item.window.start for partition in materialization.scope.partitions for item in partition if item.window}
    if len(windows) != 1:
        raise refused(
            expected=f"a run of one time partition, at whose start the versions begin (`boundary` of `{MERGE}`)",
            found=f"{len(windows)} of them",
            hint="run one partition at a time, or give each row its begin in the column that `valid_from` names.",
        )
    return windows.pop()


def history_properties(boundary: dt.datetime, owned: BoundScope) -> dict[str, str]:
    """Return the snapshot properties with the boundary, and with a digest of the rows whose versions were compared."""
    digest = hashlib.sha256(repr(owned.predicate()).encode()).hexdigest()[:16]
    return {BOUNDARY: boundary.astimezone(dt.timezone.utc).isoformat(), HISTORY: digest}


def refuse_late(
    boundary: dt.datetime, owned: BoundScope, materialization: Materialization, branch: str, state: TableState | None
) -> None:
    """Reject a batch that is older than the history: the history does not show which rows stayed unchanged since."""
    history = history_properties(boundary, owned)[HISTORY]
    if state is None:
        return
    for snapshot in state.base_ancestors(branch):
        known = snapshot.summary.get(BOUNDARY)
        if known is None or dt.datetime.fromisoformat(known) <= boundary:
            continue
        is_same_history = owned.is_whole_table or snapshot.summary.get(HISTORY) == history
        if is_same_history or not leaves_alone(snapshot, materialization):
            raise DataError.refusing(
                "merge into",
                str(state.identifier),
                expected=f"a boundary not before {known}, that of snapshot {snapshot.snapshot_id}",
                found=boundary.isoformat(),
                hint="let each row say when it begins, in the column that `valid_from` names: such rows may come late.",
            )
