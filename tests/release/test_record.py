"""What Dagster has recorded of the assets of a release."""

import dagster as dg

from dagster_iceberg_spark.dagster_private import RecordedEvent
from dagster_iceberg_spark.release.record import StagedMaterialization, staged_materializations

KEY = dg.AssetKey("t")


def stored(snapshot_id: int, partition: str | None = None, *, run: str = "r1", step: str = "t") -> RecordedEvent:
    metadata = {"iceberg/snapshot_id": str(snapshot_id), "iceberg/commit_token": f"token {snapshot_id}"}
    return RecordedEvent(run, step, dg.AssetMaterialization(KEY, partition=partition, metadata=metadata))


def checked(
    name: str, *, passed: bool = True, warns: bool = False, run: str = "r1", step: str = "check"
) -> RecordedEvent:
    severity = dg.AssetCheckSeverity.WARN if warns else dg.AssetCheckSeverity.ERROR
    evaluation = dg.AssetCheckEvaluation(KEY, name, passed=passed, metadata={}, severity=severity)
    return RecordedEvent(run, step, evaluation)


def recorded(*events: RecordedEvent) -> StagedMaterialization:
    return staged_materializations(events)[KEY]


def test_partitions_of_one_snapshot_are_collected() -> None:
    found = recorded(stored(1, "a"), stored(2, "a"), stored(2, "b"), stored(2, "b"))
    assert (found.snapshot_id, found.token, found.partitions) == (2, "token 2", ("a", "b"))


def test_checks_count_after_the_materialization_or_within_its_step() -> None:
    assert recorded(checked("early"), stored(1), checked("late")).checks == {"late": True}
    assert recorded(checked("within", step="t"), stored(1)).checks == {"within": True}
    assert recorded(checked("within", step="t", run="r0"), stored(1)).checks == {}
    assert recorded(stored(1), checked("before"), stored(2)).checks == {}
    assert recorded(stored(1), checked("again", passed=False), checked("again", run="r2")).checks == {"again": True}


def test_a_warning_does_not_keep_the_release_back() -> None:
    found = recorded(stored(1), checked("warned", passed=False, warns=True), checked("failed", passed=False))
    assert found.unaudited(["warned"]) == ()
    assert found.unaudited(["missing", "failed"]) == ("`failed` has failed", "`missing` has not been evaluated")


def test_materializations_of_other_io_managers_are_ignored() -> None:
    assert staged_materializations([RecordedEvent("r1", "t", dg.AssetMaterialization(KEY))]) == {}
