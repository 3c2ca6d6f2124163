"""Maintains tables that are seconds old, by the job that a user has."""

import datetime as dt
from collections.abc import Mapping
from typing import Any

import dagster as dg

from dagster_iceberg_spark import MaintenancePolicy, build_maintenance
from tests.lakes import Lake, error_of

ZERO = dt.timedelta(0)
AT_ONCE = MaintenancePolicy(
    min_input_files=2,
    min_manifests=2,
    min_snapshots=1,
    older_than=ZERO,
    retain_last=1,
    replayable_for=ZERO,
    resumable_for=ZERO,
    remove_orphans=False,
)
"""A policy for tables that are seconds old."""

PATIENT = AT_ONCE.model_copy(update={"replayable_for": dt.timedelta(days=7), "resumable_for": dt.timedelta(days=3)})
"""A policy that keeps what runs have read, and what failed runs may read again."""


def maintain(lake: Lake, *assets: Any, policy: MaintenancePolicy = AT_ONCE, **config: Any) -> Mapping[str, Any]:
    """Run the maintenance, and return what it has recorded of each asset."""
    result = run_job(lake, *assets, policy=policy, **config)
    assert result.success, error_of(result)
    observed = [event.asset_observation_data.asset_observation for event in result.get_asset_observation_events()]
    return {
        item.asset_key.path[-1]: {key: getattr(value, "records", value.value) for key, value in item.metadata.items()}
        for item in observed
    }


def run_job(lake: Lake, *assets: Any, policy: MaintenancePolicy = AT_ONCE, **config: Any) -> dg.ExecuteInProcessResult:
    definitions = dg.Definitions(
        [asset for asset in assets if not isinstance(asset, dg.AssetSpec)], resources=lake.resources
    )
    built = build_maintenance(assets, policy=policy).definitions
    job = dg.Definitions.merge(definitions, built).resolve_job_def("iceberg_maintenance")
    run_config = {"ops": {"maintain_table": {"config": config}}}
    return job.execute_in_process(instance=lake.instance, run_config=run_config, raise_on_error=False)


def done(metadata: Mapping[str, Any]) -> dict[str, str]:
    return {str(item.data["action"]): str(item.data["outcome"]) for item in metadata["iceberg/done"]}


def figures(metadata: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    rows = [item.data for item in metadata["iceberg/figures"]]
    return {str(row["figure"]): (float(row["before"]), float(row["after"])) for row in rows}
