"""Waits until no other run writes the same partitions (`iceberg/concurrent_writes`)."""

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from time import sleep
from typing import Final

from dagster_iceberg_spark.catalog.look import look
from dagster_iceberg_spark.commit.engine import Engine
from dagster_iceberg_spark.errors import IcebergSparkError
from dagster_iceberg_spark.plan.write.write_request import WriteRequest
from dagster_iceberg_spark.table.claims import Claim, claims_in, written_rows
from dagster_iceberg_spark.table.updates import DropTag

_POLL_SECONDS: Final = 2.0
_REPORT_SECONDS: Final = 60.0


@contextmanager
def claimed(engine: Engine, request: WriteRequest) -> Iterator[None]:
    """Claim the partitions of a write inside the block, once no other run has claimed them.

    A table without a snapshot takes no tag, so its first writes do not wait.
    """
    claim = _take(engine, request) if request.table.options.concurrent_writes == "wait" else None
    try:
        yield
    finally:
        if claim is not None:
            _drop(engine, request, claim)


def _take(engine: Engine, request: WriteRequest) -> Claim | None:
    identifier, materialization = request.identifier, request.materialization
    what = written_rows(materialization.asset_key, request.table.options.branch, materialization.scope)
    report_at = time.monotonic()
    while True:
        own = Claim(what, materialization.run_id, int(time.time() * 1000))
        state = look(engine.catalog, identifier)
        base = state.base(request.table.options.branch) if state else None
        if state is None or base is None:
            return None
        known = claims_in(state, like=own)
        others = [claim for claim in known if not _is_left(claim, own, request)]
        if not others:
            drops = [DropTag(claim.tag) for claim in known]
            engine.change_tags(identifier, [*drops, own.update(state, base.snapshot_id)])
            after = look(engine.catalog, identifier)
            others = [claim for claim in claims_in(after or state, like=own) if claim not in (own, *known)]
            if not others:
                return own
            engine.change_tags(identifier, [DropTag(own.tag)])
        if time.monotonic() >= report_at:
            report_at += _REPORT_SECONDS
            request.report(
                f"Waiting for run {others[0].run_id}, which writes the same partitions of {request.subject}. If that "
                f"run is dead, terminate it in Dagster, or drop the tag {others[0].tag!r} of the table."
            )
        sleep(random.uniform(0, _POLL_SECONDS))  # noqa: S311


def _is_left(claim: Claim, own: Claim, request: WriteRequest) -> bool:
    """Return whether nothing writes under the claim any more. An earlier attempt of the same run may have left it."""
    return claim.run_id == own.run_id or claim.is_abandoned(own.taken_at_ms, request.has_ended)


def _drop(engine: Engine, request: WriteRequest, claim: Claim) -> None:
    try:
        engine.change_tags(request.identifier, [DropTag(claim.tag)])
    except IcebergSparkError as error:  # the next run drops it, because this one has ended
        request.report(f"Could not drop the tag {claim.tag!r} of {request.identifier}. {error}")
