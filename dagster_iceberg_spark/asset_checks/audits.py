"""Dagster asset checks that show the audits of assets."""

from collections.abc import Iterable, Iterator, Sequence

import dagster as dg

from dagster_iceberg_spark.addressing import plain_metadata
from dagster_iceberg_spark.asset_checks.io_managers import io_manager_of
from dagster_iceberg_spark.dagster_private import recorded_evaluation
from dagster_iceberg_spark.outputs.audits import audit_metadata, severity_of
from dagster_iceberg_spark.plan.options import AUDITS, parse_key
from dagster_iceberg_spark.table.audit import Audit, AuditResult


def build_audit_checks(assets: Iterable[dg.AssetsDefinition]) -> Sequence[dg.AssetChecksDefinition]:
    """Build an asset check for each audit of the assets (`iceberg/audits`).

    The IO manager evaluates the audits when it stores the asset, before the rows are published, and records the results
    as those of these checks. In the same run, the checks show these results. Run alone, they evaluate the rows that are
    published.

    Args:
        assets: Assets that an `IcebergPySparkIOManager` stores. Those without audits have no checks.

    Raises:
        MetadataKeyError: The audits of an asset are invalid.

    Example:
        >>> import dagster as dg
        >>> @dg.asset(io_manager_key="iceberg", metadata={"iceberg/audits": {"not_empty": "count(*) > 0"}})
        ... def flights(): ...
        >>> [key.name for check in build_audit_checks([flights]) for key in check.check_keys]
        ['not_empty']
    """
    return [
        _audit_checks(spec, audits, definition.get_io_manager_key_for_asset_key(spec.key))
        for definition in assets
        for spec in definition.specs
        if (audits := parse_key(AUDITS, plain_metadata(spec.metadata), subject=spec.key.to_user_string()))
    ]


def _audit_checks(spec: dg.AssetSpec, audits: Sequence[Audit], io_manager_key: str) -> dg.AssetChecksDefinition:
    specs = [dg.AssetCheckSpec(audit.name, asset=spec.key, description=f"The audit: {audit.rule}.") for audit in audits]

    @dg.multi_asset_check(
        name=f"{'__'.join(spec.key.path)}_audits",
        specs=specs,
        can_subset=True,
        required_resource_keys={io_manager_key},
    )
    def audit_checks(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        selected = context.selected_asset_check_keys
        left = []
        for key in selected:
            recorded = recorded_evaluation(context.instance, context.run.run_id, key)
            if recorded is None:
                left.append(key.name)
                continue
            yield dg.AssetCheckResult(
                passed=recorded.passed,
                asset_key=key.asset_key,
                check_name=key.name,
                metadata=recorded.metadata,
                severity=recorded.severity,
                description=recorded.description,
            )
        if left:
            io_manager = io_manager_of(
                getattr(context.resources, io_manager_key), io_manager_key, checks="audit checks"
            )
            chosen = [audit for audit in audits if audit.name in left]
            results = io_manager.audit_table(spec, chosen)
            for audit in chosen:
                yield _result(spec.key, audit, None if results is None else results[audit.name])

    return audit_checks


def _result(key: dg.AssetKey, audit: Audit, result: AuditResult | None) -> dg.AssetCheckResult:
    if result is None:
        return dg.AssetCheckResult(
            passed=False,
            asset_key=key,
            check_name=audit.name,
            severity=dg.AssetCheckSeverity.WARN,
            description="The table has no rows to audit: it has no snapshot yet.",
        )
    return dg.AssetCheckResult(
        passed=result.passed,
        asset_key=key,
        check_name=audit.name,
        severity=severity_of(result),
        metadata=audit_metadata(result, snapshot_id=None),
        description=None if result.passed else str(result),
    )
