"""Maintains the tables of a code location by hand."""

from collections.abc import Callable, Collection, Iterator

import dagster as dg

from dagster_iceberg_spark.assets.dagster_private import children_in
from dagster_iceberg_spark.assets.stored_tables import stored_members, tables_of_assets
from dagster_iceberg_spark.errors import in_words
from dagster_iceberg_spark.features.maintenance.lock import process_name
from dagster_iceberg_spark.features.maintenance.options import MaintenancePolicy
from dagster_iceberg_spark.features.maintenance.readers import Readers
from dagster_iceberg_spark.features.maintenance.table_maintenance import Maintained, table_maintenance


def maintain_location(
    definitions: dg.Definitions,
    tables: Collection[str] = (),
    *,
    dry_run: bool,
    instance: dg.DagsterInstance | None,
    report: Callable[[str], None],
    policy: MaintenancePolicy | None = None,
) -> Iterator[Maintained]:
    """Maintain the tables of a code location's assets, or those with these names, one after the other.

    Args:
        definitions: The code location.
        tables: The names of the tables, or none for all.
        dry_run: Whether to plan only, and to change nothing.
        instance: The Dagster instance whose runs count, or None for none.
        report: Writes a line about progress.
        policy: What is kept, and the thresholds.

    An error of a table does not stop the others: it is in what was done.

    Raises:
        ConfigurationError: The code location has no IO manager of this package.
    """
    run_id = process_name()
    with stored_members(definitions, action="maintain the tables of") as members:
        readers: dict[object, Readers] = {}
        downstream = children_in(definitions.resolve_asset_graph())
        for table in tables_of_assets(members, tables):
            catalog = table.io_manager.spark.catalog_description
            known = readers.setdefault(catalog.identity, Readers(catalog, instance, downstream=downstream, warn=report))
            try:
                maintenance = table_maintenance(
                    table.io_manager, table.specs, policy or MaintenancePolicy(), known, run_id=run_id, report=report
                )
                if maintenance is not None:
                    yield maintenance.maintain(dry_run=dry_run)
            except Exception as error:  # noqa: BLE001 - whatever it is, the other tables are maintained
                yield Maintained(table.identifier, error=in_words(error))
