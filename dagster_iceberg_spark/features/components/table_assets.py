"""Assets for the tables that others keep in a catalog."""

import datetime as dt
import logging
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, Final

import dagster as dg
from dagster.components import DefsStateConfig, DefsStateConfigArgs, ResolvedDefsStateConfig
from dagster.components.component_scaffolding import scaffold_component
from pydantic import Field
from pyiceberg.conversions import from_bytes
from pyiceberg.table import Table
from pyiceberg.types import IntegerType

from dagster_iceberg_spark.assets.commit_metadata import table_column
from dagster_iceberg_spark.assets.stored_tables import home_instance
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.files import data_manifests, entries_in, granule_window
from dagster_iceberg_spark.catalog.look import known_table, look, translated_answers
from dagster_iceberg_spark.catalog.tables import tables_of
from dagster_iceberg_spark.errors import CatalogUnavailableError, NotAnIcebergTableError
from dagster_iceberg_spark.features.components.lake import SPARK_MODEL, resolved_spark
from dagster_iceberg_spark.features.components.models import configuration, described
from dagster_iceberg_spark.features.components.plan import (
    MAXIMUM_KEYS,
    DiscoveredPartitions,
    DiscoveredTable,
    TableSelection,
    discover,
    document_of,
    granule_of,
    partition_field,
    tables_in,
)
from dagster_iceberg_spark.features.watching.table_sensor import build_table_sensor, foreign_table
from dagster_iceberg_spark.plan.read.history import escape
from dagster_iceberg_spark.resource import IcebergSparkResource
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.partitioning import PartitionField
from dagster_iceberg_spark.table.snapshot import TableState

_AT_A_TIME: Final = 8
_ORDINAL: Final = IntegerType()
"""Years, months, days and hours since 1970, and dates, are stored alike (Iceberg spec, appendix D)."""


def discover_tables(
    description: CatalogDescription, selection: TableSelection, *, warn: Callable[[str], None]
) -> list[DiscoveredTable]:
    """Return the selected tables, by name. What is no Iceberg table is left out, with a warning."""

    def find(identifier: TableIdentifier) -> DiscoveredTable | None:
        try:
            state = look(description, identifier)
        except NotAnIcebergTableError as error:
            warn(f"Left out {identifier}: {error}")
            return None
        if state is None or not selection.has_state(state):  # dropped in the meantime, or not selected
            return None
        return discover(state, _partitions(description, state))

    names = [name for name in tables_of(description, selection.has_namespace) if selection.has_table(name)]
    with ThreadPoolExecutor(1 if description.is_local else _AT_A_TIME) as pool:
        return [table for table in pool.map(find, names) if table is not None]


def _partitions(description: CatalogDescription, state: TableState) -> DiscoveredPartitions | None:
    """Return the partitions of a table with rows, if they are partitions of an asset."""
    field = partition_field(state)
    granule = None if field is None else granule_of(state, field)
    if field is None or granule is None or state.head() is None:
        return None
    table = known_table(description, state.identifier, action="list the partitions of")
    with translated_answers(description, action=f"read the manifests of {state.identifier} in"):
        if granule == "key":
            keys = _values(table, field)
            return DiscoveredPartitions(field.column, "key", keys=keys) if 0 < len(keys) <= MAXIMUM_KEYS else None
        window = granule_window(granule, lowest) if (lowest := _lowest(table, field)) is not None else None
    return None if window is None else DiscoveredPartitions(field.column, granule, window[0].isoformat())


def _lowest(table: Table, field: PartitionField) -> int | None:
    """Return the least value of a partition field, from the manifest list, or None if a manifest does not show it."""
    found = list[int]()
    for manifest in data_manifests(table, table.current_snapshot()):
        place = _place(table, manifest.partition_spec_id, field)
        if place is None or not manifest.partitions:
            return None  # files of an older spec
        bound = manifest.partitions[place].lower_bound
        if bound is not None:  # otherwise it only has files without a value
            found.append(from_bytes(_ORDINAL, bound))  # type: ignore[arg-type]
    return min(found, default=None)


def _values(table: Table, field: PartitionField) -> tuple[str, ...]:
    """Return the values of a partition field, or none if some file does not record them."""

    def value(entry: Any) -> str | None:
        place = _place(table, entry.data_file.spec_id, field)
        return None if place is None else entry.data_file.partition[place]

    values = set(entries_in(table, data_manifests(table, table.current_snapshot()), value))
    return () if None in values else tuple(sorted(map(str, values)))


def _place(table: Table, spec_id: int, field: PartitionField) -> int | None:
    """Return the position of a field in a spec, if the spec has it."""
    schema = table.schema()
    for place, known in enumerate(table.specs()[spec_id].fields):
        if (schema.find_column_name(known.source_id), str(known.transform)) == (field.column, str(field.transform)):
            return place
    return None


_EXAMPLE: Final = {
    "spark": {"catalog": {"kind": "sql", "name": "lake", "uri": "sqlite:///lake/catalog.db", "warehouse": "lake"}},
    "namespaces": ["raw"],
    "watch": True,
}
_logger: Final = logging.getLogger(__name__)


class IcebergTablesScaffolder(dg.Scaffolder):
    """Writes a component for a namespace of a catalog in a SQLite file."""

    def scaffold(self, request: dg.ScaffoldRequest) -> None:
        """Write `defs.yaml`."""
        scaffold_component(request, _EXAMPLE)


@dg.scaffold_with(IcebergTablesScaffolder)
class IcebergTablesComponent(dg.StateBackedComponent, dg.Resolvable, dg.Model):
    """Makes an asset of each table that others write to a catalog, with its columns and partitions.

    What is known of the tables is the component's state. `dg utils refresh-defs-state` looks at the catalog, and so
    does `dg dev` each time it loads. A deployment does not. If the catalog does not respond, the last state stays.
    """

    spark: Annotated[
        Any,  # an IcebergSparkResource; Dagster takes no other models of pydantic
        configuration(
            resolved_spark,
            SPARK_MODEL | str,
            "The catalog: the fields of IcebergSparkResource, or an expression for one, such as "
            "`{{ context.load_component('lake').spark }}`.",
        ),
    ] = Field(default_factory=IcebergSparkResource)
    namespaces: Annotated[
        Sequence[str], described("Patterns of namespaces, such as `raw` or `shop.*`. Default: all namespaces.")
    ] = ()
    tables: Annotated[Sequence[str], described("Patterns of table names, such as `orders_*`.")] = ("*",)
    exclude: Annotated[Sequence[str], described("Patterns of full names that are left out, such as `raw.tmp_*`.")] = ()
    include_owned: Annotated[bool, described("Whether tables that an asset of Dagster writes become assets too.")] = (
        False
    )
    key_prefix: Annotated[
        str | Sequence[str] | None,
        described("Prefix of the keys of the assets. The namespace and the name of the table follow."),
    ] = None
    group_name: Annotated[str | None, described("Group of the assets.")] = None
    io_manager_key: Annotated[str, described("Key of the IO manager that loads the tables.")] = "iceberg"
    watch: Annotated[
        bool, described("Whether a sensor records a materialization when others have written a table.")
    ] = False
    sensor_name: Annotated[
        str | None, described("Name of the sensor. Default: the name of this folder, with `_tables`.")
    ] = None
    minimum_interval_seconds: Annotated[int, described("Seconds between two looks of the sensor.")] = 60
    defs_state: ResolvedDefsStateConfig = DefsStateConfigArgs.local_filesystem()

    @property
    def defs_state_config(self) -> DefsStateConfig:
        """Where Dagster keeps the state."""
        selected = ",".join((*(self.namespaces or "*"), *self.tables, *(f"-{pattern}" for pattern in self.exclude)))
        key = f"{type(self).__name__}[{self.spark.catalog.name}:{selected}]"
        return DefsStateConfig.from_args(self.defs_state, default_key=key)

    def write_state_to_path(self, state_path: Path) -> None:
        """Discover the tables, and write them to the file.

        Raises:
            CatalogUnavailableError: The catalog does not respond. The file stays as it is.
        """
        selection = TableSelection(self.namespaces, self.tables, self.exclude, includes_owned=self.include_owned)
        with home_instance() as instance, dg.build_resources({"spark": self.spark}, instance=instance) as opened:
            found = discover_tables(opened.spark.catalog_description, selection, warn=_logger.warning)
        written = state_path.with_name(f"{state_path.name}.new")
        written.parent.mkdir(parents=True, exist_ok=True)
        written.write_text(document_of(found))
        written.replace(state_path)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the assets of the state, which is refreshed first where Dagster says so."""
        try:
            return super().build_defs(context)
        except CatalogUnavailableError as error:
            _logger.warning("The tables are those of the last state: %s", error)
            unchanged = self.defs_state.model_copy(update={"refresh_if_dev": False})
            return dg.StateBackedComponent.build_defs(self.model_copy(update={"defs_state": unchanged}), context)

    def build_defs_from_state(self, context: dg.ComponentLoadContext, state_path: Path | None) -> dg.Definitions:
        """Return an asset for each table, and the sensor that watches them."""
        tables = [] if state_path is None else tables_in(state_path.read_text())
        specs = [self._spec(table) for table in tables]
        if not self.watch or not specs:
            return dg.Definitions(assets=specs)
        name = self.sensor_name or f"{re.sub(r'[^A-Za-z0-9_]', '_', context.path.name)}_tables"
        sensor = build_table_sensor(
            specs, self.spark, name=name, minimum_interval_seconds=self.minimum_interval_seconds
        )
        return dg.Definitions(assets=specs, sensors=[sensor])

    def _spec(self, table: DiscoveredTable) -> dg.AssetSpec:
        name, prefix = TableIdentifier(table.name[:-1], table.name[-1]), self.key_prefix or []
        partitions = table.partitions
        return foreign_table(
            [*([prefix] if isinstance(prefix, str) else prefix), *table.name],
            table=str(name),
            partition_expr=None if partitions is None else partitions.column,
            partitions_def=None if partitions is None else _definition(partitions),
            io_manager_key=self.io_manager_key,
            group_name=self.group_name,
            description=None if table.description is None else escape(table.description),
            metadata={
                "dagster/column_schema": _columns(table),
                "dagster/table_name": f"{self.spark.catalog.name}.{name}",
                "dagster/uri": table.location,
                "dagster/storage_kind": "iceberg",
            },
        )


def _columns(table: DiscoveredTable) -> dg.TableSchema:
    return dg.TableSchema(
        columns=[
            table_column(column.name, column.type, column.doc, is_required=column.is_required)
            for column in table.columns
        ]
    )


def _definition(partitions: DiscoveredPartitions) -> dg.PartitionsDefinition:
    """Return the partitions definition of a table."""
    if partitions.start is None:
        return dg.StaticPartitionsDefinition(list(partitions.keys))
    start = dt.datetime.fromisoformat(partitions.start)
    match partitions.granule:
        case "hour":
            return dg.HourlyPartitionsDefinition(start)
        case "day":
            return dg.DailyPartitionsDefinition(start)
        case "month":
            return dg.MonthlyPartitionsDefinition(start)
        case _:
            return dg.TimeWindowPartitionsDefinition(start=start, fmt="%Y", cron_schedule="0 0 1 1 *")
