"""The assets whose tables are maintained, and the IO managers that store them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import dagster as dg

from dagster_iceberg_spark.asset_tables import io_manager_of
from dagster_iceberg_spark.io_manager import IcebergPySparkIOManager
from dagster_iceberg_spark.plan.options import TABLE

_IO_MANAGER_KEY: Final = "dagster/io_manager_key"
"""The metadata of an `AssetSpec` that names its IO manager (`AssetSpec.with_io_manager_key`)."""


@dataclass(frozen=True, slots=True)
class StoredSpec:
    """An asset, and the key of its IO manager."""

    spec: dg.AssetSpec
    io_manager_key: str

    @property
    def name(self) -> str:
        """The asset key as the name of an op."""
        return "__".join(self.spec.key.path).replace("-", "_").replace(".", "_")

    @property
    def place(self) -> tuple[str, Any]:
        """What assets that share a table have in common."""
        return self.io_manager_key, self.spec.metadata.get(TABLE) or self.spec.key

    def io_manager(self, resources: Any, *, action: str) -> IcebergPySparkIOManager:
        """Return the IO manager from a run's resources.

        Raises:
            ConfigurationError: It is another one.
        """
        hint = "pass assets that it stores only."
        return io_manager_of(getattr(resources, self.io_manager_key), self.io_manager_key, action=action, hint=hint)


def stored_specs(assets: Iterable[dg.AssetsDefinition | dg.AssetSpec]) -> list[StoredSpec]:
    """Return the assets with the keys of their IO managers. Tables that nobody writes here are given as specs."""
    found = []
    for item in assets:
        if isinstance(item, dg.AssetSpec):
            found.append(StoredSpec(item, item.metadata.get(_IO_MANAGER_KEY, "io_manager")))
        else:
            found += [StoredSpec(spec, item.get_io_manager_key_for_asset_key(spec.key)) for spec in item.specs]
    return found


def by_table(specs: Iterable[StoredSpec]) -> Mapping[Any, list[StoredSpec]]:
    """Return the assets of each table, as far as their definitions tell."""
    groups: dict[Any, list[StoredSpec]] = {}
    for item in specs:
        groups.setdefault(item.place, []).append(item)
    return groups
