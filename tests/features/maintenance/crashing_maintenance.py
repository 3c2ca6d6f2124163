"""The maintenance of a table whose process dies at a chosen moment, as a program of its own."""

import sys
from pathlib import Path
from typing import Any, Final

import dagster as dg

from dagster_iceberg_spark import build_maintenance
from dagster_iceberg_spark.features.maintenance import spark as procedures
from dagster_iceberg_spark.features.maintenance import table_maintenance as maintenance
from dagster_iceberg_spark.features.maintenance.plan.actions import (
    Compact,
    DeleteRows,
    ExpireSnapshots,
    RemoveOrphans,
    RewriteManifests,
    RewritePositionDeletes,
)
from tests.core.behaviour.crashing import Crash, wrap
from tests.features.maintenance.maintaining import PATIENT
from tests.lakes import hours_asset

ACTIONS: Final = {
    "the deletion of rows": DeleteRows,
    "compaction": Compact,
    "the rewrite of position deletes": RewritePositionDeletes,
    "the rewrite of manifests": RewriteManifests,
    "expiry": ExpireSnapshots,
    "the removal of orphans": RemoveOrphans,
}
POLICY: Final = PATIENT.model_copy(update={"remove_orphans": True, "target_file_bytes": 10_000})

events = hours_asset(
    "events",
    partitions_def=dg.DailyPartitionsDefinition("2013-01-01"),
    metadata={
        "partition_expr": "ts",
        "iceberg/write_disposition": "append",
        "iceberg/retain": "4000 days",
        "iceberg/table_properties": {"write.delete.mode": "merge-on-read", "write.delete.granularity": "partition"},
    },
)


def arm(crash: Crash) -> None:
    """Arrange for the crash, unless it has been."""
    when, _, what = crash.point.partition(" ")
    if crash.mark.exists() or crash.point == "never":
        return
    match when, what:
        case "after", "the tags":
            wrap(maintenance.TableMaintenance, "_done", before=lambda *_: crash.die())
        case "while", "files are compacted":
            _during(crash, Compact, "*.parquet")
        case "while", "manifests are rewritten":
            _during(crash, RewriteManifests, "*.avro")
        case "after", "the summaries are kept":
            wrap(procedures, "keep_summaries", after=lambda *_: crash.die())
        case "after", "orphans are removed":
            wrap(procedures, "_removed", after=lambda *_: crash.die())
        case _:
            _around(crash, when, ACTIONS[what])


def _around(crash: Crash, when: str, action: type) -> None:
    def die(_: Any, __: Any, chosen: Any, *___: Any) -> None:
        if isinstance(chosen, action):
            crash.die()

    wrap(maintenance.TableMaintenance, "_outcome", **{when: die})


def _during(crash: Crash, action: type, files: str) -> None:
    def count() -> int:
        return len([*Path(crash.directory, "wh", "db", "events").rglob(files)])

    def watch(_: Any, __: Any, chosen: Any, *___: Any) -> None:
        if isinstance(chosen, action):
            known = count()
            crash.die_when(lambda: count() > known)

    wrap(maintenance.TableMaintenance, "_outcome", before=watch)


def maintain(crash: Crash) -> bool:
    """Maintain the table in this process."""
    definitions = dg.Definitions([events], resources=crash.resources())
    built = build_maintenance([events], policy=POLICY).definitions
    job = dg.Definitions.merge(definitions, built).resolve_job_def("iceberg_maintenance")
    with dg.DagsterInstance.local_temp(crash.instance) as instance:
        return job.execute_in_process(instance=instance, raise_on_error=False).success


if __name__ == "__main__":
    told = Crash.told()
    arm(told)
    sys.exit(0 if maintain(told) else 1)
