"""The tables of a code location's assets, and the IO managers that store them."""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import dagster as dg

from dagster_iceberg_spark.assets.table_io_manager import TableIOManager
from dagster_iceberg_spark.config.configuration import unset_variables
from dagster_iceberg_spark.config.sql_catalog import EmbeddedCatalog
from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.snapshot import TableState

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

    def asset_check(
        self, name: str, description: str
    ) -> Callable[[Callable[..., dg.AssetCheckResult]], dg.AssetChecksDefinition]:
        """Return the decorator of a check of the asset. The check has the asset's IO manager among its resources."""
        resources = {self.io_manager_key}
        return dg.asset_check(asset=self.spec.key, name=name, description=description, required_resource_keys=resources)

    def io_manager(self, resources: Any, *, action: str, hint: str) -> TableIOManager:
        """Return the IO manager from a run's resources.

        Raises:
            ConfigurationError: It is another one. The message names the action, such as `check`, and has the hint.
        """
        resource = getattr(resources, self.io_manager_key)
        if isinstance(resource, TableIOManager):
            return resource
        raise ConfigurationError.refusing(
            action,
            f"the tables of the resource {self.io_manager_key!r}",
            expected="an IcebergPySparkIOManager",
            found=type(resource).__name__,
            hint=hint,
        )


def stored_assets_in(assets: Iterable[dg.AssetsDefinition | dg.AssetSpec]) -> list[StoredAsset]:
    """Return the assets with the keys of their IO managers. Tables that are not written here are given as specs."""
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

    resource: TableIOManager
    specs: tuple[dg.AssetSpec, ...]


@dataclass(frozen=True, slots=True)
class AssetTable:
    """The table of the assets that write it, whether it exists or not, and the first of their IO managers."""

    io_manager: TableIOManager
    identifier: TableIdentifier
    specs: tuple[dg.AssetSpec, ...]


@dataclass(frozen=True, slots=True)
class StoredTable:
    """A table that exists, with its IO manager and the first of the assets that it stores."""

    io_manager: TableIOManager
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
        if isinstance(resource, TableIOManager)
    }


@contextmanager
def stored_tables(definitions: dg.Definitions, *, action: str) -> Iterator[list[StoredTable]]:
    """Yield the tables of a code location's assets that exist, by name. Their IO managers are open inside the block."""
    with stored_members(definitions, action=action) as members:
        yield existing_tables(members)


@contextmanager
def stored_members(definitions: dg.Definitions, *, action: str) -> Iterator[list[tuple[TableIOManager, dg.AssetSpec]]]:
    """Yield the assets of a code location that this package stores, each with its IO manager, which is open.

    Raises:
        ConfigurationError: The code location has no IO manager of this package. The message names the action.
    """
    stored = stored_assets(definitions)
    if not stored:
        raise without_io_manager(definitions, action)
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
            io_manager = stack.enter_context(open_io_manager(key, assets.resource))
            members += [(io_manager, spec) for spec in assets.specs]
        yield members


def tables_of_assets(
    members: Iterable[tuple[TableIOManager, dg.AssetSpec]], names: Collection[str] = ()
) -> list[AssetTable]:
    """Return the tables of assets, or those with these names: one for all assets and IO managers that share it."""
    found: dict[tuple[object, TableIdentifier], tuple[TableIOManager, list[dg.AssetSpec]]] = {}
    for io_manager, spec in members:
        place = (io_manager.spark.catalog_description.identity, io_manager.table_of(spec))
        found.setdefault(place, (io_manager, []))[1].append(spec)
    tables = [
        AssetTable(io_manager, identifier, tuple(specs))
        for (_, identifier), (io_manager, specs) in found.items()
        if not names or str(identifier) in names
    ]
    return sorted(tables, key=lambda table: table.identifier.parts)


def existing_tables(members: Iterable[tuple[TableIOManager, dg.AssetSpec]]) -> list[StoredTable]:
    """Return the tables of assets that exist, by name: one for all assets and IO managers that share it."""
    from dagster_iceberg_spark.catalog.look import look

    tables = tables_of_assets(members)
    states = [look(table.io_manager.spark.catalog_description, table.identifier) for table in tables]
    return [
        StoredTable(table.io_manager, table.specs[0], state)
        for table, state in zip(tables, states, strict=True)
        if state is not None
    ]


def without_io_manager(definitions: dg.Definitions, action: str) -> ConfigurationError:
    """Return the error for a code location without an IO manager of this package."""
    return ConfigurationError.refusing(
        action,
        "the code location",
        expected="a resource that is an IcebergPySparkIOManager",
        found=f"the resources {', '.join(map(repr, definitions.resources or ())) or 'none'}",
    )


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
def open_io_manager(key: str, resource: TableIOManager) -> Iterator[TableIOManager]:
    """Yield the IO manager as in a run, with the values of environment variables."""
    with home_instance() as instance, dg.build_resources({key: resource}, instance=instance) as made:
        io_manager: TableIOManager = getattr(made, key)
        if instance is None and isinstance(io_manager.spark.catalog, EmbeddedCatalog):
            io_manager.spark.catalog.describe()  # raises an error if `directory` is not set
        yield io_manager
