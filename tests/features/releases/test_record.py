"""What Dagster has recorded of the assets of a release.

docs/releases.md: What blocks a release
"""

from collections.abc import Mapping
from types import MappingProxyType

import dagster as dg

from dagster_iceberg_spark.assets.dagster_private.event_log import RecordedEvent
from dagster_iceberg_spark.assets.read_log import StepInput
from dagster_iceberg_spark.features.releases.release_step import StagedMaterialization, staged_materializations

KEY = dg.AssetKey("t")


def stored(snapshot_id: int, partition: str | None = None, *, run: str = "r1", step: str = "t") -> RecordedEvent:
    metadata = {"iceberg/snapshot_id": str(snapshot_id), "iceberg/commit_token": f"token {snapshot_id}"}
    return RecordedEvent(run, step, dg.AssetMaterialization(KEY, partition=partition, metadata=metadata))


def checked(
    name: str, snapshot_id: int | None = None, *, passed: bool = True, warns: bool = False, step: str = "check"
) -> RecordedEvent:
    severity = dg.AssetCheckSeverity.WARN if warns else dg.AssetCheckSeverity.ERROR
    metadata = {} if snapshot_id is None else {"iceberg/snapshot_id": str(snapshot_id)}
    evaluation = dg.AssetCheckEvaluation(KEY, name, passed=passed, metadata=metadata, severity=severity)
    return RecordedEvent("r1", step, evaluation)


def recorded(
    *events: RecordedEvent, reads: Mapping[StepInput, frozenset[int]] = MappingProxyType({})
) -> StagedMaterialization:
    return staged_materializations(events, reads)[KEY]


def unaudited(*events: RecordedEvent, **reads: int) -> tuple[str, ...]:
    """Return what is wrong with the check `c`. `reads` has the snapshot that each step has read of the asset."""
    read = {("r1", step, "t"): frozenset({snapshot_id}) for step, snapshot_id in reads.items()}
    return recorded(*events, reads=read).audit_gaps(["c"])


def test_partitions_of_one_snapshot_are_collected() -> None:
    found = recorded(stored(1, "a"), stored(2, "a"), stored(2, "b"), stored(2, "b"))
    assert (found.snapshot_id, found.token, found.partitions) == (2, "token 2", ("a", "b"))


def test_a_check_counts_if_its_step_has_read_or_staged_the_snapshot_or_if_its_metadata_names_it() -> None:
    assert unaudited(stored(1), checked("c"), check=1) == ()
    assert unaudited(checked("c", step="t"), stored(1)) == ()
    assert unaudited(stored(1), checked("c", 1)) == ()


def test_a_check_that_has_looked_at_other_rows_does_not_count() -> None:
    assert unaudited(stored(2)) == ("`c` has not been evaluated",)
    assert unaudited(stored(2), checked("c")) == ("`c` does not say which snapshot it has looked at",)
    assert unaudited(stored(2), checked("c", 1)) == ("`c` has looked at snapshot 1",)
    assert unaudited(stored(1), checked("c"), stored(2), check=1) == ("`c` has looked at snapshot 1",)
    assert unaudited(stored(2), checked("c"), other=2) == ("`c` does not say which snapshot it has looked at",)


def test_the_newest_evaluation_of_the_snapshot_counts() -> None:
    failed = checked("c", 1, passed=False)
    assert unaudited(stored(1), failed) == ("`c` has failed",)
    assert unaudited(stored(1), failed, checked("c", 1)) == ()
    assert unaudited(stored(1), checked("c", 1), failed) == ("`c` has failed",)
    assert unaudited(stored(1), failed, checked("c")) == ("`c` has failed",)
    assert unaudited(stored(1), checked("c"), checked("c", 1)) == ()


def test_a_warning_does_not_keep_the_release_back() -> None:
    assert unaudited(stored(1), checked("c", 1, passed=False, warns=True)) == ()


def test_materializations_of_other_io_managers_are_ignored() -> None:
    assert staged_materializations([RecordedEvent("r1", "t", dg.AssetMaterialization(KEY))], {}) == {}
