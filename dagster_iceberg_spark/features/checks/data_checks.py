"""Dagster asset checks of the rows that tables show, and of the audits of assets."""

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

import dagster as dg

from dagster_iceberg_spark.assets.address import plain_metadata
from dagster_iceberg_spark.assets.commit_metadata import evaluation_of
from dagster_iceberg_spark.assets.dagster_private.event_log import recorded_evaluations
from dagster_iceberg_spark.assets.dagster_private.runs import root_run_of
from dagster_iceberg_spark.assets.stored_tables import StoredAsset, stored_assets_in
from dagster_iceberg_spark.assets.table_io_manager import TableIOManager
from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.features.checks.plan import Bounds, Change, DataChecks, Freshness, parse_data_checks
from dagster_iceberg_spark.plan.options.output_options import AUDITS, parse_key
from dagster_iceberg_spark.plan.write.write_request import staged_branch
from dagster_iceberg_spark.resource import require_pyspark
from dagster_iceberg_spark.table.audit import Audit, AuditResult, AuditSeverity
from dagster_iceberg_spark.table.lineage import SNAPSHOT_ID
from dagster_iceberg_spark.table.schema import Schema
from dagster_iceberg_spark.table.snapshot import Snapshot, TableState


def build_data_checks(  # noqa: PLR0913 - each is a kind of check
    asset: dg.AssetsDefinition | dg.AssetSpec,
    *,
    not_null: Sequence[str] = (),
    in_range: Mapping[str, Bounds] | None = None,
    unique: Sequence[str] = (),
    row_count: Bounds | int | None = None,
    fresh: dt.timedelta | str | None = None,
    change: Mapping[str, float] | None = None,
    severity: AuditSeverity = "error",
    blocking: bool = False,
) -> dg.AssetChecksDefinition:
    """Build asset checks of the rows that the table of an asset shows.

    Manifests and the summaries of snapshots answer most of them, without a scan and without a JVM. `unique`, and what
    they do not determine, is one aggregate in Spark.

    Args:
        asset: An asset with one table, or an `AssetSpec` of a table that others write.
        not_null: Columns that have no NULL.
        in_range: The lower and the upper bound of columns; None for no bound. NULL is within any bounds.
        unique: Columns whose values together identify a row.
        row_count: The least and the greatest number of rows, or the least one.
        fresh: The greatest age of the newest change of rows, such as `timedelta(hours=30)` or `"30 hours"`.
        change: By how much the newest snapshot may differ from the median of the ten before it: a share of `rows`,
            `added_rows` or `bytes`, such as `{"added_rows": 0.5}`.
        severity: The severity of checks that fail: `error` or `warn`.
        blocking: Whether downstream assets wait for the checks, if these are part of the run.

    Raises:
        ConfigurationError: An argument is invalid.

    Example:
        >>> import dagster as dg
        >>> @dg.asset(io_manager_key="iceberg")
        ... def flights(): ...
        >>> checks = build_data_checks(flights, not_null=["origin"], row_count=1, fresh="30 hours")
        >>> sorted(key.name for key in checks.check_keys)
        ['fresh', 'not_null_origin', 'row_count']
    """
    stored = stored_assets_in([asset])
    refused = partial(ConfigurationError.refusing, "build", "data checks")
    if len(stored) != 1:
        raise refused(expected="an asset with one table", found=f"{len(stored)} assets")
    try:
        checks = parse_data_checks(
            not_null=not_null,
            in_range=in_range,
            unique=unique,
            row_count=row_count,
            fresh=fresh,
            change=change,
            severity=severity,
        )
    except ValueError as error:
        raise refused(expected="arguments as documented", found=str(error)) from error
    return _data_checks(stored[0], checks, severity=severity, blocking=blocking)


def _data_checks(
    stored: StoredAsset, checks: DataChecks, *, severity: AuditSeverity, blocking: bool
) -> dg.AssetChecksDefinition:
    spec = stored.spec
    specs = [
        dg.AssetCheckSpec(name, asset=spec.key, description=f"{rule[:1].upper()}{rule[1:]}.", blocking=blocking)
        for name, rule in checks.rules.items()
    ]

    @dg.multi_asset_check(
        name=f"{'__'.join(spec.key.path)}_data",
        specs=specs,
        can_subset=True,
        required_resource_keys={stored.io_manager_key},
    )
    def data_checks(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        hint = "build data checks for assets that it stores only."
        io_manager = stored.io_manager(context.resources, action="check", hint=hint)
        selected = {key.name for key in context.selected_asset_check_keys}
        audits = [audit for audit in checks.audits if audit.name in selected]
        state, branch = table_state(io_manager, spec, root_run_id=root_run_of(context.run))
        if audits:
            yield from audit_results(io_manager, spec, audits, state, branch)
        summaries = [check for check in checks.summaries if check.name in selected]
        yield from (_result(spec.key, check, state, branch, severity) for check in summaries)

    return data_checks


def _result(
    key: dg.AssetKey, check: Freshness | Change, state: TableState | None, branch: str, severity: AuditSeverity
) -> dg.AssetCheckResult:
    snapshots = () if state is None else state.base_ancestors(branch)
    result = check.result(snapshots, dt.datetime.now(dt.timezone.utc))
    newest = None if state is None else state.base(branch)
    shown = {} if newest is None else {SNAPSHOT_ID: str(newest.snapshot_id)}
    found = ", ".join(f"{name} = {value}" for name, value in result.found.items())
    return dg.AssetCheckResult(
        passed=result.passed,
        asset_key=key,
        check_name=check.name,
        severity=dg.AssetCheckSeverity.ERROR if severity == "error" else dg.AssetCheckSeverity.WARN,
        description=None if result.passed else f"Expected {check}, found {found}.",
        metadata={"iceberg/rule": str(check), **result.found, **shown, "iceberg/evaluated_by": "metadata"},
    )


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
            yield from audit_results(io_manager, spec, chosen, state, branch)

    return audit_checks


def audit_results(
    io_manager: TableIOManager, spec: dg.AssetSpec, audits: Sequence[Audit], state: TableState | None, branch: str
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
        root_run_id: The first of the runs that re-execute the same run. If they have staged rows for a release,
            the branch is the staged one.
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
    """
    from dagster_iceberg_spark.catalog.audits import audited_rows, evaluate

    rows = audited_rows(
        state, snapshot, Schema(()), io_manager.definition_of(spec).request.options, samples=io_manager.audit_samples
    )

    def scan(others: Sequence[Audit]) -> dict[str, AuditResult]:
        require_pyspark()
        from dagster_iceberg_spark.spark.write.audits import scan_published

        return scan_published(io_manager.spark.iceberg_session, others, rows)

    return evaluate(io_manager.spark.catalog_description, audits, rows, scan)
