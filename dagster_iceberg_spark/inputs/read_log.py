"""Records what a step reads: for the lineage of what it writes, and in its run's event log."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Literal

import dagster as dg

from dagster_iceberg_spark.dagster_private import (
    engine_events,
    step_facts,
)
from dagster_iceberg_spark.errors import MetadataKeyError
from dagster_iceberg_spark.inputs.read_request import ReadRequest, input_name, upstream_read
from dagster_iceberg_spark.ledger import LEDGER
from dagster_iceberg_spark.plan.incremental import Changes
from dagster_iceberg_spark.plan.read import EarlierRead, RecordedRead, chosen_read
from dagster_iceberg_spark.plan.read_options import AS_OF_RUN
from dagster_iceberg_spark.table.scope import PartitionScope, share_of

_READ: Final = {
    "input": "iceberg/input",
    "step": "iceberg/step",
    "asset": "iceberg/asset",
    "table": "iceberg/table",
    "partitions": "iceberg/partition_digest",
    "snapshot_id": "iceberg/read_snapshot_id",
    "since": "iceberg/read_since_snapshot_id",
    "scope": "iceberg/partitions",
    "kind": "iceberg/read",
    "left_out": "iceberg/left_out",
    "asked_at": "iceberg/asked_at",
}
"""Keys of the engine event that records a read."""


def record_read(
    context: dg.InputContext,
    request: ReadRequest,
    snapshot_id: int | None,
    changes: Changes | None = None,
    output_heads: tuple[tuple[str, int | None], ...] = (),
    *,
    asked_at: float,
) -> None:
    """Record a read, for the lineage of what the step writes and for runs that repeat the read.

    Args:
        context: Dagster's context of the input.
        request: The read request of the input.
        snapshot_id: The snapshot that was read, or None if the table has none.
        changes: The changes that were read, up to the snapshot; None if the snapshot's rows were read.
        output_heads: For an incremental read, each asset of the step with its table's current snapshot.
        asked_at: When the load began, in seconds since 1970.
    """
    facts = step_facts(context)
    if facts is None:
        return
    scope, name = request.described_scope, input_name(context)
    read = replace(upstream_read(context, request), snapshot_id=snapshot_id)
    since = None if changes is None else changes.since
    if changes is None:
        read = replace(read, digest=None, input_name=None, is_pinned=not request.options.is_head)
    else:
        read = replace(read, since=since, output_heads=output_heads, is_repeated=changes.is_repeated)
    LEDGER.record(facts.run_id, facts.step_key, f"{name}\0{request.asset}\0{request.identifier}", read)
    facts.record_event(
        f"Reading {_described_range(request, snapshot_id, changes)}{f', partitions {scope}' if scope else ''}.",
        {
            _READ["input"]: name,
            _READ["step"]: facts.step_key,
            _READ["asset"]: request.asset,
            _READ["table"]: str(request.identifier),
            _READ["partitions"]: request.read_scope.digest,
            _READ["snapshot_id"]: "" if snapshot_id is None else str(snapshot_id),
            _READ["since"]: "" if since is None else str(since),
            _READ["scope"]: scope or "",
            _READ["kind"]: request.options.read,
            _READ["asked_at"]: str(asked_at),
            _READ["left_out"]: request.options.left_out or "",
        },
    )


def _described_range(request: ReadRequest, snapshot_id: int | None, changes: Changes | None) -> str:
    at = f"snapshot {snapshot_id}" if snapshot_id else "its beginning"
    if changes is None:
        return f"{request.identifier} at {at}"
    if changes.since is None:
        reason = "because the changes cannot be determined" if changes.is_repeated else "all of which are new"
        return f"all rows of {request.identifier} at {at}, {reason}"
    if not changes.snapshots:
        return f"no rows of {request.identifier}, which has not changed since snapshot {changes.since}"
    what = "the rows added to" if changes.kind == "changes" else "the changes of"
    return f"{what} {request.identifier} after snapshot {changes.since} up to {at}, {len(changes.snapshots)} commits"


def recorded_read(context: dg.InputContext, request: ReadRequest, run_id: str) -> EarlierRead | None:
    """Return the read of this input by the step of the same name in an earlier run, from that run's event log.

    Raises:
        MetadataKeyError: The context belongs to no step.
    """
    facts = step_facts(context)
    if facts is None:
        raise MetadataKeyError.refusing(
            "use",
            f"`{AS_OF_RUN}` of {request.asset}",
            expected="an input of a run's step",
            found="an input of a script",
        )
    return chosen_read(run_id, reads_of_run(context, request, run_id, step_key=facts.step_key))


def reads_of_run(
    context: dg.InputContext, request: ReadRequest, run_id: str, *, step_key: str | None
) -> list[RecordedRead]:
    """Return a run's reads of this input from its event log, oldest first.

    Args:
        context: Dagster's context of the input.
        request: The read request of the input.
        run_id: The id of the run.
        step_key: The step that read; None for any step that has an input of this name.
    """
    facts = step_facts(context)
    wanted = {
        _READ["input"]: input_name(context),
        _READ["asset"]: request.asset,
        _READ["table"]: str(request.identifier),
    }
    if step_key is not None:
        wanted[_READ["step"]] = step_key
    return [
        RecordedRead(
            share=_share_of(event, request.read_scope),
            snapshot_id=int(event[_READ["snapshot_id"]] or 0) or None,
            since=int(event.get(_READ["since"]) or 0) or None,
            is_of_changes=event.get(_READ["kind"], "snapshot") != "snapshot",
            left_out=event.get(_READ["left_out"]) or None,
            asked_at=float(event.get(_READ["asked_at"], "inf")),
        )
        for event in (engine_events(facts.instance, run_id) if facts else ())
        if wanted.items() <= event.items()
    ]


def _share_of(event: Mapping[str, str], scope: PartitionScope) -> Literal["all", "some", "none"]:
    if event[_READ["partitions"]] == scope.digest:
        return "all"
    described = event.get(_READ["scope"])
    if described == "":
        return "all"
    return "some" if described is None or scope.is_whole_table else share_of(described, scope.keys) or "some"
