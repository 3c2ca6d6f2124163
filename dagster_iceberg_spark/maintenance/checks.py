"""Asset checks that show the health of tables."""

from collections.abc import Iterable, Sequence
from typing import Final

import dagster as dg

from dagster_iceberg_spark.asset_tables import StoredAsset, stored_assets_in
from dagster_iceberg_spark.final_errors import final_errors
from dagster_iceberg_spark.maintenance.health import health_of, policy_of
from dagster_iceberg_spark.plan.maintenance_policy import MaintenancePolicy

CHECK_NAME: Final = "iceberg_health"
HINT: Final = "pass assets that it stores only."


def build_health_checks(
    assets: Iterable[dg.AssetsDefinition | dg.AssetSpec], *, policy: MaintenancePolicy | None = None
) -> Sequence[dg.AssetChecksDefinition]:
    """Build an asset check for each asset that shows the health of its table: small files, deletes, snapshots.

    A table that needs maintenance is a warning. The figures are the metadata of the check, so the UI plots them. The
    check reads metadata and manifests, and starts no Spark session.

    Args:
        assets: Assets that an `IcebergPySparkIOManager` stores, or specs with its key (`with_io_manager_key`).
        policy: The thresholds.

    Example:
        >>> import dagster as dg
        >>> @dg.asset(io_manager_key="iceberg")
        ... def flights(): ...
        >>> [check.check_key.name for check in build_health_checks([flights])]
        ['iceberg_health']
    """
    return health_checks(stored_assets_in(assets), policy or MaintenancePolicy())


def health_checks(specs: Iterable[StoredAsset], policy: MaintenancePolicy) -> Sequence[dg.AssetChecksDefinition]:
    """Return the health check of each asset."""
    return [_health_check(item, policy) for item in specs]


def _health_check(stored: StoredAsset, policy: MaintenancePolicy) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=stored.spec.key,
        name=CHECK_NAME,
        description="Whether the asset's Iceberg table needs maintenance.",
        required_resource_keys={stored.io_manager_key},
    )
    def iceberg_health(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        with final_errors():
            io_manager = stored.io_manager(context.resources, action="check the health of", hint=HINT)
            table = health_of(
                io_manager.spark.catalog_description,
                io_manager.table_of(stored.spec),
                policy_of(io_manager, [stored.spec], policy) or policy,
            )
        warning = dg.AssetCheckSeverity.WARN
        if table is None:
            return dg.AssetCheckResult(passed=True, description="The table does not exist yet.")
        if table.health is None:
            return dg.AssetCheckResult(passed=False, description=f"Cannot tell. {table.error}")
        figures = {f"iceberg/{name}": value for name, value in table.health.figures().items() if value is not None}
        return dg.AssetCheckResult(
            passed=table.is_healthy,
            severity=warning,
            description=" ".join(f"Needs {need}." for need in table.health.needs) or "Healthy.",
            metadata=figures,
        )

    return iceberg_health
