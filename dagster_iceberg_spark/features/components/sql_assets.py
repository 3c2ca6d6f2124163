"""Assets whose rows are the results of queries in SQL files. A comment at the top of a file defines the asset."""

import datetime as dt
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Final, NoReturn

import dagster as dg
from dagster.components.component_scaffolding import scaffold_component
from dagster.components.resolved.base import resolve_fields
from dagster.components.resolved.core_models import AssetSpecUpdateKwargs
from dagster.components.resolved.errors import ResolutionException
from dagster_shared.yaml_utils import parse_yaml_with_source_position
from dagster_shared.yaml_utils.source_position import SourcePositionTree
from jinja2 import Environment, StrictUndefined, TemplateError, TemplateSyntaxError
from pydantic import ValidationError
from yaml import MarkedYAMLError

from dagster_iceberg_spark.assets.address import partition_columns
from dagster_iceberg_spark.assets.dagster_private.graph import functions_in
from dagster_iceberg_spark.errors import ConfigurationError, PartitioningError
from dagster_iceberg_spark.features.checks.data_checks import build_data_checks
from dagster_iceberg_spark.features.components.models import described
from dagster_iceberg_spark.features.components.plan import SqlQuery, TableName, parse_query, reference
from dagster_iceberg_spark.features.contracts.options import CONTRACT
from dagster_iceberg_spark.plan.options.metadata_key import PREFIX
from dagster_iceberg_spark.plan.options.output_options import PARTITION_EXPR, SCHEMA, parse_write_options
from dagster_iceberg_spark.table.identifier import NotationError
from dagster_iceberg_spark.table.sql_text import text_literal

_BEGINNING: Final = r"/\*\s*---"
_HEADER: Final = re.compile(
    rf"\A(?:\s|--[^\n]*\n|/\*(?!\s*---).*?\*/)*{_BEGINNING}[^\S\n]*\n(.*?)\n\s*---\s*\*/", re.DOTALL
)
"""A comment that begins and ends with three dashes. Other comments may stand before it, such as a license."""
_HEADERS: Final = re.compile(_BEGINNING)
_PARTITION: Final = SimpleNamespace(start="NULL", end="NULL", key="NULL", keys="(NULL)")
"""Stands for the values of a partition where only the tables of the query matter."""
_METADATA_KEYS: Final = (PARTITION_EXPR, SCHEMA)
"""Keys of the header that are metadata, as are all keys with the prefix of the package."""
CHECKS: Final = "checks"
"""Key of the header with the arguments of `build_data_checks`."""
_IS_TYPE: Final = re.compile(r"^[A-Z]|\[")
"""The name of a class or a type, which pydantic puts between the keys of a choice."""
_UNKNOWN_KEY: Final = "Extra inputs are not permitted"
"""Pydantic's words for a key that a model does not have."""


@dataclass(frozen=True, slots=True)
class SqlFile:
    """A file with a query.

    Args:
        path: The file.
        template: The text. Its header is left out, but not its lines.
        attributes: The attributes of the asset, from the header.
    """

    path: Path
    template: str
    attributes: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path, context: dg.ResolutionContext) -> "SqlFile":
        """Read a file.

        Raises:
            ConfigurationError: The header is wrong. The message has the line.
        """
        text = path.read_text(encoding="utf-8-sig")
        header = _HEADER.match(text)
        if len(_HEADERS.findall(text)) > (header is not None):
            raise ConfigurationError.refusing(
                "use",
                str(path),
                expected="one header before the query: a comment that begins with `/* ---` and ends with `--- */`",
                found="a comment that begins so, and ends otherwise or stands elsewhere",
            )
        if header is None:
            return cls(path, text, {})
        lines = "\n" * text[: header.start(1)].count("\n")
        attributes = _attributes(path, lines + header[1], context)
        return cls(path, "\n" * header[0].count("\n") + text[header.end() :], attributes)

    @property
    def name(self) -> str:
        """The name of the asset without `key`: that of the file."""
        return self.path.stem

    def query(self, partition: Any = None) -> SqlQuery:
        """Return the query, with the values of a run's partition or, without a partition, as far as it is known."""
        values = _PARTITION if partition is None else partition
        try:
            text = _ENVIRONMENT.from_string(self.template).render(ref=reference, partition=values)
            return parse_query(text)
        except TemplateSyntaxError as error:
            self._refuse(f"{error.message} in line {error.lineno}", error)
        except TemplateError as error:
            self._refuse(str(error), error)
        except NotationError as error:
            self._refuse(error.found, error)

    def _refuse(self, found: str, error: Exception) -> NoReturn:
        raise ConfigurationError.refusing(
            "use",
            str(self.path),
            expected="one query in Spark SQL, with `{{ ref('asset') }}` and `{{ partition.start }}`",
            found=found,
        ) from error


_ENVIRONMENT: Final = Environment(undefined=StrictUndefined, autoescape=False)  # noqa: S701 - the text is SQL


def _attributes(path: Path, header: str, context: dg.ResolutionContext) -> Mapping[str, Any]:
    """Return the attributes of the asset in a header whose lines are those of the file."""
    refused = partial(ConfigurationError.refusing, "use", str(path))
    try:
        parsed = parse_yaml_with_source_position(header, str(path))
    except MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f" in line {error.problem_mark.line + 1}"
        raise refused(expected="YAML in the comment at the top", found=f"{error.problem}{line}") from error
    given = parsed.value
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise refused(expected="a mapping in the comment at the top", found=type(given).__name__)
    positions = parsed.source_position_tree
    metadata = {key: value for key, value in given.items() if key.startswith(PREFIX) or key in _METADATA_KEYS}
    others = {key: value for key, value in given.items() if key not in metadata and key != CHECKS}
    try:
        model = _MODEL(**others)
    except ValidationError as error:
        keys, reason = _closest(error)
        known = f"one of the keys {', '.join((*_MODEL.model_fields, CHECKS, *_METADATA_KEYS))} or `{PREFIX}...`"
        raise refused(
            expected=known if reason == _UNKNOWN_KEY else "keys that fit together",
            found=f"`{'.'.join(map(str, keys))}` in line {_line(positions, keys)}"
            f"{'' if reason == _UNKNOWN_KEY else f': {reason}'}",
        ) from None
    try:
        resolved = dict(resolve_fields(model, AssetSpecUpdateKwargs, context.with_source_position_tree(positions)))
    except ResolutionException as error:
        lines = str(error).strip().splitlines()
        raise refused(expected="values that Dagster accepts", found=f"{lines[0]}: {lines[-1]}") from error
    given_metadata = {key: context.resolve_value(value) for key, value in metadata.items()}
    if isinstance(contract := given_metadata.get(CONTRACT), str):  # relative to the file
        given_metadata[CONTRACT] = str(path.parent.absolute() / contract)
    checks = {CHECKS: context.resolve_value(given[CHECKS])} if CHECKS in given else {}
    return {**resolved, **checks, "metadata": {**resolved.get("metadata", {}), **given_metadata}}


_MODEL: Final = AssetSpecUpdateKwargs.model()


def _line(positions: SourcePositionTree, keys: Sequence[Any]) -> int:
    position, _ = positions.lookup_closest_and_path(list(keys), trace=None)
    return int(position.start.line)


def _closest(error: ValidationError) -> tuple[list[Any], str]:
    """Return the keys and the reason of an error. Of several models, the one whose `type` is given counts."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    others = {item["loc"][:-1] for item in found if item["type"] == "literal_error"}
    first = next((item for item in found if item["loc"][:-1] not in others), found[0])
    return [part for part in first["loc"] if not _IS_TYPE.search(str(part))], first["msg"]


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
                "metadata": {"sql": statement, **_code_reference(file), **attributes.get("metadata", {})},
            },
        )

        def query_asset(context: dg.AssetExecutionContext, **frames: Any) -> Any:
            from dagster_iceberg_spark.features.components.spark import run_query

            query = file.query(SqlPartition.of(context, file.path))
            by_key = {key: frames[name] for name, key in inputs.items()}
            by_table = {parts: by_key[key] for parts, key in tables.items() if key is not None}
            return run_query(getattr(context.resources, self.spark_key).spark_session, query, by_table)

        setattr(query_asset, _MODEL_ATTRIBUTE, SqlModel(file, tables))
        definition: dg.AssetsDefinition = asset(query_asset)
        return definition


def _code_reference(file: SqlFile) -> dict[str, Any]:
    """Return the metadata by which Dagster's UI shows the file of an asset."""
    reference = dg.LocalFileCodeReference(file_path=str(file.path.resolve()), line_number=1)
    return {"dagster/code_references": dg.CodeReferencesMetadataValue(code_references=[reference])}


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


@dataclass(frozen=True, slots=True)
class SqlPartition:
    """The partitions of a run. In a template, `{{ partition.start }}` is a literal of SQL.

    Args:
        path: The file of the query.
        definition: The partitions of the asset, or None if it has none.
        partition_keys: The keys of the run.
    """

    path: Path
    definition: dg.PartitionsDefinition | None
    partition_keys: Sequence[str]

    @classmethod
    def of(cls, context: dg.AssetExecutionContext, path: Path) -> "SqlPartition":
        """Return the partitions of a run."""
        is_partitioned = context.has_partition_key or context.has_partition_key_range
        definition = context.assets_def.partitions_def if is_partitioned else None
        return cls(path, definition, context.partition_keys if is_partitioned else ())

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
    def _keys(self) -> Sequence[str]:
        if self.definition is None:
            raise self._refusal("an asset with partitions, for `partition`", "none: set `partitions_def`")
        return self.partition_keys

    @property
    def _window(self) -> dg.TimeWindow:
        keys, definition = self._keys, self.definition
        if not isinstance(definition, dg.TimeWindowPartitionsDefinition):
            raise self._refusal("partitions by time, for `partition.start` and `partition.end`", "other partitions")
        windows = [definition.time_window_for_partition_key(key) for key in keys]
        return dg.TimeWindow(min(item.start for item in windows), max(item.end for item in windows))

    def _refusal(self, expected: str, found: str) -> PartitioningError:
        return PartitioningError.refusing("run", str(self.path), expected=expected, found=found)


@dataclass(frozen=True, slots=True)
class SqlModel:
    """The query of an asset.

    Args:
        file: Its file.
        tables: The asset of each table in the query, or None for a table that Spark reads by name.
    """

    file: SqlFile
    tables: Mapping[tuple[str, ...], dg.AssetKey | None]


_MODEL_ATTRIBUTE: Final = "dagster_iceberg_spark_model"


def model_of(assets: dg.AssetsDefinition) -> SqlModel | None:
    """Return the query of an asset in a SQL file, or None for another asset."""
    return next((getattr(function, _MODEL_ATTRIBUTE, None) for function in functions_in(assets.node_def)), None)


def _timestamp(instant: dt.datetime) -> str:
    return f"TIMESTAMP '{instant.astimezone(dt.timezone.utc).isoformat()}'"
