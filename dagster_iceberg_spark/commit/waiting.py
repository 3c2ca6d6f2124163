"""Waits until no other run writes the same partitions (`iceberg/concurrent_writes`)."""

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from time import sleep
from typing import Final

import tenacity

from dagster_iceberg_spark.catalog.look import look
from dagster_iceberg_spark.commit.engine import Engine
from dagster_iceberg_spark.errors import ConfigurationError, IcebergSparkError, RetryableError
from dagster_iceberg_spark.plan.options.output_options import CONCURRENT_WRITES
from dagster_iceberg_spark.plan.write.write_request import WriteRequest
from dagster_iceberg_spark.table.claims import Claim, written_rows
from dagster_iceberg_spark.table.lineage import RUN_WITHOUT_STEP
from dagster_iceberg_spark.table.updates import DropTag, TagUpdate
from dagster_iceberg_spark.timeouts import FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS

_POLL_SECONDS: Final = 2.0
_REPORT_SECONDS: Final = 60.0


@contextmanager
def claimed(engine: Engine, request: WriteRequest) -> Iterator[None]:
    """Claim the partitions of a write inside the block, once no other run has claimed them.

    A table without a snapshot takes no tag, so its first writes do not wait. A write outside of a run does not either.
    """
    is_in_run = request.materialization.run_id != RUN_WITHOUT_STEP
    waits = is_in_run and request.table.options.concurrent_writes == "wait"
    claim = _take(engine, request) if waits else None
    try:
        yield
    finally:
        if claim is not None:
            _drop(engine, request, claim)


def _take(engine: Engine, request: WriteRequest) -> Claim | None:
    """Return the claim, or None in a table that takes no tag."""
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(RetryableError),
        stop=tenacity.stop_after_attempt(request.limits.attempts),
        wait=tenacity.wait_random_exponential(multiplier=FIRST_WAIT_SECONDS, max=LONGEST_WAIT_SECONDS),
        reraise=True,
    )
    report_at = time.monotonic()
    while True:
        claim, other = retrying(_try, engine, request)
        if other is None:
            return claim
        if time.monotonic() >= report_at:
            report_at += _REPORT_SECONDS
            request.report(
                f"Waiting for run {other.run_id}, which writes the same partitions of {request.subject}. If that run "
                f"is dead, terminate it in Dagster, or drop the tag {other.tag!r} of the table."
            )
        sleep(random.uniform(0, _POLL_SECONDS))  # noqa: S311


def _try(engine: Engine, request: WriteRequest) -> tuple[Claim | None, Claim | None]:
    """Set the claim if there is no other one. Return it, or the claim of another run."""
    identifier, materialization = request.identifier, request.materialization
    branch = request.table.options.branch
    what = written_rows(materialization.asset_key, branch, materialization.scope)
    own = Claim(what, materialization.run_id, int(time.time() * 1000))
    state = look(engine.catalog, identifier)
    base = state.base(branch) if state else None
    if state is None or base is None:
        return None, None
    # An earlier attempt of the same run may have left its claim.
    others, left = own.rivals_in(state, lambda run_id: run_id == own.run_id or request.has_ended(run_id))
    if others:
        return None, others[0]
    changes: list[TagUpdate] = [*(DropTag(claim.tag) for claim in left), own.update(state, base.snapshot_id)]
    if not engine.change_tags(identifier, changes):
        return None, None
    after = look(engine.catalog, identifier)
    if after is None or own.tag not in after.refs:
        raise ConfigurationError.refusing(
            "write",
            request.subject,
            expected=f"a catalog that keeps the tags of tables, for `{CONCURRENT_WRITES}`: `wait`",
            found=f"none in the {engine.catalog}",
            hint="leave the key out, and use a concurrency pool of Dagster.",
        )
    others = own.others_in(after, but=left)
    if not others:
        return own, None
    engine.change_tags(identifier, [DropTag(own.tag)])
    return None, others[0]


def _drop(engine: Engine, request: WriteRequest, claim: Claim) -> None:
    try:
        engine.change_tags(request.identifier, [DropTag(claim.tag)])
    except Exception as error:  # noqa: BLE001 - the rows are committed, and the next run drops the tag
        found = error if isinstance(error, IcebergSparkError) else type(error).__name__
        request.report(f"Could not drop the tag {claim.tag!r} of {request.identifier}: {found}")
