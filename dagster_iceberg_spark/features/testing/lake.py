"""An empty lake for a test: a catalog in a SQLite file, and the resources of a code location on it."""

import shutil
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import new_class
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import dagster as dg

from dagster_iceberg_spark.assets.address import plain_metadata
from dagster_iceberg_spark.assets.asking import OutputFacts
from dagster_iceberg_spark.assets.dagster_private.event_log import events_of
from dagster_iceberg_spark.assets.dagster_private.runs import (
    PARENT_RUN_TAG,
    RANGE_TAGS,
    RESUME_TAGS,
    ROOT_RUN_TAG,
    root_run_of,
)
from dagster_iceberg_spark.assets.table_io_manager import TableIOManager
from dagster_iceberg_spark.config.sql_catalog import SqlCatalog
from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.features.testing import faults
from dagster_iceberg_spark.io_manager import IcebergPySparkIOManager
from dagster_iceberg_spark.plan.options import output_options as keys
from dagster_iceberg_spark.plan.read.read_options import MISSING
from dagster_iceberg_spark.resource import SESSIONS, IcebergSparkResource

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import Table

Asset: TypeAlias = dg.AssetsDefinition | dg.AssetSpec | dg.AssetKey | str
Partition: TypeAlias = str | tuple[str, str]
"""A partition key, or the first and the last key of a range."""

_SPARK_CONFIG: Final = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
}
"""Small data is fast with few tasks."""
_SQL_SETTINGS: Final = "spark.sql."
"""Prefix of the settings of a code location that a test keeps: they decide what a query means."""
_IO_MANAGER: Final = "iceberg"
_TABLE_KEYS: Final = (
    keys.PARTITION_EXPR,
    keys.SCHEMA,
    keys.TABLE,
    keys.PARTITION_BY,
    keys.IDENTIFIER_FIELDS,
    keys.REQUIRED_COLUMNS,
    keys.SORT_BY,
    keys.FORMAT_VERSION,
    "iceberg/table_properties",
)
"""Metadata of an asset that describes its table. The rest is about how the asset writes, which `given` does not do."""
_OUTSIDE: Final = ("environment", "metrics", "mirror", "spark", "table_location")
"""Fields of an IO manager that reach beyond the lake."""
_CREATES: Final = {"auto_create_table": True, "auto_create_namespace": True}
"""No other process creates the tables of a lake."""
_INSTANCE: Final[dict[str, Any]] = {
    "event_log_storage": {"module": "dagster._core.storage.event_log", "class": "InMemoryEventLogStorage"},
    "compute_logs": {"module": "dagster._core.storage.noop_compute_log_manager", "class": "NoOpComputeLogManager"},
    "telemetry": {"enabled": False},
    "python_logs": {"python_log_level": "WARNING"},
}


class Lake:
    """An empty lake, on which assets run as they do in production.

    Args:
        directory: A directory that belongs to the lake.
        definitions: A code location. Its assets can be named by their keys. Its IO managers and its
            `IcebergSparkResource` are replaced by those of the lake, with the same options.
        remote: As for `IcebergSparkResource`. Default: a classic session in this process, which starts when an asset
            needs it.
        spark_config: More settings of Spark.

    Attributes:
        spark: The `IcebergSparkResource` of the lake.
        io_manager: An `IcebergPySparkIOManager` of the lake, for assets without a code location.
    """

    def __init__(
        self,
        directory: Path,
        *,
        definitions: dg.Definitions | None = None,
        remote: str | None = None,
        spark_config: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory
        self._resources = dict(definitions.resources or {}) if definitions is not None else {}
        config = {**_SPARK_CONFIG, **_sql_settings(self._resources.values()), **(spark_config or {})}
        if remote is not None:
            config = {name: value for name, value in config.items() if name.startswith(_SQL_SETTINGS)}
        for name in ("warehouse", "dagster"):
            (directory / name).mkdir(parents=True, exist_ok=True)
        self.spark = IcebergSparkResource(
            catalog=SqlCatalog(uri=f"sqlite:///{directory}/catalog.db", warehouse=f"{directory}/warehouse"),
            spark_config=config,
            remote=remote,
        )
        self.io_manager: IcebergPySparkIOManager = _in_lake(IcebergPySparkIOManager)(spark=self.spark)
        # Those of the asset graph are bound to the resources of the code location.
        assets: Any = () if definitions is None else definitions.assets or ()
        self._of_location: dict[dg.AssetKey, dg.AssetsDefinition | dg.AssetSpec] = {}
        for asset in assets:
            keys_of = [asset.key] if isinstance(asset, dg.AssetSpec) else getattr(asset, "keys", ())
            self._of_location |= dict.fromkeys(keys_of, asset)
        self._known = dict(self._of_location)
        self._instance: dg.DagsterInstance | None = None

    @property
    def instance(self) -> dg.DagsterInstance:
        """The Dagster instance of the runs, such as for `add_dynamic_partitions`."""
        if self._instance is None:
            self._instance = dg.DagsterInstance.local_temp(str(self.directory / "dagster"), overrides=_INSTANCE)
        return self._instance

    def given(
        self, asset: Asset, rows: Any, *, partition: Partition | None = None, columns: Mapping[str, str] | None = None
    ) -> None:
        """Store rows as an asset's table, or as partitions of it, which then have these rows only.

        Args:
            asset: The asset, or its key. A key that the code location does not know is an asset without partitions.
            rows: A list of mappings, or a DataFrame of Spark, pandas, polars, DuckDB, ibis or Arrow.
            partition: The partition of the rows, which replace its rows. It counts as materialized, with or without
                rows. Default: they replace all rows.
            columns: Types of the columns by name, in the notation of Iceberg, such as `timestamptz` or
                `decimal(9, 2)`. Default: the types of the values. Required for a list without rows.

        Raises:
            ConfigurationError: The columns are missing or do not fit, or the asset has no partitions.
        """
        spec, subject = self._spec(asset), f"the rows of {_name_of(asset)}"
        if spec.partitions_def is None and partition is not None:
            raise ConfigurationError.refusing(
                "store",
                subject,
                expected="an asset with partitions",
                found="one without, or a key that the code location does not know",
                hint="pass the asset, or leave `partition` out.",
            )
        if isinstance(rows, list | tuple):
            from dagster_iceberg_spark.features.testing.given_rows import table_of

            rows = table_of(rows, columns or {}, subject=subject)

        @dg.asset(
            key=spec.key,
            partitions_def=None if partition is None else spec.partitions_def,
            metadata=_table_metadata(spec, is_whole=partition is None),
            io_manager_key=self._io_manager_key(spec.key),
        )
        def given_rows() -> Any:
            return rows

        self._known.setdefault(spec.key, spec)
        self._run([given_rows], [spec.key], partition)

    def materialize(
        self,
        *assets: Asset,
        partition: Partition | None = None,
        resources: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> dg.ExecuteInProcessResult:
        """Run assets, and return the result of the run.

        What they load must have been given or materialized before. A fault that is active ends the run, which is then
        re-executed from its failure, as Dagster does: the result is that of the last run.

        Args:
            assets: The assets, or their keys in the code location.
            partition: The partition key, or the first and the last key of a range, which is one run.
            resources: Resources by key, in addition to those of the lake and of the code location.
            kwargs: Further arguments of `dagster.materialize`, such as `run_config`.

        Raises:
            Exception: The error of an asset, unless `raise_on_error` is false.
        """
        selected = list[dg.AssetKey]()
        for asset in assets:
            if isinstance(asset, dg.AssetsDefinition):
                self._known |= dict.fromkeys(asset.keys, asset)
                selected += asset.keys
            else:
                selected.append(self._runnable(asset))
        chosen = {id(item): item for key in selected if isinstance(item := self._known[key], dg.AssetsDefinition)}
        return self._run(list(chosen.values()), selected, partition, resources, **kwargs)

    def rows(self, asset: Asset, *columns: str, partition: Partition | None = None) -> list[dict[str, Any]]:
        """Return the rows of an asset's table, as a list of mappings.

        Args:
            asset: The asset, or its key.
            columns: The columns. Default: all.
            partition: Only the rows that an input with this partition loads.
        """
        table = self.table(asset).scan().to_arrow() if partition is None else self._loaded(asset, partition)
        return (table.select(list(columns)) if columns else table).to_pylist()  # type: ignore[no-any-return]

    def table(self, asset: Asset) -> "Table":
        """Return the table of an asset, as pyiceberg has it: its snapshots, properties and partition spec."""
        spec = self._spec(asset)
        manager = self._all_resources().get(self._io_manager_key(spec.key), self.io_manager)
        identifier = manager.table_of(spec)
        return self.spark.pyiceberg_catalog.load_table(identifier.parts)

    def contexts(
        self, asset: Asset, *, partition: Partition | None = None, as_type: type | None = None
    ) -> tuple[dg.OutputContext, dg.InputContext]:
        """Return the contexts in which an IO manager stores and loads an asset, for tests that call it by hand.

        Args:
            asset: The asset.
            partition: The partition of the run.
            as_type: The type of the input. Default: none, as for an input without annotation.
        """
        contexts = list[Any]()

        class Recorder(dg.IOManager):
            def handle_output(self, context: dg.OutputContext, obj: Any) -> None:  # noqa: ARG002
                contexts.append(context)

            def load_input(self, context: dg.InputContext) -> None:
                contexts.append(context)

        spec = self._spec(asset)

        @dg.asset(
            key=spec.key, partitions_def=spec.partitions_def, metadata=spec.metadata, io_manager_key="iceberg_recorder"
        )
        def stored() -> int:
            return 0

        reader = _reader(spec, lambda _: None, as_type)
        resources = {"iceberg_recorder": Recorder(), "io_manager": dg.mem_io_manager}
        self._execute([stored, reader], [spec.key, reader.key], partition, resources)
        output, loaded = contexts
        return output, loaded

    def dies_after_commit(self) -> AbstractContextManager[None]:
        """Let the process of each asset in the block die after its first commit, before Dagster knows of the commit."""
        return faults.death_after_commit().in_engines()

    def loses_answer(self) -> AbstractContextManager[None]:
        """Let the catalog commit the first write of each asset in the block, and its answer be lost."""
        return faults.lost_answer().in_engines()

    def conflicts(self, times: int = 1) -> AbstractContextManager[None]:
        """Let another writer commit before each asset in the block does, so often that it is planned again.

        Args:
            times: How often. The IO manager's `commit_attempts` is 5 by default.
        """
        return faults.conflict(times).in_engines()

    def empty(self) -> None:
        """Drop all tables, and forget all runs and assets that the lake was given."""
        self._known = dict(self._of_location)
        if self._instance is not None:
            storages = (self._instance.run_storage, self._instance.event_log_storage, self._instance.schedule_storage)
            for storage in storages:  # a new instance takes 80 ms
                if storage is not None:
                    storage.wipe()
        shutil.rmtree(self.directory / "warehouse")
        (self.directory / "warehouse").mkdir()
        empty_catalog(self.directory / "catalog.db")

    def close(self) -> None:
        """Release the session."""
        self._close_instance()
        SESSIONS.release(id(self.spark), stops_when_unused="yes" if self.spark.remote else "no")

    def _close_instance(self) -> None:
        if self._instance is not None:
            self._instance.dispose()
            self._instance = None

    # ------------------------------------------------------------------------------------------------------- assets

    def _spec(self, asset: Asset) -> dg.AssetSpec:
        """Return the spec of an asset: as it was passed, or as the code location or an earlier call has it."""
        if isinstance(asset, dg.AssetsDefinition):
            self._known |= dict.fromkeys(asset.keys, asset)
            return asset.get_asset_spec()
        if isinstance(asset, dg.AssetSpec):
            self._known[asset.key] = asset
            return asset
        key = dg.AssetKey.from_user_string(asset) if isinstance(asset, str) else asset
        known = self._known.get(key)
        if known is None:
            return dg.AssetSpec(key)
        return known if isinstance(known, dg.AssetSpec) else known.get_asset_spec(key)

    def _runnable(self, asset: dg.AssetSpec | dg.AssetKey | str) -> dg.AssetKey:
        key = self._spec(asset).key
        if not isinstance(self._known.get(key), dg.AssetsDefinition):
            raise ConfigurationError.refusing(
                "run",
                key.to_user_string(),
                expected="an asset, or the key of an asset of the code location",
                found="the key of none" if self._of_location else "a key, and no code location",
                hint="pass the asset, or set `iceberg_code_location` in the configuration of pytest.",
            )
        return key

    def _io_manager_key(self, key: dg.AssetKey) -> str:
        known = self._known.get(key)
        if isinstance(known, dg.AssetsDefinition) and known.is_executable:
            return known.get_io_manager_key_for_asset_key(key)
        found = None if known is None else self._spec(key).metadata.get("dagster/io_manager_key")
        return str(found) if isinstance(found, str) else _IO_MANAGER

    def _all_resources(self) -> dict[str, Any]:
        """Return the resources of the code location with the lake's catalog, and those of the lake."""
        ours = {"spark": self.spark, _IO_MANAGER: self.io_manager}
        return ours | {key: self._on_lake(resource) for key, resource in self._resources.items()}

    def _on_lake(self, resource: Any) -> Any:
        if isinstance(resource, IcebergSparkResource):
            return self.spark
        if not isinstance(resource, TableIOManager):
            return resource
        kept = {name: getattr(resource, name) for name in type(resource).model_fields if name not in _OUTSIDE}
        return _in_lake(type(resource))(**{**kept, **_CREATES}, spark=self.spark)

    # --------------------------------------------------------------------------------------------------------- runs

    def _run(
        self,
        assets: list[dg.AssetsDefinition],
        selected: list[dg.AssetKey],
        partition: Partition | None,
        resources: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> dg.ExecuteInProcessResult:
        """Run assets. While a fault ends the run, re-execute it from its failure."""
        tags = dict(kwargs.pop("tags", None) or {})
        while True:
            try:
                return self._execute(assets, selected, partition, resources, tags=tags, **kwargs)
            except faults.ProcessDied:
                (run,) = self.instance.get_runs(limit=1)
            done = {
                event.asset_key
                for event in events_of(self.instance, run.run_id, dg.DagsterEventType.ASSET_MATERIALIZATION)
            }
            selected = [key for key in selected if key not in done]
            tags |= {PARENT_RUN_TAG: run.run_id, ROOT_RUN_TAG: root_run_of(run), RESUME_TAGS[0]: "true"}

    def _execute(
        self,
        assets: list[dg.AssetsDefinition],
        selected: list[dg.AssetKey],
        partition: Partition | None,
        resources: Mapping[str, Any] | None = None,
        *,
        tags: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> dg.ExecuteInProcessResult:
        own = {key for asset in assets for key in asset.keys}
        upstream = [self._source(key) for key in self._known if key not in own]
        given = self._all_resources() | dict(resources or {})
        for asset in assets:
            for key in asset.keys & set(selected):
                given.setdefault(asset.get_io_manager_key_for_asset_key(key), self.io_manager)
        for source in upstream:
            given.setdefault(str(source.metadata["dagster/io_manager_key"]), self.io_manager)
        if isinstance(partition, tuple):
            tags = {**(tags or {}), **dict(zip(RANGE_TAGS, partition, strict=True))}
        return dg.materialize(
            [*assets, *upstream],
            selection=dg.AssetSelection.assets(*selected),
            resources=given,
            instance=self.instance,
            partition_key=partition if isinstance(partition, str) else None,
            tags=tags,
            **kwargs,
        )

    def _source(self, key: dg.AssetKey) -> dg.AssetSpec:
        """Return an asset that is not part of a run, from which its assets load."""
        known = self._spec(key)
        spec = dg.AssetSpec(key, metadata=known.metadata, partitions_def=known.partitions_def)
        return spec.with_io_manager_key(self._io_manager_key(key))

    def _loaded(self, asset: Asset, partition: Partition) -> "pa.Table":
        import pyarrow as pa

        spec, loaded = self._spec(asset), list[Any]()
        self._known.setdefault(spec.key, spec)
        reader = _reader(spec, loaded.append, pa.Table)
        self._execute([reader], [reader.key], partition, {"io_manager": dg.mem_io_manager})
        return loaded[0]


def _reader(spec: dg.AssetSpec, take: Callable[[Any], Any], kind: type | None) -> dg.AssetsDefinition:
    """Return an asset that loads another one."""

    @dg.asset(
        name=f"reader_of_{'_'.join(spec.key.path)}",
        ins={"upstream": dg.AssetIn(key=spec.key, dagster_type=_any_of(kind), metadata={MISSING: "empty"})},
        partitions_def=spec.partitions_def,
    )
    def reader(upstream) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
        take(upstream)

    return reader


def _any_of(kind: type | None) -> Any:
    """Return the type of an input that loads as this type, and takes every value."""
    return dg.Any if kind is None else dg.DagsterType(lambda _, __: True, kind.__name__, typing_type=kind)


def _sql_settings(resources: Any) -> dict[str, str]:
    """Return Spark's settings of a code location that decide what a query means."""
    configured = (item.spark_config for item in resources if isinstance(item, IcebergSparkResource))
    return {name: value for config in configured for name, value in config.items() if name.startswith(_SQL_SETTINGS)}


def _name_of(asset: Asset) -> str:
    if isinstance(asset, dg.AssetsDefinition | dg.AssetSpec):
        return asset.key.to_user_string()
    return asset.to_user_string() if isinstance(asset, dg.AssetKey) else asset


def _table_metadata(spec: dg.AssetSpec, *, is_whole: bool) -> dict[str, Any]:
    """Return the metadata with which all rows of a table, or of a partition, are replaced."""
    described = {key: value for key, value in plain_metadata(spec.metadata).items() if key in _TABLE_KEYS}
    if is_whole:
        described.pop(keys.PARTITION_EXPR, None)
    return {**described, keys.WRITE_DISPOSITION: "replace", keys.PUBLISH: "step"}


class _InLake:
    """Stores tables in the lake, whatever location their assets have."""

    def write_request_of(self, facts: OutputFacts) -> Any:
        definition = {key: value for key, value in facts.definition.items() if key != keys.LOCATION}
        return super().write_request_of(replace(facts, definition=definition))  # type: ignore[misc]


@cache
def _in_lake(kind: type[Any]) -> Any:
    """Return a class of IO managers that keeps tables in the lake."""
    return new_class(kind.__name__, (_InLake, kind))


def empty_catalog(path: Path) -> None:
    """Delete all tables of a catalog in a SQLite file, if it exists. The connections of sessions stay."""
    if not path.exists():
        return
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            database.execute(f"DELETE FROM {name}")  # noqa: S608 - its own tables
