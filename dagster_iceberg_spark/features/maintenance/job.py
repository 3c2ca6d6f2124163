"""Builds the job, the schedule and the asset checks that maintain the tables of assets, and what they record."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import dagster as dg

from dagster_iceberg_spark.assets.dagster_private.graph import downstream_assets, location_assets
from dagster_iceberg_spark.assets.stored_tables import StoredAsset, stored_assets_in
from dagster_iceberg_spark.assets.table_io_manager import final_errors
from dagster_iceberg_spark.features.maintenance.health_reports import health_of, policy_of
from dagster_iceberg_spark.features.maintenance.options import MaintenancePolicy
from dagster_iceberg_spark.features.maintenance.readers import Readers
from dagster_iceberg_spark.features.maintenance.table_maintenance import Maintained, table_maintenance
from dagster_iceberg_spark.plan.options.output_options import TABLE

_ACTIONS: Final = dg.TableSchema(
    columns=[
        *map(dg.TableColumn, ("action", "outcome")),
        dg.TableColumn("seconds", "float"),
        *map(dg.TableColumn, ("files", "bytes", "snapshots", "new_snapshots")),
    ]
)
_FIGURES: Final = dg.TableSchema(
    columns=[dg.TableColumn("figure"), dg.TableColumn("before", "float"), dg.TableColumn("after", "float")]
)
_KEPT: Final = dg.TableSchema(columns=[*map(dg.TableColumn, ("snapshot", "committed_at", "needed_by"))])
_SHOWN_SNAPSHOTS: Final = 100


POOL: Final = "iceberg_maintenance"
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_]")


@dataclass(frozen=True, slots=True)
class Maintenance:
    """What maintains the tables of assets.

    Args:
        job: The job, with a step for each table.
        schedule: Its schedule, which is stopped until you start it.
        checks: A health check for each asset.
    """

    job: dg.JobDefinition
    schedule: dg.ScheduleDefinition
    checks: Sequence[dg.AssetChecksDefinition]

    @property
    def definitions(self) -> dg.Definitions:
        """The job, the schedule and the checks, to merge with other definitions."""
        return dg.Definitions(jobs=[self.job], schedules=[self.schedule], asset_checks=self.checks)


def build_maintenance(
    assets: Iterable[dg.AssetsDefinition | dg.AssetSpec],
    *,
    policy: MaintenancePolicy | None = None,
    schedule: str = "0 3 * * *",
    timezone: str = "UTC",
    name: str = "iceberg_maintenance",
) -> Maintenance:
    """Build a job that maintains the tables of assets, its schedule, and checks that show the health of the tables.

    The job finds the tables, and has a step for each, in the pool `iceberg_maintenance`. A step plans first, and does
    what is due: it compacts closed partitions, rewrites manifests, expires snapshots that nothing needs, and removes
    files that belong to no snapshot. A table that a run is writing waits for the next time.

    Args:
        assets: Assets that an `IcebergPySparkIOManager` stores, or specs with its key (`with_io_manager_key`).
        policy: What is kept, and the thresholds. `iceberg/maintenance` in an asset's metadata overrides it.
        schedule: The cron schedule.
        timezone: The time zone of the schedule.
        name: The name of the job.

    Example:
        >>> import dagster as dg
        >>> @dg.asset(io_manager_key="iceberg")
        ... def flights(): ...
        >>> build_maintenance([flights]).job.name
        'iceberg_maintenance'
    """
    chosen, specs = policy or MaintenancePolicy(), stored_assets_in(assets)
    keys = {spec.io_manager_key for spec in specs}
    job = _job(name, lambda _: specs, keys, chosen, description="Maintains the Iceberg tables of assets.")
    return Maintenance(
        job=job,
        schedule=dg.ScheduleDefinition(job=job, cron_schedule=schedule, execution_timezone=timezone),
        checks=health_checks(specs, chosen),
    )


def build_location_maintenance(
    io_manager_key: str, *, policy: MaintenancePolicy, schedule: str, timezone: str, name: str
) -> dg.Definitions:
    """Build a job that maintains the tables of all assets that an IO manager of the code location stores.

    The job finds the assets when it runs, with a step for each table, in the pool `iceberg_maintenance`.

    Args:
        io_manager_key: The key of the IO manager.
        policy: What is kept, and the thresholds.
        schedule: The cron schedule, which is stopped until you start it.
        timezone: The time zone of the schedule.
        name: The name of the job.
    """

    def members(context: dg.OpExecutionContext) -> list[StoredAsset]:
        return [item for item in stored_assets_in(location_assets(context)) if item.io_manager_key == io_manager_key]

    job = _job(
        name, members, {io_manager_key}, policy, description="Maintains the Iceberg tables of the code location."
    )
    cron = dg.ScheduleDefinition(job=job, cron_schedule=schedule, execution_timezone=timezone)
    return dg.Definitions(jobs=[job], schedules=[cron])


def _job(
    name: str,
    members: Callable[[dg.OpExecutionContext], Sequence[StoredAsset]],
    io_manager_keys: set[str],
    policy: MaintenancePolicy,
    *,
    description: str,
) -> dg.JobDefinition:
    """Return a job with a step for each table of the members. An error in one step does not stop the others."""

    @dg.op(out=dg.DynamicOut(str), description="Finds the tables of the assets.")
    def find_tables(context: dg.OpExecutionContext) -> Iterator[dg.DynamicOutput[str]]:
        for table in _by_table(members(context)):
            yield dg.DynamicOutput(table, mapping_key=table)

    @dg.op(
        description="Maintains a table.",
        pool=POOL,
        required_resource_keys=io_manager_keys,
        config_schema={"dry_run": dg.Field(bool, default_value=False, description="Only plan, and change nothing.")},
    )
    def maintain_table(context: dg.OpExecutionContext, table: str) -> None:
        _maintain(context, _by_table(members(context))[table], policy)

    @dg.job(name=name, description=description)
    def job() -> None:
        find_tables().map(maintain_table)

    return job


def _maintain(context: dg.OpExecutionContext, group: Sequence[StoredAsset], policy: MaintenancePolicy) -> None:
    """Maintain the table of some assets, and record what was done."""
    with final_errors():
        io_manager = group[0].io_manager(context.resources, action="maintain", hint=HINT)
        maintenance = table_maintenance(
            io_manager,
            [item.spec for item in group],
            policy,
            Readers(
                io_manager.spark.catalog_description,
                context.instance,
                own_run_id=context.run_id,
                downstream=downstream_assets(context),
                warn=context.log.warning,
            ),
            run_id=context.run_id,
            report=context.log.info,
        )
        if maintenance is None:
            context.log.info("The asset's metadata excludes the table from maintenance.")
            return
        maintained = maintenance.maintain(dry_run=context.op_config["dry_run"])
    if maintained.waits_for is not None:
        context.log.info(f"{maintained.table} is left for the next time: {maintained.waits_for}.")
    metadata = metadata_of(maintained)
    context.add_output_metadata(metadata)
    for item in group:
        what = "Maintained." if maintained.done else "Nothing was changed."
        context.log_event(dg.AssetObservation(item.spec.key, description=what, metadata=metadata))


def _by_table(assets: Iterable[StoredAsset]) -> Mapping[str, list[StoredAsset]]:
    """Return the assets of each table, as far as their definitions show, by the name of the table's step."""
    groups: dict[Any, list[StoredAsset]] = {}
    for asset in assets:
        place = (asset.io_manager_key, asset.spec.metadata.get(TABLE) or asset.spec.key)
        groups.setdefault(place, []).append(asset)
    named: dict[str, list[StoredAsset]] = {}
    for group in groups.values():
        name = _NOT_IN_NAMES.sub("_", "__".join(group[0].spec.key.path))
        while name in named:  # keys such as `a/b` and `a__b`
            name += "_"
        named[name] = group
    return named


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
    @stored.asset_check(CHECK_NAME, "Whether the asset's Iceberg table needs maintenance.")
    def iceberg_health(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        with final_errors():
            io_manager = stored.io_manager(context.resources, action="check the health of", hint=HINT)
            table = health_of(
                io_manager.spark.catalog_description,
                io_manager.table_of(stored.spec),
                policy_of([stored.spec], policy) or policy,
            )
        warning = dg.AssetCheckSeverity.WARN
        if table is None:
            return dg.AssetCheckResult(passed=True, description="The table does not exist yet.")
        if table.health is None:
            return dg.AssetCheckResult(passed=False, description=f"Cannot determine the health. {table.error}")
        figures = {f"iceberg/{name}": value for name, value in table.health.figures().items() if value is not None}
        return dg.AssetCheckResult(
            passed=table.is_healthy,
            severity=warning,
            description=" ".join(f"Needs {need}." for need in table.health.needs) or "Healthy.",
            metadata=figures,
        )

    return iceberg_health


def metadata_of(maintained: Maintained) -> dict[str, Any]:
    """Return the metadata of a step that has maintained a table: the plan, what was done, and the figures."""
    found: dict[str, Any] = {"iceberg/table": str(maintained.table)}
    if maintained.waits_for is not None:
        found["iceberg/waits_for"] = maintained.waits_for
    if (plan := maintained.plan) is not None:
        found["iceberg/plan"] = dg.MetadataValue.md(_list([*map(str, plan.actions), *plan.notes]))
        kept = [
            dg.TableRecord(
                {
                    "snapshot": str(item.snapshot_id),
                    "committed_at": item.committed_at.isoformat(timespec="seconds"),
                    "needed_by": "; ".join(item.needed_by),
                }
            )
            for item in plan.kept[:_SHOWN_SNAPSHOTS]
        ]
        found["iceberg/kept_snapshots"] = len(plan.kept)
        found["iceberg/kept"] = dg.MetadataValue.table(kept, _KEPT)
    if maintained.done:
        done = [
            dg.TableRecord(
                {
                    "action": item.action,
                    "outcome": item.outcome,
                    "seconds": item.seconds,
                    "files": f"{item.before.files:,} → {item.after.files:,}",
                    "bytes": f"{item.before.bytes:,} → {item.after.bytes:,}",
                    "snapshots": f"{item.before.snapshots:,} → {item.after.snapshots:,}",
                    "new_snapshots": ", ".join(map(str, item.new_snapshots)),
                }
            )
            for item in maintained.done
        ]
        found["iceberg/done"] = dg.MetadataValue.table(done, _ACTIONS)
    if maintained.before is not None:
        before = maintained.before.figures()
        after = before if maintained.after is None else maintained.after.figures()
        rows = [
            dg.TableRecord({"figure": name, "before": _number(before[name]), "after": _number(after[name])})
            for name in before
        ]
        found["iceberg/figures"] = dg.MetadataValue.table(rows, _FIGURES)
    return found


def _list(lines: list[str]) -> str:
    return "\n".join(f"- {line}" for line in lines) or "Nothing is due."


def _number(value: float | None) -> float:
    return float(value or 0)
