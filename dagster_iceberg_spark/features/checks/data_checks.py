"""Dagster asset checks of the rows that tables show."""

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import dagster as dg

from dagster_iceberg_spark.assets.dagster_private import root_run_of
from dagster_iceberg_spark.assets.stored_tables import StoredAsset, stored_assets_in
from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.features.checks.audit_checks import audited, table_state
from dagster_iceberg_spark.features.checks.plan import Bounds, Change, DataChecks, Freshness, parse_data_checks
from dagster_iceberg_spark.table.audit import AuditSeverity
from dagster_iceberg_spark.table.lineage import SNAPSHOT_ID
from dagster_iceberg_spark.table.snapshot import TableState


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
            yield from audited(io_manager, spec, audits, state, branch)
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
