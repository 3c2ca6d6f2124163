"""Assets whose rows are the results of queries in SQL files, and the values of a run's partitions in a query."""

import datetime as dt
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import dagster as dg
from dagster.components.component_scaffolding import scaffold_component

from dagster_iceberg_spark.assets.address import partition_columns
from dagster_iceberg_spark.errors import ConfigurationError, PartitioningError
from dagster_iceberg_spark.features.checks.data_checks import build_data_checks
from dagster_iceberg_spark.features.components.models import described
from dagster_iceberg_spark.features.components.plan.sql_query import TableName
from dagster_iceberg_spark.features.components.sql_file import CHECKS, SqlFile
from dagster_iceberg_spark.plan.options import parse_write_options
from dagster_iceberg_spark.table.predicate import text_literal

_PARTS_OF_ASSET: Final = 2
"""The most parts in the name of a table that stands for an asset. One more is the catalog."""
_KINDS: Final = ("sql", "spark", "iceberg")
_EXAMPLE: Final = """\
/* ---
description: Replace this with your own query. The name of the file is the name of the asset.
--- */
SELECT 1 AS id
"""


class SparkSqlScaffolder(dg.Scaffolder):
    """Writes a component with an example of a query."""

    def scaffold(self, request: dg.ScaffoldRequest) -> None:
        """Write `defs.yaml` and a query."""
        scaffold_component(request, {"path": "."})
        (request.target_path / "example.sql").write_text(_EXAMPLE)


@dg.scaffold_with(SparkSqlScaffolder)
class SparkSqlComponent(dg.Component, dg.Resolvable, dg.Model):
    """Makes an asset of each SQL file in a folder. Spark runs the queries, and the IO manager stores their rows.

    A comment at the top of a file, between `/* ---` and `--- */`, has the keys of the asset in YAML, such as
    `partitions_def` or `iceberg/write_disposition`. Tables in the query become dependencies, by their names or by
    `ref('key')`. Their IO managers load them: the rows of the partitions that the run needs, from one snapshot.
    """

    path: Annotated[str, described("Folder of the SQL files, relative to this file.")] = "."
    io_manager_key: Annotated[str, described("Key of the IO manager that stores the results.")] = "iceberg"
    spark_key: Annotated[str, described("Key of the IcebergSparkResource that runs the queries.")] = "spark"
    key_prefix: Annotated[
        str | Sequence[str] | None, described("Prefix of the keys of assets without a `key` in their file.")
    ] = None
    group_name: Annotated[str | None, described("Group of the assets that have none in their file.")] = None

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return an asset for each file.

        Raises:
            ConfigurationError: A file is wrong, or there is none. The message has the file.
        """
        folder = (context.path / self.path).resolve()
        files = [SqlFile.read(path, context.resolution_context) for path in sorted(folder.glob("**/*.sql"))]
        if not files:
            raise ConfigurationError.refusing("use", str(folder), expected="files with the suffix .sql", found="none")
        own = {file.name.lower(): self._key_of(file) for file in files}
        if len(own) < len(files):
            names = [file.name.lower() for file in files]
            twice = sorted({name for name in names if names.count(name) > 1})
            raise ConfigurationError.refusing(
                "use", str(folder), expected="one file of each name", found=f"several of {', '.join(twice)}"
            )
        assets = {file.path: self._asset(file, own) for file in files}
        checks = [_checks(file, assets[file.path]) for file in files if CHECKS in file.attributes]
        return dg.Definitions(assets=list(assets.values()), asset_checks=checks)

    def _key_of(self, file: SqlFile) -> dg.AssetKey:
        given = file.attributes.get("key")
        prefix = file.attributes.get("key_prefix") or self.key_prefix or []
        if given is not None:
            return dg.AssetKey.from_coercible(given)
        return dg.AssetKey([*([prefix] if isinstance(prefix, str) else prefix), file.name])

    def _asset(self, file: SqlFile, own: Mapping[str, dg.AssetKey]) -> dg.AssetsDefinition:
        parse_write_options(file.attributes.get("metadata", {}), None, {}, subject=str(file.path))
        partition_columns(
            file.attributes.get("partitions_def"), file.attributes.get("metadata", {}), subject=str(file.path)
        )
        tables = {table.parts: _upstream(table, own, file) for table in file.query().tables}
        inputs = {
            f"input_{number}": key
            for number, key in enumerate(dict.fromkeys(key for key in tables.values() if key is not None))
        }
        attributes = {
            name: value for name, value in file.attributes.items() if name not in ("key", "key_prefix", "deps", CHECKS)
        }
        statement = dg.MetadataValue.md(f"```sql\n{file.template.strip()}\n```")

        asset: Any = dg.asset(
            key=self._key_of(file),
            ins={name: dg.AssetIn(key=key) for name, key in inputs.items()},
            deps=file.attributes.get("deps"),
            io_manager_key=self.io_manager_key,
            required_resource_keys={self.spark_key},
            **{
                "group_name": self.group_name,
                "code_version": hashlib.sha256(file.template.encode()).hexdigest()[:12],
                **attributes,
                "kinds": set(attributes.get("kinds") or _KINDS),
                "metadata": {"sql": statement, **attributes.get("metadata", {})},
            },
        )

        def query_asset(context: dg.AssetExecutionContext, **frames: Any) -> Any:
            from dagster_iceberg_spark.features.components.spark import run_query

            query = file.query(SqlPartition.of(context, file.path))
            by_key = {key: frames[name] for name, key in inputs.items()}
            by_table = {parts: by_key[key] for parts, key in tables.items() if key is not None}
            return run_query(getattr(context.resources, self.spark_key).spark_session, query, by_table)

        definition: dg.AssetsDefinition = asset(query_asset)
        return definition


def _checks(file: SqlFile, asset: dg.AssetsDefinition) -> dg.AssetChecksDefinition:
    """Return the checks that the header of a file asks for."""
    try:
        return build_data_checks(asset, **file.attributes[CHECKS])
    except (TypeError, ConfigurationError) as error:
        raise ConfigurationError.refusing(
            "use",
            f"`{CHECKS}` of {file.path}",
            expected="the arguments of `build_data_checks`",
            found=str(error).partition("build_data_checks() ")[2] or str(error),
        ) from error


def _upstream(table: TableName, own: Mapping[str, dg.AssetKey], file: SqlFile) -> dg.AssetKey | None:
    """Return the asset of a table in a query: None for a table with a catalog, which Spark reads by name.

    Raises:
        ConfigurationError: The query selects a version of an asset.
    """
    if table.reference is None and len(table.parts) > _PARTS_OF_ASSET:
        return None
    key = dg.AssetKey(table.parts) if table.reference is None else dg.AssetKey.from_user_string(table.reference)
    if table.is_versioned:
        raise ConfigurationError.refusing(
            "use",
            str(file.path),
            expected="the rows of assets that the run loads",
            found=f"a version of {key.to_user_string()!r}",
            hint="name the table with its catalog: `lake.nyc.flights VERSION AS OF 1`. Spark reads it by name.",
        )
    return own.get(key.to_user_string().lower(), key)


@dataclass(frozen=True)
class SqlPartition:
    """The partitions of a run. In a template, `{{ partition.start }}` is a literal of SQL."""

    context: dg.AssetExecutionContext
    path: Path

    @classmethod
    def of(cls, context: dg.AssetExecutionContext, path: Path) -> "SqlPartition":
        """Return the partitions of a run. `path` is the file of the query."""
        return cls(context, path)

    @property
    def start(self) -> str:
        """The beginning of the time window, as a TIMESTAMP."""
        return _timestamp(self._window.start)

    @property
    def end(self) -> str:
        """The end of the time window, which is not part of it, as a TIMESTAMP."""
        return _timestamp(self._window.end)

    @property
    def key(self) -> str:
        """The only partition key, as a text."""
        keys = self._keys
        if len(keys) != 1:
            raise self._refusal("one partition, for `partition.key`", f"{len(keys)}: use `partition.keys`")
        return text_literal(keys[0])

    @property
    def keys(self) -> str:
        """All partition keys, as a list for `IN`."""
        return f"({', '.join(map(text_literal, self._keys))})"

    @property
    def _keys(self) -> list[str]:
        if not self.context.has_partition_key and not self.context.has_partition_key_range:
            raise self._refusal("an asset with partitions, for `partition`", "none: set `partitions_def`")
        return list(self.context.partition_keys)

    @property
    def _window(self) -> dg.TimeWindow:
        definition = self.context.assets_def.partitions_def
        if not isinstance(definition, dg.TimeWindowPartitionsDefinition):
            raise self._refusal("partitions by time, for `partition.start` and `partition.end`", "other partitions")
        windows = [definition.time_window_for_partition_key(key) for key in self._keys]
        return dg.TimeWindow(min(item.start for item in windows), max(item.end for item in windows))

    def _refusal(self, expected: str, found: str) -> PartitioningError:
        return PartitioningError.refusing("run", str(self.path), expected=expected, found=found)


def _timestamp(instant: dt.datetime) -> str:
    return f"TIMESTAMP '{instant.astimezone(dt.timezone.utc).isoformat()}'"
