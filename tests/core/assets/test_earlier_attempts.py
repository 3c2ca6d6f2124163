"""What is known of the earlier attempts of a step."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import dagster as dg
import pytest

from dagster_iceberg_spark.assets.dagster_private.context import StepFacts, step_facts
from dagster_iceberg_spark.assets.write_requests import announce, earlier_attempts, record_of, token_candidates
from dagster_iceberg_spark.plan.write.write_request import RemoteAttempt, TokenCandidate
from dagster_iceberg_spark.table.lineage import commit_token
from dagster_iceberg_spark.table.scope import PartitionScope
from tests.core.table.samples import keyed
from tests.instances import local_instance

FLIGHTS = dg.AssetKey("flights")
ALL = PartitionScope()


@pytest.fixture
def instance(tmp_path: Any) -> Iterator[dg.DagsterInstance]:
    with local_instance(tmp_path) as instance:
        yield instance


class Handles(dg.IOManager):
    """Calls a function with the facts of the step."""

    def __init__(self, handles: Callable[[StepFacts], Any]) -> None:
        self.handles = handles

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        del obj
        facts = step_facts(context)
        assert facts is not None
        self.handles(facts)
        context.add_output_metadata({"iceberg/snapshot_id": dg.MetadataValue.int(7)})

    def load_input(self, context: dg.InputContext) -> None: ...


def facts_of_run(
    instance: dg.DagsterInstance,
    handles: Callable[[StepFacts], Any] = lambda _: None,
    *,
    passes: bool | None = None,
    **of: Any,
) -> StepFacts:
    """Materialize the asset, with a blocking check if `passes` is given, and return the facts of its step."""
    found: list[StepFacts] = []

    @dg.asset(io_manager_key="iceberg")
    def flights() -> int:
        return 1

    @dg.asset_check(asset=flights, blocking=True)
    def has_rows() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=bool(passes))

    def handle(facts: StepFacts) -> None:
        found.append(facts)
        handles(facts)

    definitions = [flights] if passes is None else [flights, has_rows]
    resources = {"iceberg": Handles(handle)}
    dg.materialize(definitions, instance=instance, resources=resources, raise_on_error=False, **of)
    return found[0]


def candidates_of(facts: StepFacts | None, scope: PartitionScope = ALL) -> tuple[TokenCandidate, ...]:
    return token_candidates(facts, output="flights", scope=scope, branch="main")


def test_a_first_attempt_looks_for_its_own_token(instance: dg.DagsterInstance) -> None:
    facts = facts_of_run(instance)
    [candidate] = candidates_of(facts)
    assert candidate.token == commit_token(run_id=facts.run_id, output="flights", scope=ALL, branch="main")
    assert (candidate.is_same_run, candidate.has_begun) == (True, False)
    assert candidate.run_started_at_ms is not None


def test_a_retry_knows_that_its_run_has_begun(instance: dg.DagsterInstance) -> None:
    [candidate] = candidates_of(replace(facts_of_run(instance), attempt=1))
    assert candidate.has_begun


def test_a_resumed_run_looks_for_the_tokens_of_those_before(instance: dg.DagsterInstance) -> None:
    first = facts_of_run(instance)
    tags = {"dagster/parent_run_id": first.run_id, "dagster/is_resume_retry": "true"}
    second = facts_of_run(instance, tags=tags)
    own, earlier = candidates_of(second)
    assert (own.run_id, own.is_same_run) == (second.run_id, True)
    assert (earlier.run_id, earlier.is_same_run, earlier.has_begun) == (first.run_id, False, True)


def test_partitions_have_tokens_of_their_own(instance: dg.DagsterInstance) -> None:
    facts = facts_of_run(instance)
    tokens = {candidates_of(facts, scope)[0].token for scope in (ALL, keyed("EWR"), keyed("JFK"))}
    assert len(tokens) == 3


def test_a_script_and_a_first_attempt_of_an_ephemeral_instance_look_for_none() -> None:
    assert candidates_of(None) == ()
    with dg.DagsterInstance.ephemeral() as instance:
        facts = facts_of_run(instance)
        assert candidates_of(facts) == ()
        assert len(candidates_of(replace(facts, attempt=1))) == 1


@pytest.mark.parametrize(
    ("passes", "snapshot_id", "record"),
    [(None, 7, "recorded"), (True, 7, "recorded"), (False, 7, "rejected"), (None, 8, "none")],
)
def test_a_snapshot_is_recorded_unless_its_blocking_check_failed(
    instance: dg.DagsterInstance, *, passes: bool | None, snapshot_id: int, record: str
) -> None:
    facts = facts_of_run(instance, passes=passes)
    assert record_of(facts, FLIGHTS, ALL, candidates_of(facts), snapshot_id) == record


def test_a_script_records_no_snapshot() -> None:
    assert record_of(None, FLIGHTS, ALL, (), 7) == "none"


def test_an_attempt_is_found_by_the_next_one_under_its_tag(instance: dg.DagsterInstance) -> None:
    def announced(facts: StepFacts) -> None:
        [candidate] = candidates_of(facts)
        attempt = RemoteAttempt(candidate.tag, "session", "user", "host:15002")
        announce(facts, "nyc.flights", attempt)
        announce(facts, "nyc.flights", replace(attempt, tag="another", session_id="other"))

    facts = facts_of_run(instance, announced)
    candidates = candidates_of(facts)
    assert earlier_attempts(facts, candidates) == (RemoteAttempt(candidates[0].tag, "session", "user", "host:15002"),)
    assert earlier_attempts(None, candidates) == ()
