"""What Dagster has recorded of the assets of a release, in a run and the runs that it executes again."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import dagster as dg

from dagster_iceberg_spark.dagster_private import RecordedEvent, snapshot_of
from dagster_iceberg_spark.table.lineage import STAGED_TOKEN


@dataclass(frozen=True, slots=True)
class StagedMaterialization:
    """The newest materialization of an asset by the runs.

    Args:
        token: The commit token of the snapshot, or None if the step published it.
        partitions: The keys of its partitions; none for an asset without partitions.
        checks: Whether each check that has been evaluated since allows the release.
    """

    snapshot_id: int
    token: str | None
    partitions: tuple[str, ...]
    checks: Mapping[str, bool] = field(default_factory=dict)

    def unaudited(self, checks: Iterable[str]) -> tuple[str, ...]:
        """Return what is wrong with each of these checks that has not passed."""
        return tuple(
            f"`{name}` {'has failed' if name in self.checks else 'has not been evaluated'}"
            for name in sorted(checks)
            if not self.checks.get(name)
        )


def staged_materializations(events: Iterable[RecordedEvent]) -> Mapping[dg.AssetKey, StagedMaterialization]:
    """Return the newest materialization of each asset, from the events of the runs in order.

    A check counts if it was evaluated after the rows were staged, or by the step that staged them. A check that fails
    as a warning does not keep Dagster from executing the downstream steps, and it does not keep a release back.
    """
    found: dict[dg.AssetKey, StagedMaterialization] = {}
    evaluated: dict[dg.AssetKey, dict[str, tuple[RecordedEvent, bool]]] = {}
    for item in events:
        event = item.event
        if isinstance(event, dg.AssetCheckEvaluation):
            allows = event.passed or event.severity == dg.AssetCheckSeverity.WARN
            evaluated.setdefault(event.asset_key, {})[event.check_name] = (item, allows)
            if (staged := found.get(event.asset_key)) is not None:
                found[event.asset_key] = replace(staged, checks={**staged.checks, event.check_name: allows})
        elif (snapshot_id := snapshot_of(event)) is not None:
            known = found.get(event.asset_key)
            if known is None or known.snapshot_id != snapshot_id:
                token = event.metadata.get(STAGED_TOKEN)
                checks = {
                    name: allows
                    for name, (evaluation, allows) in evaluated.get(event.asset_key, {}).items()
                    if (evaluation.run_id, evaluation.step_key) == (item.run_id, item.step_key)
                }
                known = StagedMaterialization(snapshot_id, None if token is None else str(token.value), (), checks)
            partitions = (*known.partitions, *((event.partition,) if event.partition else ()))
            found[event.asset_key] = replace(known, partitions=tuple(dict.fromkeys(partitions)))
    return found
