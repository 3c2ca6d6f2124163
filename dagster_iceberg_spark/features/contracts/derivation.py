"""Derives metadata keys of the core from a contract."""

from collections.abc import Mapping
from typing import Any, Final

import dagster as dg

from dagster_iceberg_spark.features.contracts.contract_files import read_contract
from dagster_iceberg_spark.features.contracts.options import CONTRACT
from dagster_iceberg_spark.features.contracts.plan import Contract
from dagster_iceberg_spark.plan.options.output_options import AUDITS, COLUMNS, IDENTIFIER_FIELDS, REQUIRED_COLUMNS
from dagster_iceberg_spark.plan.write.comparison import COLUMN_SCHEMA
from dagster_iceberg_spark.table.schema import parse_type

_WRITE_OPTIONS: Final = "iceberg/write_options"
_SUMMARY: Final = "snapshot-property.contract"
"""Prefix of the write options that add to the summary of a snapshot."""


def with_contract(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return metadata with what its contract demands. Keys that the metadata has itself are kept, or added to.

    Raises:
        ConfigurationError: The contract cannot be used.
    """
    contract = read_contract(str(metadata[CONTRACT]))
    keys = [column.name for column in contract.columns if column.is_key]
    required = {column.name: True for column in contract.columns if column.is_required}
    derived = {
        COLUMNS: {column.name: column.type for column in contract.columns},
        COLUMN_SCHEMA: column_schema(contract),
        **({IDENTIFIER_FIELDS: keys} if keys else {}),
    }
    together = {
        AUDITS: contract.audits,
        REQUIRED_COLUMNS: required,
        _WRITE_OPTIONS: {f"{_SUMMARY}.name": contract.names[0], f"{_SUMMARY}.version": contract.version},
    }
    merged = {key: {**value, **_as_mapping(metadata.get(key))} for key, value in together.items() if value}
    return {**derived, **metadata, **merged}


def _as_mapping(value: Any) -> Mapping[str, Any]:
    """Return what an asset itself sets for a key of the core that takes a dict, or a list of columns."""
    return value if isinstance(value, Mapping) else dict.fromkeys(value or (), True)


def column_schema(contract: Contract) -> dg.TableSchema:
    """Return the columns of a contract, with their descriptions."""
    return dg.TableSchema(
        [
            dg.TableColumn(
                name=column.name,
                type=str(parse_type(column.type)),
                description=column.description,
                constraints=dg.TableColumnConstraints(nullable=not column.is_required),
            )
            for column in contract.columns
        ]
    )
