"""Records what a step reads: for the lineage of what it writes, and in its run's event log."""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeAlias

import dagster as dg

from dagster_iceberg_spark.assets.dagster_private.context import step_facts
from dagster_iceberg_spark.assets.dagster_private.event_log import engine_events
from dagster_iceberg_spark.assets.read_requests import ReadRequest
from dagster_iceberg_spark.errors import MetadataKeyError
from dagster_iceberg_spark.plan.read.incremental import Changes, share_read
from dagster_iceberg_spark.plan.read.read_options import AS_OF_RUN
from dagster_iceberg_spark.plan.read.read_plan import chosen_read
from dagster_iceberg_spark.table.lineage import UpstreamRead

_MAXIMUM_STEPS: Final = 256


class Ledger:
    """The reads of the process's steps, for the lineage of what they write.

    One process loads a step's inputs and handles its outputs. The ledger keeps the most recent steps, up to a maximum
    that exceeds the number of steps that a process runs at a time. If a step loads an input again, as in a retry, the
    new read replaces the old one.
    """

    def __init__(self) -> None:
        """Start with no reads."""
        self._steps: OrderedDict[tuple[str, str], dict[str, UpstreamRead]] = OrderedDict()
        self._lock = threading.Lock()

    def record(self, run_id: str, step_key: str, input_name: str, read: UpstreamRead) -> None:
        """Record a read of a step, under a name that is unique among the reads of the step."""
        with self._lock:
            self._steps.setdefault((run_id, step_key), {})[input_name] = read
            self._steps.move_to_end((run_id, step_key))
            while len(self._steps) > _MAXIMUM_STEPS:
                self._steps.popitem(last=False)

    def reads_of(self, run_id: str, step_key: str) -> tuple[UpstreamRead, ...]:
        """Return the reads of the step, ordered by the names of its inputs."""
        with self._lock:
            return tuple(read for _, read in sorted(self._steps.get((run_id, step_key), {}).items()))


LEDGER: Final = Ledger()
"""The ledger of the process."""

StepInput: TypeAlias = tuple[str, str, str]
"""A run, one of its steps, and the key of an asset that the step has read, with slashes between its parts."""

_STEP: Final = "iceberg/step"
_READ: Final = {
    "input_name": "iceberg/input",
    "asset_key": "iceberg/asset",
    "table": "iceberg/table",
    "digest": "iceberg/partition_digest",
    "snapshot_id": "iceberg/read_snapshot_id",
    "since": "iceberg/read_since_snapshot_id",
    "scope": "iceberg/partitions",
    "kind": "iceberg/read",
    "asked_at": "iceberg/asked_at",
    "left_out": "iceberg/left_out",
}
"""Keys of the engine event that records a read, by field of `UpstreamRead`."""


def record_read(context: dg.InputContext, read: UpstreamRead, changes: Changes | None) -> None:
    """Record a read, for the lineage of what the step writes and for runs that repeat the read."""
    facts = step_facts(context)
    if facts is None:
        return
    if changes is not None:
        read = replace(read, since=changes.since, is_repeated=changes.is_repeated)
    LEDGER.record(facts.run_id, facts.step_key, f"{read.input_name}\0{read.asset_key}\0{read.table}", read)
    facts.record_event(
        f"Reading {_described_range(read, changes)}{f', partitions {read.scope}' if read.scope else ''}.",
        {
            **{key: str(getattr(read, field) or "") for field, key in _READ.items()},
            _READ["kind"]: read.kind or "snapshot",
            _STEP: facts.step_key,
        },
    )


def _described_range(read: UpstreamRead, changes: Changes | None) -> str:
    at = f"snapshot {read.snapshot_id}" if read.snapshot_id else "its beginning"
    if changes is None:
        return f"{read.table} at {at}"
    if changes.since is None:
        reason = "because the changes cannot be determined" if changes.is_repeated else "all of which are new"
        return f"all rows of {read.table} at {at}, {reason}"
    if not changes.snapshots:
        return f"no rows of {read.table}, which has not changed since snapshot {changes.since}"
    what = "the rows added to" if changes.kind == "changes" else "the changes of"
    commits = "1 commit" if len(changes.snapshots) == 1 else f"{len(changes.snapshots)} commits"
    return f"{what} {read.table} after snapshot {changes.since} up to {at}, in {commits}"


def recorded_read(context: dg.InputContext, request: ReadRequest, run_id: str) -> UpstreamRead | None:
    """Return the read of this input by the step of the same name in an earlier run, from that run's event log."""
    if request.step_key is None:
        raise MetadataKeyError.refusing(
            "use",
            f"`{AS_OF_RUN}` of {request.asset}",
            expected="an input of a run's step",
            found="an input of a script",
        )
    reads = reads_of_run(context, request, run_id, step_key=request.step_key)
    return chosen_read(
        reads, [read for read in reads if share_read(read, request.upstream_read, request.scope.keys) == "all"]
    )


def snapshots_read(instance: dg.DagsterInstance, run_ids: Iterable[str]) -> Mapping[StepInput, frozenset[int]]:
    """Return the snapshots of each asset that each step of the runs has read, from the runs' event logs."""
    found: dict[StepInput, frozenset[int]] = {}
    for run_id in run_ids:
        for event in engine_events(instance, run_id):
            if _STEP in event and event[_READ["snapshot_id"]]:
                step = (run_id, event[_STEP], event[_READ["asset_key"]])
                found[step] = found.get(step, frozenset()) | {int(event[_READ["snapshot_id"]])}
    return found


def incremental_reads(instance: dg.DagsterInstance, run_id: str) -> list[UpstreamRead]:
    """Return the incremental reads of a run from its event log, oldest first."""
    reads = [_read_of(event) for event in engine_events(instance, run_id) if _STEP in event]
    return [read for read in reads if read.kind is not None]


def reads_of_run(
    context: dg.InputContext, request: ReadRequest, run_id: str, *, step_key: str | None
) -> list[UpstreamRead]:
    """Return a run's reads of this input from its event log, oldest first.

    The key of the step is None for any step that has an input of this name.
    """
    facts, read = step_facts(context), request.upstream_read
    wanted = {_READ[field]: getattr(read, field) for field in ("input_name", "asset_key", "table")}
    wanted |= {} if step_key is None else {_STEP: step_key}
    events = engine_events(facts.instance, run_id) if facts else ()
    return [_read_of(event) for event in events if wanted.items() <= event.items()]


def _read_of(event: Mapping[str, str]) -> UpstreamRead:
    fields: dict[str, Any] = {field: event[key] or None for field, key in _READ.items()}
    fields |= {field: int(fields[field]) for field in ("snapshot_id", "since") if fields[field]}
    kind = None if fields["kind"] == "snapshot" else fields["kind"]
    return UpstreamRead(**{**fields, "kind": kind, "asked_at": float(fields["asked_at"])})
