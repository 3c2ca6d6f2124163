"""Asset checks that compare mirrors with tables."""

from collections.abc import Iterable, Sequence
from typing import Final

import dagster as dg

from dagster_iceberg_spark.assets.final_errors import final_errors
from dagster_iceberg_spark.assets.stored_tables import StoredAsset, stored_assets_in
from dagster_iceberg_spark.errors import IcebergSparkError
from dagster_iceberg_spark.features.mirror.observer import mirror_of

CHECK_NAME: Final = "iceberg_mirror"


def build_mirror_checks(
    assets: Iterable[dg.AssetsDefinition | dg.AssetSpec],
) -> Sequence[dg.AssetChecksDefinition]:
    """Build an asset check for each asset that shows whether its mirror is current.

    A mirror that is behind, or that another writer has changed, is a warning. The check reads metadata and manifests,
    and starts no Spark session.

    Args:
        assets: Assets that an `IcebergPySparkIOManager` with a `mirror` stores.

    Example:
        >>> import dagster as dg
        >>> @dg.asset(io_manager_key="iceberg")
        ... def flights(): ...
        >>> [check.check_key.name for check in build_mirror_checks([flights])]
        ['iceberg_mirror']
    """
    return [_mirror_check(asset) for asset in stored_assets_in(assets)]


def _mirror_check(stored: StoredAsset) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=stored.spec.key,
        name=CHECK_NAME,
        description="Whether the mirror of the asset's Iceberg table shows its newest snapshot.",
        required_resource_keys={stored.io_manager_key},
    )
    def iceberg_mirror(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        with final_errors():
            hint = "build mirror checks for assets that it stores only."
            io_manager = stored.io_manager(context.resources, action="check the mirrors of", hint=hint)
            mirror = mirror_of(io_manager, stored.spec)
        if mirror is None:
            return dg.AssetCheckResult(passed=True, description="The table is not mirrored.")
        catalog, identifier = io_manager.spark.catalog_description, io_manager.table_of(stored.spec)
        try:
            problems = mirror.problems(catalog, identifier)
        except IcebergSparkError as error:
            problems = [str(error)]
        return dg.AssetCheckResult(
            passed=not problems,
            severity=dg.AssetCheckSeverity.WARN,
            description=" ".join(problems) or f"{mirror} is current.",
        )

    return iceberg_mirror
