"""The lineage in a snapshot's summary."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_iceberg_spark.table import lineage
from dagster_iceberg_spark.table.lineage import Materialization, UpstreamRead, commit_token, upstream_document
from dagster_iceberg_spark.table.scope import PartitionScope
from tests.core.table.samples import keyed

READS = st.builds(
    UpstreamRead, st.text(max_size=99), st.text(max_size=99), st.none() | st.integers(), st.none() | st.text()
)
EVERYTHING = {"run_id": "r", "output": "a/b", "scope": keyed("x", "y"), "branch": "main"}


def materialization(**changes: object) -> Materialization:
    given = {
        "asset_key": "nyc/flights",
        "run_id": "run-1",
        "job": "job-1",
        "step_key": "step-1",
        "scope": keyed("AA"),
        "code_version": "v1",
        "upstream": (),
        "write_disposition": "replace",
        "commit_token": "t" * 32,
        "package_version": "0.1.0",
        **changes,
    }
    return Materialization(**given)  # type: ignore[arg-type]


def test_every_attempt_of_a_materialization_has_the_same_token() -> None:
    assert commit_token(**EVERYTHING) == commit_token(**{**EVERYTHING, "scope": keyed("y", "x")})  # type: ignore[arg-type]
    assert len(commit_token(**EVERYTHING)) == 32  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [{"run_id": "r2"}, {"output": "a"}, {"scope": keyed("x")}, {"scope": PartitionScope()}, {"branch": "audit"}],
    ids=str,
)
def test_another_materialization_has_another_token(change: dict[str, object]) -> None:
    assert commit_token(**EVERYTHING) != commit_token(**{**EVERYTHING, **change})  # type: ignore[arg-type]


def test_parts_of_a_token_are_separated() -> None:
    first = commit_token(run_id="ab", output="c", scope=keyed("x"), branch="main")
    assert first != commit_token(run_id="a", output="bc", scope=keyed("x"), branch="main")


@given(st.lists(READS, max_size=30))
def test_the_json_of_the_inputs_is_bounded(reads: list[UpstreamRead]) -> None:
    document = upstream_document(reads)
    assert len(document.encode()) <= 2048
    content = json.loads(document)
    assert content["count"] == len(reads) if isinstance(content, dict) else len(content) == len(reads)


def test_inputs_that_fit_are_listed() -> None:
    document = upstream_document([UpstreamRead("raw/flights", "raw.flights", 42, "2024-01-01")])
    assert json.loads(document) == [
        {"asset": "raw/flights", "table": "raw.flights", "snapshot_id": 42, "scope": "2024-01-01"}
    ]


def test_inputs_that_do_not_fit_are_distinguished_by_a_digest() -> None:
    many = [UpstreamRead(f"asset_{number}", "t", number, None) for number in range(99)]
    first, second = json.loads(upstream_document(many)), json.loads(upstream_document([*many[:-1], many[0]]))
    assert first["count"] == second["count"] == 99
    assert first["digest"] != second["digest"]


@pytest.mark.parametrize("disposition", ["replace", "append", "merge"])
def test_the_snapshot_carries_the_whole_lineage_in_every_disposition(disposition: str) -> None:
    assert materialization(write_disposition=disposition).properties() == {
        "dagster.asset_key": "nyc/flights",
        "dagster.run_id": "run-1",
        "dagster.job": "job-1",
        "dagster.step_key": "step-1",
        "dagster.partition_keys": "AA",
        "dagster.partition_digest": keyed("AA").digest,
        "dagster.code_version": "v1",
        "dagster.commit_token": "t" * 32,
        "dagster.upstream": "[]",
        "dagster.write_disposition": disposition,
        "dagster_iceberg_spark.version": "0.1.0",
    }


def test_unknown_lineage_is_omitted() -> None:
    properties = materialization(job=None, step_key=None, code_version=None, scope=PartitionScope()).properties()
    missing = {lineage.JOB, lineage.STEP_KEY, lineage.CODE_VERSION, lineage.PARTITION_KEYS}
    assert missing.isdisjoint(properties)
    assert properties[lineage.PARTITION_DIGEST] == PartitionScope().digest


def test_keys_are_lower_case_and_values_are_strings() -> None:
    for key, value in materialization().properties().items():
        assert key == key.lower()
        assert isinstance(value, str)
