"""Dagster asset checks that show the audits of assets."""

from collections.abc import Iterable, Iterator, Sequence

import dagster as dg

from dagster_iceberg_spark.addressing import plain_metadata
from dagster_iceberg_spark.asset_tables import StoredAsset, stored_assets_in
from dagster_iceberg_spark.dagster_private import recorded_evaluations, root_run_of
from dagster_iceberg_spark.io_manager import IcebergPySparkIOManager
from dagster_iceberg_spark.outputs.audits import evaluation_of
from dagster_iceberg_spark.plan.options import AUDITS, parse_key
from dagster_iceberg_spark.table.audit import Audit
from dagster_iceberg_spark.table.snapshot import TableState


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
        _audit_checks(asset, audits)
        for asset in stored_assets_in(assets)
        if (audits := parse_key(AUDITS, plain_metadata(asset.spec.metadata), subject=asset.name))
    ]


def _audit_checks(stored: StoredAsset, audits: Sequence[Audit]) -> dg.AssetChecksDefinition:
    spec = stored.spec
    specs = [dg.AssetCheckSpec(audit.name, asset=spec.key, description=f"The audit: {audit.rule}.") for audit in audits]

    @dg.multi_asset_check(
        name=f"{'__'.join(spec.key.path)}_audits",
        specs=specs,
        can_subset=True,
        required_resource_keys={stored.io_manager_key},
    )
    def audit_checks(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        recorded = recorded_evaluations(context.instance, context.run.run_id)
        selected = context.selected_asset_check_keys
        yield from (_shown(recorded[key]) for key in selected if key in recorded)
        left = {key.name for key in selected if key not in recorded}
        chosen = [audit for audit in audits if audit.name in left]
        if chosen:
            hint = "build audit checks for assets that it stores only."
            io_manager = stored.io_manager(context.resources, action="check", hint=hint)
            state, branch = io_manager.table_state(spec, root_run_id=root_run_of(context.run))
            yield from audited(io_manager, spec, chosen, state, branch)

    return audit_checks


def audited(
    io_manager: IcebergPySparkIOManager,
    spec: dg.AssetSpec,
    audits: Sequence[Audit],
    state: TableState | None,
    branch: str,
) -> Iterator[dg.AssetCheckResult]:
    """Yield the results of audits on the rows that a branch of the table of an asset shows."""
    snapshot = None if state is None else state.base(branch)
    if state is None or snapshot is None:
        yield from _nothing_to_audit(spec.key, audits)
        return
    results = io_manager.audit_table(spec, audits, state, snapshot)
    for audit in audits:
        yield _shown(evaluation_of(spec.key, results[audit.name], snapshot_id=snapshot.snapshot_id))


def _shown(evaluation: dg.AssetCheckEvaluation) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        passed=evaluation.passed,
        asset_key=evaluation.asset_key,
        check_name=evaluation.check_name,
        metadata=evaluation.metadata,
        severity=evaluation.severity,
        description=evaluation.description,
    )


def _nothing_to_audit(key: dg.AssetKey, audits: Iterable[Audit]) -> Iterator[dg.AssetCheckResult]:
    for audit in audits:
        yield dg.AssetCheckResult(
            passed=False,
            asset_key=key,
            check_name=audit.name,
            severity=dg.AssetCheckSeverity.WARN,
            description="The table has no rows to audit: it has no snapshot yet.",
        )
