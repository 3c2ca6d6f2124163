"""Dagster asset checks that compare tables with the definitions of their assets."""

from collections.abc import Iterable, Sequence
from typing import Final, Literal

import dagster as dg

from dagster_iceberg_spark.assets.definition_checks import check_table
from dagster_iceberg_spark.assets.stored_tables import StoredAsset, stored_assets_in
from dagster_iceberg_spark.check.findings import CheckReport, Finding
from dagster_iceberg_spark.timeouts import STEP_SECONDS

CHECK_NAME: Final = "iceberg_table"
_COLUMNS: Final = dg.TableSchema(columns=[dg.TableColumn(name) for name in ("step", "subject", "outcome", "found")])


def build_table_checks(
    assets: Iterable[dg.AssetsDefinition],
    *,
    extent: Literal["table", "catalog"] = "table",
    namespace: str | None = None,
    seconds: float = STEP_SECONDS,
) -> Sequence[dg.AssetChecksDefinition]:
    """Build an asset check for each asset that shows whether its table matches its definition.

    A difference is a warning. A change that the next write would reject is an error, and so is a catalog that does not
    respond.

    Args:
        assets: Assets that an `IcebergPySparkIOManager` stores.
        extent: `table` compares the table with the definition. `catalog` first tests the catalog with the steps of
            `IcebergSparkResource.check`.
        namespace: An existing namespace for the table that `catalog` creates. Default: the check creates a namespace
            and drops it.
        seconds: Time limit of each step, in seconds.

    Example:
        >>> import dagster as dg
        >>> @dg.asset(io_manager_key="iceberg")
        ... def flights(): ...
        >>> [check.check_key.name for check in build_table_checks([flights])]
        ['iceberg_table']
    """
    return [_table_check(asset, extent, namespace, seconds) for asset in stored_assets_in(assets)]


def _table_check(stored: StoredAsset, extent: str, namespace: str | None, seconds: float) -> dg.AssetChecksDefinition:
    @stored.asset_check(CHECK_NAME, "Whether the asset's Iceberg table matches its definition.")
    def iceberg_table(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        hint = "build table checks for assets that it stores only."
        io_manager = stored.io_manager(context.resources, action="check", hint=hint)
        catalog_findings = (
            io_manager.spark.findings(namespace=namespace, seconds=seconds) if extent == "catalog" else ()
        )
        return _result(CheckReport((*catalog_findings, check_table(io_manager, stored.spec, seconds=seconds))))

    return iceberg_table


def _result(report: CheckReport) -> dg.AssetCheckResult:
    notable = [finding for finding in report.findings if finding.outcome != "ok"] or [report.findings[-1]]
    return dg.AssetCheckResult(
        passed=report.is_fit and not report.has_differences,
        severity=dg.AssetCheckSeverity.WARN if report.is_fit else dg.AssetCheckSeverity.ERROR,
        description=str(notable[0].found),
        metadata={"iceberg/findings": dg.MetadataValue.table([_record(item) for item in report.findings], _COLUMNS)},
    )


def _record(finding: Finding) -> dg.TableRecord:
    return dg.TableRecord(
        {"step": finding.step, "subject": finding.subject, "outcome": finding.outcome, "found": finding.found}
    )
