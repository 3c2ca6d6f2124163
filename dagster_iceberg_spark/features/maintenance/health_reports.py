"""The health of the tables of a code location, or of a catalog."""

import datetime as dt
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from dagster_iceberg_spark.assets.address import plain_metadata
from dagster_iceberg_spark.assets.stored_tables import stored_members, tables_of_assets
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.errors import IcebergSparkError
from dagster_iceberg_spark.features.maintenance.options import MaintenanceOptions, MaintenancePolicy
from dagster_iceberg_spark.features.maintenance.plan.health import TableHealth, readable_bytes, table_health
from dagster_iceberg_spark.plan.options.metadata_key import read_metadata
from dagster_iceberg_spark.resource import IcebergSparkResource
from dagster_iceberg_spark.table.identifier import TableIdentifier


@dataclass(frozen=True, slots=True)
class CheckedTable:
    """A table with its health, or with the error that kept its metadata from being read."""

    table: str
    health: TableHealth | None
    error: str | None = None

    @property
    def is_healthy(self) -> bool:
        """Whether the table needs no work."""
        return self.health is not None and self.health.is_healthy

    def lines(self) -> Iterator[str]:
        """Yield what the table needs and what its branches and tags keep, for people."""
        if self.health is None:
            yield f"cannot tell. {self.error}"
            return
        yield from (f"needs {need}." for need in self.health.needs)
        for ref in self.health.refs:
            if ref.snapshots:
                held = f"{ref.snapshots:,} snapshots" if ref.snapshots > 1 else "a snapshot"
                yield f"the {ref.kind} {ref.name!r} keeps {held} and {readable_bytes(ref.bytes)} of data files."

    def document(self) -> dict[str, Any]:
        """Return the table for JSON."""
        return {"table": self.table, "error": self.error} if self.health is None else self.health.document()


def stored_health(
    definitions: dg.Definitions, tables: Collection[str] = (), policy: MaintenancePolicy | None = None
) -> Iterator[CheckedTable]:
    """Yield the health of the tables of a code location's assets, or of those with these names.

    Raises:
        ConfigurationError: The code location has no IO manager of this package.
    """
    given = policy or MaintenancePolicy()
    with stored_members(definitions, action="show the health of") as members:
        for table in tables_of_assets(members, tables):
            chosen = policy_of(table.specs, given) or given
            checked = health_of(table.io_manager.spark.catalog_description, table.identifier, chosen)
            if checked is not None:
                yield checked


def catalog_health(
    resource: IcebergSparkResource, tables: Collection[str] = (), policy: MaintenancePolicy | None = None
) -> Iterator[CheckedTable]:
    """Yield the health of all tables of a catalog, or of those with these names."""
    from dagster_iceberg_spark.catalog.tables import tables_of

    catalog = resource.catalog_description
    for identifier in [TableIdentifier.parse(name) for name in tables] or tables_of(catalog):
        checked = health_of(catalog, identifier, policy or MaintenancePolicy())
        if checked is not None:
            yield checked
        elif tables:
            yield CheckedTable(str(identifier), None, "The table does not exist.")


def policy_of(specs: Sequence[dg.AssetSpec], policy: MaintenancePolicy) -> MaintenancePolicy | None:
    """Return the policy with the settings of the assets of a table, or None if one of them excludes the table."""
    for spec in specs:
        settings = maintenance_of(spec).maintenance
        if settings is None:
            return None
        policy = policy.overridden_by(settings)
    return policy


def health_of(
    catalog: CatalogDescription, identifier: TableIdentifier, policy: MaintenancePolicy
) -> CheckedTable | None:
    """Return the health of a table, or None if it does not exist."""
    from dagster_iceberg_spark.catalog.look import look
    from dagster_iceberg_spark.features.maintenance.file_sizes import table_files

    try:
        state = look(catalog, identifier)
        if state is None:
            return None
        files = table_files(catalog, identifier)
    except IcebergSparkError as error:
        return CheckedTable(str(identifier), None, str(error))
    now = dt.datetime.now(dt.timezone.utc)
    return CheckedTable(str(identifier), table_health(state, files, policy, now))


def maintenance_of(spec: dg.AssetSpec) -> MaintenanceOptions:
    """Return how the table of an asset is maintained.

    Raises:
        MetadataKeyError: A metadata key or its value is invalid.
    """
    return read_metadata(MaintenanceOptions, plain_metadata(spec.metadata), subject="/".join(spec.key.path))
