"""Compares tables with the definitions of their assets, and checks their catalogs."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

import dagster as dg

from dagster_iceberg_spark.assets.stored_tables import open_io_manager, stored_assets, without_io_manager
from dagster_iceberg_spark.assets.table_io_manager import TableIOManager
from dagster_iceberg_spark.check.findings import Answer, Finding, Step, finding_of
from dagster_iceberg_spark.config.configuration import unset_variables
from dagster_iceberg_spark.plan.write.comparison import TableReport, differences
from dagster_iceberg_spark.plan.write.placement import missing_namespace, missing_table

TABLE_SETTING: Final = "the asset's metadata, or the table"


def check_assets(definitions: dg.Definitions, *, namespace: str | None = None, seconds: float) -> Iterator[Finding]:
    """Check each catalog of a code location, and the table of each asset in it."""
    by_resource = stored_assets(definitions)
    if not by_resource:
        raise without_io_manager(definitions, "check")
    checked: set[object] = set()
    with ExitStack() as stack:
        for key, stored in by_resource.items():
            unset = ", ".join(unset_variables(stored.resource))
            if unset:
                found = f"not set in this environment: {unset}"
                yield Finding(f"the resource {key}", "configuration", "failed", found, "the environment's variables")
                continue
            try:
                io_manager = stack.enter_context(open_io_manager(key, stored.resource))
                catalog = io_manager.spark.session_settings().identity
            except Exception as error:  # noqa: BLE001 - such as Dagster's error for a missing variable or field
                yield Finding(f"the resource {key}", "configuration", "failed", str(error), "the resource's fields")
                continue
            if catalog not in checked:
                yield from io_manager.spark.findings(namespace=namespace, seconds=seconds)
            checked.add(catalog)
            yield from (check_table(io_manager, spec, seconds=seconds) for spec in stored.specs)


def check_table(io_manager: TableIOManager, spec: dg.AssetSpec, *, seconds: float) -> Finding:
    """Compare the table of an asset with its definition."""

    def compare() -> Answer:
        report = inspect_table(io_manager, spec)
        if not report.exists:
            return Answer(f"{report.identifier} does not exist yet; the first write creates it")
        if not report.differences:
            return Answer(f"{report.identifier} matches the definition")
        return Answer(f"{report.identifier}: {'; '.join(report.differences)}", "differs")

    redact = io_manager.spark.redact
    step = Step("table", compare, TABLE_SETTING)
    return finding_of("/".join(spec.key.path), step, seconds=seconds, redact=redact)


def inspect_table(io_manager: TableIOManager, spec: dg.AssetSpec) -> TableReport:
    """Compare the table of an asset with its definition, without writing.

    This starts a session only for a `SparkCatalogByName`, which only the session describes.

    Args:
        io_manager: The IO manager that stores the asset.
        spec: The spec of the asset.
    """
    from dagster_iceberg_spark.catalog.look import has_namespace, look

    defined = io_manager.definition_of(spec)
    catalog, identifier = io_manager.spark.catalog_description, defined.request.identifier
    state = look(catalog, identifier)
    if state is None and not io_manager.auto_create_table:
        raise missing_table(identifier)
    if state is None and not io_manager.auto_create_namespace and not has_namespace(catalog, identifier.namespace):
        raise missing_namespace(identifier)
    found = None if state is None else differences(defined, state)
    return TableReport(identifier, exists=state is not None, differences=found or ())
