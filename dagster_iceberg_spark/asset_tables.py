"""The tables of a code location's assets: which IO manager stores them, and whether they match their definitions."""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import dagster as dg

from dagster_iceberg_spark.addressing import known_scope
from dagster_iceberg_spark.check.findings import Finding
from dagster_iceberg_spark.check.steps import Answer, Step, finding_of
from dagster_iceberg_spark.config.configuration import unset_variables
from dagster_iceberg_spark.config.embedded_catalog import EmbeddedCatalog
from dagster_iceberg_spark.errors import ConfigurationError, MirrorFailedError
from dagster_iceberg_spark.io_manager import IcebergPySparkIOManager
from dagster_iceberg_spark.plan.publication import StagedRows
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.lineage import ASSET_KEY, PARTITION_KEYS
from dagster_iceberg_spark.table.scope import PartitionScope, listed_keys
from dagster_iceberg_spark.table.snapshot import Snapshot, TableState
from dagster_iceberg_spark.table.updates import BranchUpdate, CreateBranch, DropBranch

if TYPE_CHECKING:
    from dagster_iceberg_spark.catalog.publication import Outcome

TABLE_SETTING: Final = "the asset's metadata, or the table"
_IO_MANAGER_KEY: Final = "dagster/io_manager_key"
"""The metadata of an `AssetSpec` that names its IO manager (`AssetSpec.with_io_manager_key`)."""


@dataclass(frozen=True, slots=True)
class StoredAsset:
    """An asset, and the key of the IO manager that stores it."""

    spec: dg.AssetSpec
    io_manager_key: str

    @property
    def name(self) -> str:
        """The key of the asset, with slashes between its parts."""
        return "/".join(self.spec.key.path)

    def io_manager(self, resources: Any, *, action: str, hint: str) -> IcebergPySparkIOManager:
        """Return the IO manager from a run's resources.

        Raises:
            ConfigurationError: It is another one. The message names the action, such as `check`, and has the hint.
        """
        resource = getattr(resources, self.io_manager_key)
        if isinstance(resource, IcebergPySparkIOManager):
            return resource
        raise ConfigurationError.refusing(
            action,
            f"the tables of the resource {self.io_manager_key!r}",
            expected="an IcebergPySparkIOManager",
            found=type(resource).__name__,
            hint=hint,
        )


def stored_assets_in(assets: Iterable[dg.AssetsDefinition | dg.AssetSpec]) -> list[StoredAsset]:
    """Return the assets with the keys of their IO managers. Tables that nobody writes here are given as specs."""
    found = []
    for item in assets:
        if isinstance(item, dg.AssetSpec):
            found.append(StoredAsset(item, item.metadata.get(_IO_MANAGER_KEY, "io_manager")))
        else:
            found += [StoredAsset(spec, item.get_io_manager_key_for_asset_key(spec.key)) for spec in item.specs]
    return found


@dataclass(frozen=True, slots=True)
class StoredAssets:
    """The assets that one IO manager, as the code location defines it, stores."""

    resource: IcebergPySparkIOManager
    specs: tuple[dg.AssetSpec, ...]


@dataclass(frozen=True, slots=True)
class AssetTable:
    """The table of the assets that write it, whether it exists or not, and the first of their IO managers."""

    io_manager: IcebergPySparkIOManager
    identifier: TableIdentifier
    specs: tuple[dg.AssetSpec, ...]


@dataclass(frozen=True, slots=True)
class StoredTable:
    """A table that exists, with its IO manager and the first of the assets that it stores."""

    io_manager: IcebergPySparkIOManager
    spec: dg.AssetSpec
    state: TableState


def stored_assets(definitions: dg.Definitions) -> Mapping[str, StoredAssets]:
    """Return the assets that each IO manager of the package stores, by its resource key."""
    specs: dict[str, list[dg.AssetSpec]] = {}
    for assets in definitions.resolve_asset_graph().assets_defs:
        for spec in assets.specs if assets.is_executable else ():
            specs.setdefault(assets.get_io_manager_key_for_asset_key(spec.key), []).append(spec)
    resources = definitions.resources or {}
    return {
        key: StoredAssets(resource, tuple(specs.get(key, ())))
        for key, resource in resources.items()
        if isinstance(resource, IcebergPySparkIOManager)
    }


@contextmanager
def stored_tables(definitions: dg.Definitions, *, action: str) -> Iterator[list[StoredTable]]:
    """Yield the tables of a code location's assets that exist, by name. Their IO managers are open inside the block.

    Raises:
        ConfigurationError: The code location has no IO manager of this package. The message names the action.
    """
    with stored_members(definitions, action=action) as members:
        yield existing_tables(members)


@contextmanager
def stored_members(
    definitions: dg.Definitions, *, action: str
) -> Iterator[list[tuple[IcebergPySparkIOManager, dg.AssetSpec]]]:
    """Yield the assets of a code location that this package stores, each with its IO manager, which is open.

    Raises:
        ConfigurationError: The code location has no IO manager of this package. The message names the action.
    """
    stored = stored_assets(definitions)
    if not stored:
        raise _without_io_manager(definitions, action)
    members = []
    with ExitStack() as stack:
        for key, assets in stored.items():
            unset = ", ".join(unset_variables(assets.resource)) if assets.specs else ""
            if unset:
                raise ConfigurationError.refusing(
                    action, f"the resource {key!r}", expected="its environment variables", found=f"not set: {unset}"
                )
            if not assets.specs:
                continue
            io_manager = stack.enter_context(opened(key, assets.resource))
            members += [(io_manager, spec) for spec in assets.specs]
        yield members


def tables_of_assets(
    members: Iterable[tuple[IcebergPySparkIOManager, dg.AssetSpec]], names: Collection[str] = ()
) -> list[AssetTable]:
    """Return the tables of assets, or those with these names: one for all assets and IO managers that share it."""
    found: dict[tuple[object, TableIdentifier], tuple[IcebergPySparkIOManager, list[dg.AssetSpec]]] = {}
    for io_manager, spec in members:
        place = (io_manager.spark.catalog_description.identity, io_manager.table_of(spec))
        found.setdefault(place, (io_manager, []))[1].append(spec)
    tables = [
        AssetTable(io_manager, identifier, tuple(specs))
        for (_, identifier), (io_manager, specs) in found.items()
        if not names or str(identifier) in names
    ]
    return sorted(tables, key=lambda table: table.identifier.parts)


def existing_tables(members: Iterable[tuple[IcebergPySparkIOManager, dg.AssetSpec]]) -> list[StoredTable]:
    """Return the tables of assets that exist, by name: one for all assets and IO managers that share it."""
    from dagster_iceberg_spark.catalog.look import look

    tables = tables_of_assets(members)
    states = [look(table.io_manager.spark.catalog_description, table.identifier) for table in tables]
    return [
        StoredTable(table.io_manager, table.specs[0], state)
        for table, state in zip(tables, states, strict=True)
        if state is not None
    ]


def _without_io_manager(definitions: dg.Definitions, action: str) -> ConfigurationError:
    return ConfigurationError.refusing(
        action,
        "the code location",
        expected="a resource that is an IcebergPySparkIOManager",
        found=f"the resources {', '.join(map(repr, definitions.resources or ())) or 'none'}",
    )


def check_assets(definitions: dg.Definitions, *, namespace: str | None = None, seconds: float) -> Iterator[Finding]:
    """Check each catalog of a code location, and the table of each asset in it."""
    by_resource = stored_assets(definitions)
    if not by_resource:
        raise _without_io_manager(definitions, "check")
    checked: set[object] = set()
    with ExitStack() as stack:
        for key, stored in by_resource.items():
            unset = ", ".join(unset_variables(stored.resource))
            if unset:
                found = f"not set in this environment: {unset}"
                yield Finding(f"the resource {key}", "configuration", "failed", found, "the environment's variables")
                continue
            try:
                io_manager = stack.enter_context(opened(key, stored.resource))
                catalog = io_manager.spark.session_settings().identity
            except Exception as error:  # noqa: BLE001 - such as Dagster's error for a missing variable or field
                yield Finding(f"the resource {key}", "configuration", "failed", str(error), "the resource's fields")
                continue
            if catalog not in checked:
                yield from io_manager.spark.findings(namespace=namespace, seconds=seconds)
            checked.add(catalog)
            yield from (check_table(io_manager, spec, seconds=seconds) for spec in stored.specs)


def check_table(io_manager: IcebergPySparkIOManager, spec: dg.AssetSpec, *, seconds: float) -> Finding:
    """Compare the table of an asset with its definition."""

    def compare() -> Answer:
        report = io_manager.inspect_table(spec)
        if not report.exists:
            return Answer(f"{report.identifier} does not exist yet; the first write creates it")
        if not report.differences:
            return Answer(f"{report.identifier} matches the definition")
        return Answer(f"{report.identifier}: {'; '.join(report.differences)}", "differs")

    redact = io_manager.spark.redact
    step = Step("table", compare, TABLE_SETTING)
    return finding_of("/".join(spec.key.path), step, seconds=seconds, redact=redact)


@contextmanager
def home_instance() -> Iterator[dg.DagsterInstance | None]:
    """Yield the Dagster instance of DAGSTER_HOME, or None if it is not set.

    Raises:
        ConfigurationError: It is no directory, or its `dagster.yaml` is invalid.
    """
    home = os.environ.get("DAGSTER_HOME")
    if not home:
        yield None
        return
    try:
        opened_instance = dg.DagsterInstance.get()
    except dg.DagsterError as error:
        raise ConfigurationError.refusing(
            "open",
            "the Dagster instance",
            expected="the absolute path of its directory in DAGSTER_HOME",
            found=f"{home}: {str(error).splitlines()[0]}",
        ) from error
    with opened_instance as instance:
        yield instance


@contextmanager
def opened(key: str, resource: IcebergPySparkIOManager) -> Iterator[IcebergPySparkIOManager]:
    """Yield the IO manager as in a run, with the values of environment variables."""
    with home_instance() as instance, dg.build_resources({key: resource}, instance=instance) as made:
        io_manager: IcebergPySparkIOManager = getattr(made, key)
        if instance is None and isinstance(io_manager.spark.catalog, EmbeddedCatalog):
            io_manager.spark.catalog.describe()  # raises an error if `directory` is not set
        yield io_manager


def mirror_tables(
    members: Iterable[tuple[IcebergPySparkIOManager, dg.AssetSpec]],
    *,
    report: Callable[[str], None],
    warn: Callable[[str], None],
) -> dict[str, Any]:
    """Make the mirrors of assets' tables show the newest snapshots. Return what they show, by the name of the table.

    Raises:
        MirrorFailedError: A mirror has failed whose `on_failure` is `error`. The others were tried nevertheless.
    """
    states, failures = dict[str, Any](), list[MirrorFailedError]()
    for io_manager, spec in members:
        try:
            state = io_manager.mirror_table(spec, report=report, warn=warn)
        except MirrorFailedError as error:
            failures.append(error)
            continue
        if state is not None:
            states[str(io_manager.table_of(spec))] = state
    if failures:
        raise failures[0]
    return states


def create_branch(
    io_manager: IcebergPySparkIOManager,
    identifier: TableIdentifier,
    branch: str,
    snapshot_id: int,
    *,
    retention_days: int,
) -> None:
    """Create a branch at a snapshot. A session is started only if pyiceberg cannot commit to the table."""
    _change_branch(io_manager, identifier, CreateBranch(branch, snapshot_id, retention_days, keeps_snapshots=True))


def drop_branch(io_manager: IcebergPySparkIOManager, identifier: TableIdentifier, branch: str) -> None:
    """Drop a branch. A session is started only if pyiceberg cannot commit to the table."""
    _change_branch(io_manager, identifier, DropBranch(branch))


def _change_branch(io_manager: IcebergPySparkIOManager, identifier: TableIdentifier, change: BranchUpdate) -> None:
    from dagster_iceberg_spark.catalog.branches import change_branch

    if not change_branch(io_manager.spark.catalog_description, identifier, change):
        from dagster_iceberg_spark.spark.branches import change_branches

        change_branches(io_manager.spark.iceberg_session, identifier, [change])


def written_partitions(spec: dg.AssetSpec, snapshots: Iterable[Snapshot]) -> PartitionScope:
    """Return the partitions that an asset has written in these snapshots, or the whole table if they are not known."""
    name, keys = "/".join(spec.key.path), set[str]()
    for snapshot in snapshots:
        described = snapshot.summary.get(PARTITION_KEYS)
        listed = None if described is None else listed_keys(described)
        if not listed or snapshot.summary.get(ASSET_KEY) != name:
            return PartitionScope()
        keys |= listed
    return known_scope(spec, keys) or PartitionScope()


def advance(io_manager: IcebergPySparkIOManager, state: TableState, rows: StagedRows) -> "Outcome":
    """Fast-forward a table that only an engine can commit to."""
    from dagster_iceberg_spark.spark.publication import fast_forward

    return fast_forward(io_manager.spark.iceberg_session, state, rows)
