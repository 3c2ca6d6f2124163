"""Runs of the same partitions that wait for each other.

docs/partitions.md: Two runs of the same partition
"""

import datetime as dt
import itertools
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from dagster_iceberg_spark.arrow.write.engine import ArrowEngine
from dagster_iceberg_spark.catalog.branches import change_tags
from dagster_iceberg_spark.catalog.look import look
from dagster_iceberg_spark.commit import waiting
from dagster_iceberg_spark.errors import CatalogUnavailableError, ConcurrentWriteError
from dagster_iceberg_spark.plan.options.output_options import WriteOptions
from dagster_iceberg_spark.plan.read.incremental import refuse_second
from dagster_iceberg_spark.table.claims import Claim, written_rows
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.lineage import Materialization
from dagster_iceberg_spark.table.scope import Dimension, PartitionScope, PartitionSlice
from dagster_iceberg_spark.table.updates import DropTag, SetTag
from tests.core.arrow.writing import ArrowLake, timed_writes
from tests.instances import shared_instance

T = TableIdentifier(("db",), "t")
KEYS = dg.StaticPartitionsDefinition(["a", "b"])
WAIT = {"iceberg/concurrent_writes": "wait", "partition_expr": "k"}
NOW_MS = 1_700_000_000_000


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ArrowLake]:
    monkeypatch.setattr(waiting, "_POLL_SECONDS", 0.1)
    with shared_instance(tmp_path) as instance:
        yield ArrowLake(tmp_path, instance)


def scope_of(*keys: str) -> PartitionScope:
    return PartitionScope((Dimension(None, "k"),), tuple((PartitionSlice(key),) for key in keys), keys)


def write(lake: ArrowLake, key: str, value: int, **options: Any) -> dg.ExecuteInProcessResult:
    rows = pa.table({"k": [key], "v": [value]})
    return lake.write(rows, key=key, partitions_def=KEYS, metadata=WAIT, **options)


def tags(lake: ArrowLake) -> list[str]:
    return sorted(lake.table().refs().keys() - {"main"})


def lines(lake: ArrowLake) -> str:
    """Return what the runs have logged."""
    runs = lake.instance.get_runs()
    return "\n".join(event.user_message for run in runs for event in lake.instance.all_logs(run.run_id))


def claim(lake: ArrowLake, run: dg.DagsterRun, *, key: str = "a") -> Claim:
    """Claim a partition of the table as a run does."""
    own = Claim(written_rows("t", "main", scope_of(key)), run.run_id, int(time.time() * 1000))
    head = lake.table().current_snapshot()
    assert head is not None
    change_tags(lake.spark.catalog_description, T, [SetTag(own.tag, head.snapshot_id, 2)])
    return own


def run_of(lake: ArrowLake, status: dg.DagsterRunStatus) -> dg.DagsterRun:
    return lake.instance.create_run_for_job(dg.job(name="other")(lambda: None), status=status)


def test_writes_of_a_partition_never_overlap(lake: ArrowLake, monkeypatch: pytest.MonkeyPatch) -> None:
    write(lake, "a", 0)
    write(lake, "b", 0)
    spans = timed_writes(monkeypatch, seconds=0.3)
    with ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(write, lake, key, value) for value, key in enumerate("aaabb", 1)]
        assert all(run.result().success for run in runs)
    for key, count in (("a", 3), ("b", 2)):
        own = sorted((began, ended) for name, began, ended in spans if name == key)
        assert len(own) == count, "no run writes twice, or is planned again"
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(own))
    assert tags(lake) == []
    assert [key for key, _ in lake.rows("k", "v")] == ["a", "b"]


def test_a_run_waits_until_the_other_has_ended(lake: ArrowLake) -> None:
    write(lake, "a", 1)
    other = run_of(lake, dg.DagsterRunStatus.STARTED)
    own = claim(lake, other)
    write(lake, "b", 1)
    with ThreadPoolExecutor(1) as pool:
        waiting, until = pool.submit(write, lake, "a", 2), time.monotonic() + 30
        while f"Waiting for run {other.run_id}, which writes the same partitions of db.t" not in lines(lake):
            assert not waiting.done()
            assert time.monotonic() < until
            time.sleep(0.05)
        assert tags(lake) == [own.tag]
        assert lake.rows("v") == [1, 1]
        lake.instance.report_run_canceled(other)
        assert waiting.result().success
    assert tags(lake) == [], "the claim of a run that has ended is dropped"
    assert lake.rows("v") == [1, 2]


def test_a_catalog_that_is_away_for_a_moment_is_asked_again(lake: ArrowLake, monkeypatch: pytest.MonkeyPatch) -> None:
    write(lake, "a", 1)
    own, failures = ArrowEngine.change_tags, [CatalogUnavailableError("The catalog is away.")]

    def failing(engine: ArrowEngine, identifier: Any, changes: Any) -> bool:
        if failures:
            raise failures.pop()
        return own(engine, identifier, changes)

    monkeypatch.setattr(ArrowEngine, "change_tags", failing)
    assert write(lake, "a", 2).success
    assert (tags(lake), lake.rows("v")) == ([], [2])


@pytest.mark.parametrize("status", [dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.SUCCESS])
def test_the_claim_of_a_run_that_has_ended_does_not_count(lake: ArrowLake, status: dg.DagsterRunStatus) -> None:
    write(lake, "a", 1)
    claim(lake, run_of(lake, status))
    assert write(lake, "a", 2).success
    assert (tags(lake), lake.rows("v")) == ([], [2])


def test_a_write_that_fails_drops_its_claim(lake: ArrowLake) -> None:
    write(lake, "a", 1)
    with pytest.raises(Exception, match="Cannot write"):
        lake.write(pa.table({"k": ["b"], "v": [1]}), key="a", partitions_def=KEYS, metadata=WAIT)
    assert tags(lake) == []


def test_a_claim_that_cannot_be_dropped_fails_no_write(lake: ArrowLake, monkeypatch: pytest.MonkeyPatch) -> None:
    write(lake, "a", 1)
    own = ArrowEngine.change_tags

    def failing(engine: ArrowEngine, identifier: Any, changes: Any) -> bool:
        if any(isinstance(change, DropTag) for change in changes):
            raise CatalogUnavailableError("The catalog is away.")
        return own(engine, identifier, changes)

    monkeypatch.setattr(ArrowEngine, "change_tags", failing)
    assert write(lake, "a", 2).success
    assert "Could not drop the tag 'dagster_write_" in lines(lake)
    assert len(tags(lake)) == 1
    monkeypatch.undo()
    assert write(lake, "a", 3).success
    assert (tags(lake), lake.rows("v")) == ([], [3])


def test_a_catalog_that_keeps_no_tags_is_refused(lake: ArrowLake, monkeypatch: pytest.MonkeyPatch) -> None:
    write(lake, "a", 1)
    monkeypatch.setattr(ArrowEngine, "change_tags", lambda *_: True)
    with pytest.raises(dg.Failure, match="expected a catalog that keeps the tags of tables"):
        write(lake, "a", 2)
    assert lake.rows("v") == [1]


def test_a_write_outside_of_a_run_does_not_wait(lake: ArrowLake) -> None:
    write(lake, "a", 1)
    claim(lake, run_of(lake, dg.DagsterRunStatus.STARTED))
    with dg.build_output_context(
        asset_key="t", asset_partitions_def=KEYS, partition_key="a", definition_metadata=WAIT, resources={}
    ) as context:
        lake.io_manager.handle_output(context, pa.table({"k": ["a"], "v": [2]}))
    assert lake.rows("v") == [2]


@pytest.mark.parametrize("concurrent_writes", ["last_wins", "wait", "first_wins"])
def test_only_with_first_wins_a_later_commit_is_refused(lake: ArrowLake, concurrent_writes: Any) -> None:
    """A merge into a history knows when the run began, whatever the key says."""
    write(lake, "a", 1)
    state, options = look(lake.spark.catalog_description, T), WriteOptions(concurrent_writes=concurrent_writes)
    own = Materialization(
        asset_key="t",
        run_id="other",
        job=None,
        step_key=None,
        scope=scope_of("a"),
        code_version=None,
        upstream=(),
        write_disposition="merge",
        commit_token="token",
        package_version="1",
        started_at=dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc),
    )
    refused = pytest.raises(ConcurrentWriteError) if concurrent_writes == "first_wins" else nullcontext()
    with refused:
        refuse_second(state, own, options, subject="db.t")


@pytest.mark.parametrize(
    ("first", "second", "overlap"),
    [
        (("t", "main", scope_of("a")), ("t", "main", scope_of("a")), True),
        (("t", "main", scope_of("a")), ("t", "main", scope_of("b")), False),
        (("t", "main", scope_of("a")), ("t", "main", scope_of("b", "c")), True),
        (("t", "main", PartitionScope()), ("t", "main", scope_of("b")), True),
        (("t", "main", scope_of("a")), ("t", "env_x", scope_of("a")), False),
        (("t", "main", scope_of("a")), ("u", "main", scope_of("a")), False),
    ],
)
def test_claims_overlap_by_asset_branch_and_partition(first: Any, second: Any, *, overlap: bool) -> None:
    one, other = Claim(written_rows(*first), "r1", NOW_MS), Claim(written_rows(*second), "r2", NOW_MS)
    assert (one.overlaps(other), other.overlaps(one)) == (overlap, overlap)
