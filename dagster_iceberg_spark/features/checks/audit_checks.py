"""Dagster asset checks that show the audits of assets."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import dagster as dg

from dagster_iceberg_spark.assets.address import plain_metadata
from dagster_iceberg_spark.assets.commit_metadata import evaluation_of
from dagster_iceberg_spark.assets.dagster_private import recorded_evaluations, root_run_of
from dagster_iceberg_spark.assets.stored_tables import StoredAsset, stored_assets_in
from dagster_iceberg_spark.assets.table_io_manager import TableIOManager
from dagster_iceberg_spark.plan.options import AUDITS, parse_key
from dagster_iceberg_spark.plan.staging import staged_branch
from dagster_iceberg_spark.resource import require_pyspark
from dagster_iceberg_spark.table.audit import Audit, AuditResult
from dagster_iceberg_spark.table.schema import Schema
from dagster_iceberg_spark.table.snapshot import Snapshot, TableState


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
            state, branch = table_state(io_manager, spec, root_run_id=root_run_of(context.run))
            yield from audited(io_manager, spec, chosen, state, branch)

    return audit_checks


def audited(
    io_manager: TableIOManager,
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
    results = audit_table(io_manager, spec, audits, state, snapshot)
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


def table_state(
    io_manager: TableIOManager, spec: dg.AssetSpec, *, root_run_id: str | None = None
) -> tuple[TableState | None, str]:
    """Return the current state of the table of an asset, or None if it does not exist, and the asset's branch.

    Args:
        io_manager: The IO manager that stores the asset.
        spec: The spec of the asset.
        root_run_id: The first of the runs that execute the same run again. If they have staged rows for a release,
            the branch is the staged one.

    Raises:
        MetadataKeyError: A metadata key or its value is invalid.
        CatalogUnavailableError: The catalog does not respond.
    """
    from dagster_iceberg_spark.catalog.look import look

    request = io_manager.definition_of(spec).request
    state, branch = look(io_manager.spark.catalog_description, request.identifier), request.options.branch
    if state is not None and root_run_id is not None:
        staged = staged_branch(root_run_id=root_run_id, output="/".join(spec.key.path), scope=None, target=branch)
        branch = staged if staged in state.refs else branch
    return state, branch


def audit_table(
    io_manager: TableIOManager, spec: dg.AssetSpec, audits: Sequence[Audit], state: TableState, snapshot: Snapshot
) -> Mapping[str, AuditResult]:
    """Evaluate audits on the rows of a snapshot of the table of an asset. Nothing is written.

    This starts a session only for audits that the metadata of the table does not determine.

    Args:
        io_manager: The IO manager that stores the asset.
        spec: The spec of the asset.
        audits: The audits to evaluate.
        state: The state of the table.
        snapshot: One of its snapshots.

    Returns:
        The results by the names of the audits.

    Raises:
        MetadataKeyError: An audit cannot be evaluated on the columns of the table.
        CatalogUnavailableError: The catalog does not respond.
    """
    from dagster_iceberg_spark.catalog.audits import audited_rows, evaluated

    rows = audited_rows(
        state, snapshot, Schema(()), io_manager.definition_of(spec).request.options, samples=io_manager.audit_samples
    )

    def scanned(others: Sequence[Audit]) -> dict[str, AuditResult]:
        require_pyspark()
        from dagster_iceberg_spark.spark.audits import scan_published

        return scan_published(io_manager.spark.iceberg_session, others, rows)

    return evaluated(io_manager.spark.catalog_description, audits, rows, scanned)
