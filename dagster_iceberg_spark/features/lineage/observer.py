"""The columns of upstream assets that the columns of a materialization are derived from, as metadata."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final, TypeAlias

import dagster as dg

from dagster_iceberg_spark.assets.address import plain_metadata
from dagster_iceberg_spark.assets.dagster_private.context import specs_of_job
from dagster_iceberg_spark.assets.dagster_private.graph import loaded_inputs
from dagster_iceberg_spark.assets.engines import Written
from dagster_iceberg_spark.assets.observers import ObservedWrite, Observer
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.features.lineage.plan.column_lineage import column_lineage, tables_read
from dagster_iceberg_spark.features.lineage.plan.column_origins import SourceColumn, parse_plan
from dagster_iceberg_spark.plan.options.output_options import TABLE
from dagster_iceberg_spark.table.identifier import NotationError, TableIdentifier, split_parts
from dagster_iceberg_spark.table.lineage import OWNER_PROPERTY, UpstreamRead
from dagster_iceberg_spark.table.schema import Schema

COLUMN_LINEAGE: Final = "dagster/column_lineage"
ROW_COLUMNS: Final = "iceberg/row_columns"
"""Key of a materialization's metadata: the columns that decide which rows there are, by asset."""
COPIED_COLUMNS: Final = "iceberg/copied_columns"
"""Key of a materialization's metadata: by asset, the columns that have the value of one of its columns, unchanged."""
NEW_COLUMNS: Final = "iceberg/new_columns"
"""Metadata of a replayed materialization: the columns that the table lacks. The replay leaves them out."""
READ_BY_NAME: Final = "iceberg/read_by_name"
"""Metadata of a replayed materialization: the tables that the asset reads and that no input has loaded."""

_SELECTED: Final = re.compile(r"changes|(branch|tag|snapshot_id|at_timestamp)_.*", re.DOTALL)
"""What follows the name of a table, for Iceberg's readers in Spark, to select a ref, an instant or changes."""
AssetColumns: TypeAlias = frozenset[tuple[str, str]]
"""Columns of assets, each with the key of its asset."""


@dataclass(frozen=True, slots=True)
class ColumnLineageObserver(Observer):
    """Reports the lineage of columns and, in a replay, what was not pinned.

    Args:
        is_reported: Whether the lineage of columns is reported.
    """

    action: ClassVar = "determine the column lineage"
    is_reported: bool = True

    def wrote(self, write: ObservedWrite) -> Mapping[str, Any]:
        """Return the lineage of the columns as metadata."""
        upstream = UpstreamTables(write.context, write.table.catalog, write.request.materialization.upstream)
        metadata = dict[str, Any]()
        if not write.request.table.target.may_add_columns:  # a replay
            by_name = upstream.read_by_name(write.written.frame)
            metadata |= {NEW_COLUMNS: list(write.written.left_out), READ_BY_NAME: by_name}
        if self.is_reported and write.context.has_asset_key:
            metadata |= upstream.metadata(write.written)
        return metadata


@dataclass(frozen=True)
class UpstreamTables:
    """The tables that a step reads, and their assets.

    Args:
        catalog: The catalog of the tables.
        reads: The reads of the step through the IO manager.
    """

    context: dg.OutputContext
    catalog: CatalogDescription
    reads: Sequence[UpstreamRead]

    def metadata(self, written: Written) -> dict[str, Any]:
        """Return the lineage of the columns that were written, as metadata."""
        schema = written.commit.schema  # whose names may be in another case
        try:
            if written.is_returned:
                return self._by_plan(written.frame, schema)
            return self._by_name(written.columns, schema)
        except NotationError:  # such as a plan that Spark has shortened
            return {}

    def _by_plan(self, frame: Any, schema: Schema) -> dict[str, Any]:
        from dagster_iceberg_spark.features.lineage.spark import analyzed_plan

        columns = frame.columns
        lineage = column_lineage(parse_plan(analyzed_plan(frame)), columns)
        origins = zip(columns, lineage.columns, strict=True)
        metadata = _metadata(
            {schema.exact(name): self._assets(known) for name, known in origins}, self._assets(lineage.row_columns)
        )
        copied: dict[str, dict[str, str]] = {}
        for name, source in zip(columns, lineage.copied, strict=True):
            assets = None if source is None else self._assets((source,))
            if assets is not None and len(assets) == 1:
                ((asset, column),) = assets
                copied.setdefault(asset, {})[schema.exact(name)] = column
        return {**metadata, COPIED_COLUMNS: copied} if copied else metadata

    def _by_name(self, columns: Sequence[str], schema: Schema) -> dict[str, Any]:
        """Return the lineage of columns that have the name of a column of the only input. Their rows have no plan."""
        if len(self.reads) != 1 or not self.reads[0].is_of_asset or len(loaded_inputs(self.context.op_def)) != 1:
            return {}
        (read,) = self.reads
        same = [name for name in columns if name in read.columns]
        return _metadata({schema.exact(name): frozenset({(read.asset_key, name)}) for name in same}, None)

    def _assets(self, origins: Iterable[SourceColumn] | None) -> AssetColumns | None:
        """Return the columns of assets, or None if a column or the asset of a table is not known."""
        if origins is None:
            return None
        found = set[tuple[str, str]]()
        for origin in origins:
            assets = self._assets_by_table.get(origin.table)
            if assets is None:
                assets = self._assets_by_table[origin.table] = self._assets_of(origin.table)
            if _UNKNOWN_ASSET in assets:
                return None
            found |= {(asset, origin.column) for asset in assets}
        return frozenset(found)

    @cached_property
    def _assets_by_table(self) -> dict[str, tuple[str, ...]]:
        return {}

    def _assets_of(self, table: str) -> tuple[str, ...]:
        """Return the assets that a table of the plan stores, or none for a table of no asset.

        These are the assets that the step has loaded from the table. A table that it reads by name belongs to the asset
        that names it by `iceberg/table`, or to the asset that has written it.
        """
        named = self._find(table)
        if named is None:
            return (_UNKNOWN_ASSET,)
        identifier, loaded = named
        if loaded:
            keys = (read.asset_key if read.is_of_asset else _UNKNOWN_ASSET for read in loaded)
            return tuple(dict.fromkeys(keys))
        specs = specs_of_job(self.context)
        keys_by_name = [spec.key for spec in specs if plain_metadata(spec.metadata).get(TABLE) == str(identifier)]
        if keys_by_name:
            return tuple("/".join(key.path) for key in keys_by_name)
        from dagster_iceberg_spark.catalog.look import look

        state = look(self.catalog, identifier)
        owner = None if state is None else state.properties.get(OWNER_PROPERTY)
        return () if owner is None else (owner,)

    def _find(self, table: str) -> tuple[TableIdentifier, Sequence[UpstreamRead]] | None:
        """Return a table of the plan, with the reads that have loaded it, or None for one of another catalog.

        A name may end with what Iceberg's readers select: a ref, an instant or changes. A table may also be called so.
        """
        catalog, *parts = split_parts(table)
        if catalog != self.catalog.name or not parts:
            return None
        whole = TableIdentifier(tuple(parts[:-1]), parts[-1])
        loaded = [read for read in self.reads if read.table == str(whole)]
        if loaded or len(parts) < _PARTS_OF_SELECTION or not _SELECTED.fullmatch(parts[-1]):
            return whole, loaded
        selected = TableIdentifier(tuple(parts[:-2]), parts[-2])
        return selected, [read for read in self.reads if read.table == str(selected)]

    def read_by_name(self, frame: Any) -> list[str]:
        """Return the tables that a Spark DataFrame reads and that no input of the step has loaded, as far as known.

        Rows that Arrow wrote have no plan.
        """
        if frame is None:
            return []
        from dagster_iceberg_spark.features.lineage.spark import analyzed_plan

        try:
            tables = tables_read(parse_plan(analyzed_plan(frame)))
        except Exception:  # noqa: BLE001 - what is not known is not "none"
            return ["what its plan does not show"]
        found = {table: self._find(table) for table in tables}
        return sorted(
            table if named is None else str(named[0]) for table, named in found.items() if not (named and named[1])
        )


_PARTS_OF_SELECTION: Final = 3
"""The parts of a name with a selection, after the catalog: a namespace, a table and what is selected."""
_UNKNOWN_ASSET: Final = ""
"""Stands for what is no asset that is known: the output of an op, or a table of another catalog."""


def _metadata(columns: Mapping[str, AssetColumns | None], row_columns: AssetColumns | None) -> dict[str, Any]:
    """Return the metadata. Columns whose origins are not known are left out."""
    known = {name: origins for name, origins in columns.items() if origins is not None}
    metadata: dict[str, Any] = {}
    if any(known.values()):
        deps = {name: [_dep(*origin) for origin in sorted(origins)] for name, origins in known.items()}
        metadata[COLUMN_LINEAGE] = dg.TableColumnLineage(deps)
    if row_columns:
        by_asset: dict[str, list[str]] = {}
        for asset, column in sorted(row_columns):
            by_asset.setdefault(asset, []).append(column)
        metadata[ROW_COLUMNS] = by_asset
    return metadata


def _dep(asset: str, column: str) -> dg.TableColumnDep:
    return dg.TableColumnDep(dg.AssetKey(asset.split("/")), column)
