"""What Dagster has recorded of the assets of a release, in a run and the runs that it executes again."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import dagster as dg

from dagster_iceberg_spark.dagster_private import RecordedEvent, snapshot_of
from dagster_iceberg_spark.inputs.read_log import StepInput
from dagster_iceberg_spark.table.lineage import STAGED_TOKEN


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The evaluation of a check: whether it allows the release, and the snapshots that the check has looked at."""

    allows: bool
    snapshot_ids: frozenset[int]


@dataclass(frozen=True, slots=True)
class StagedMaterialization:
    """The newest materialization of an asset by the runs.

    Args:
        token: The commit token of the snapshot, or None if the step published it.
        partitions: The keys of its partitions; none for an asset without partitions.
        checks: The newest evaluation of each check that looked at the snapshot, or at any if none looked at that one.
    """

    snapshot_id: int
    token: str | None
    partitions: tuple[str, ...]
    checks: Mapping[str, Evaluation] = field(default_factory=dict)

    def unaudited(self, checks: Iterable[str]) -> tuple[str, ...]:
        """Return what is wrong with each of these checks that has not passed on the snapshot."""
        found = ((name, self._finding(self.checks.get(name))) for name in sorted(checks))
        return tuple(f"`{name}` {finding}" for name, finding in found if finding is not None)

    def _finding(self, evaluation: Evaluation | None) -> str | None:
        if evaluation is None:
            return "has not been evaluated"
        if self.snapshot_id not in evaluation.snapshot_ids:
            looked = " and ".join(map(str, sorted(evaluation.snapshot_ids)))
            return f"has looked at snapshot {looked}" if looked else "does not say which snapshot it has looked at"
        return None if evaluation.allows else "has failed"


def staged_materializations(
    events: Iterable[RecordedEvent], reads: Mapping[StepInput, frozenset[int]]
) -> Mapping[dg.AssetKey, StagedMaterialization]:
    """Return the newest materialization of each asset, from the events of the runs in order.

    A check has looked at the snapshots that its step has read, at the one that its metadata names, and at the one that
    its step has staged. A check that fails as a warning does not keep Dagster from executing the downstream steps, and
    it does not keep a release back.
    """
    found: dict[dg.AssetKey, StagedMaterialization] = {}
    steps: dict[tuple[str, str | None, dg.AssetKey], int] = {}
    evaluations: list[tuple[RecordedEvent, dg.AssetCheckEvaluation]] = []
    for item in events:
        event, snapshot_id = item.event, snapshot_of(item.event)
        if isinstance(event, dg.AssetCheckEvaluation):
            evaluations.append((item, event))
        elif snapshot_id is not None:
            steps[item.run_id, item.step_key, event.asset_key] = snapshot_id
            known = found.get(event.asset_key)
            if known is None or known.snapshot_id != snapshot_id:
                token = event.metadata.get(STAGED_TOKEN)
                known = StagedMaterialization(snapshot_id, None if token is None else str(token.value), ())
            partitions = (*known.partitions, *((event.partition,) if event.partition else ()))
            found[event.asset_key] = replace(known, partitions=tuple(dict.fromkeys(partitions)))
    for item, event in evaluations:
        if (staged := found.get(event.asset_key)) is None:
            continue
        read = reads.get((item.run_id, item.step_key or "", "/".join(event.asset_key.path)), frozenset())
        named = (snapshot_of(event), steps.get((item.run_id, item.step_key, event.asset_key)))
        looked_at = read | {snapshot_id for snapshot_id in named if snapshot_id is not None}
        earlier = staged.checks.get(event.check_name)
        if earlier is None or staged.snapshot_id in looked_at or staged.snapshot_id not in earlier.snapshot_ids:
            allows = event.passed or event.severity == dg.AssetCheckSeverity.WARN
            checks = {**staged.checks, event.check_name: Evaluation(allows, looked_at)}
            found[event.asset_key] = replace(staged, checks=checks)
    return found
