"""The table that an asset's definition asks for, outside a run."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import dagster as dg

from dagster_iceberg_spark.assets.address import partition_columns, plain_metadata, table_of
from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.plan.comparison import COLUMN_SCHEMA, DefinedTable
from dagster_iceberg_spark.plan.environment import Environment
from dagster_iceberg_spark.plan.options import TABLE, WriteOptions, parse_write_options
from dagster_iceberg_spark.plan.table_request import TableCreation, TableRequest
from dagster_iceberg_spark.table.identifier import TableIdentifier


def defined_table(
    spec: dg.AssetSpec,
    *,
    namespace: str | None,
    configuration: Mapping[str, Any],
    environment: Environment | None = None,
) -> DefinedTable:
    """Return the table that an asset's definition asks for, in an IO manager with this namespace and configuration."""
    definition, subject = plain_metadata(spec.metadata), "/".join(spec.key.path)
    options = parse_write_options(definition, None, configuration, subject=subject)
    if environment is not None:
        options = environment.options(options, subject=subject)
    identifier = table_of(spec.key, definition, namespace, subject=subject)
    declared = _declared_schema(spec.metadata)
    return DefinedTable(
        request=replace(table_request(identifier, spec.key, spec.metadata, options), environment=environment),
        partition_columns=partition_columns(spec.partitions_def, definition, subject=subject),
        declared_types=None if declared is None else {column.name: column.type for column in declared.columns},
    )


def table_request(
    identifier: TableIdentifier,
    asset_key: dg.AssetKey | None,
    metadata: Mapping[str, Any] | None,
    options: WriteOptions,
    creation: TableCreation | None = None,
) -> TableRequest:
    """Return the table request of a definition. The output of an op has no asset key and owns no table."""
    declared = _declared_schema(metadata)
    columns = declared.columns if declared else ()
    return TableRequest(
        identifier=identifier,
        asset_key="/".join(asset_key.path) if asset_key else None,
        is_named_explicitly=(metadata or {}).get(TABLE) is not None,
        options=options,
        column_docs={column.name: column.description for column in columns if column.description},
        creation=creation or TableCreation(),
    )


def _declared_schema(metadata: Mapping[str, Any] | None) -> dg.TableSchema | None:
    """Return the `dagster/column_schema` of a definition, if it has one."""
    value = (metadata or {}).get(COLUMN_SCHEMA)
    schema = value.value if isinstance(value, dg.MetadataValue) else value
    if schema is not None and not isinstance(schema, dg.TableSchema):
        raise ConfigurationError.refusing(
            "use", f"`{COLUMN_SCHEMA}`", expected="a dagster.TableSchema", found=type(schema).__name__
        )
    return schema
