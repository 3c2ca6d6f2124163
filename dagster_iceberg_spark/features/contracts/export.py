"""Writes the contract of a table as it is."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import dagster as dg
import yaml

from dagster_iceberg_spark.assets.stored_tables import stored_tables
from dagster_iceberg_spark.errors import UpstreamMissingError
from dagster_iceberg_spark.table.schema import Field, IcebergType, ListType, MapType, StructType
from dagster_iceberg_spark.table.snapshot import TableState

_API_VERSION: Final = "v3.1.0"
_LOGICAL_TYPES: Final = {
    "boolean": "boolean",
    "int": "integer",
    "long": "integer",
    "float": "number",
    "double": "number",
    "date": "date",
    "timestamp": "timestamp",
    "timestamptz": "timestamp",
    "string": "string",
    "uuid": "string",
}


def export_contract(definitions: dg.Definitions, asset: str) -> list[str]:
    """Return the contract of an asset's table, in a list.

    Raises:
        UpstreamMissingError: The code location has no such asset, or the asset has no table yet.
    """
    with stored_tables(definitions, action="export a contract from") as tables:
        by_asset = {table.spec.key.to_user_string(): table.state for table in tables}
    if asset not in by_asset:
        raise UpstreamMissingError.refusing(
            "export the contract of",
            asset,
            expected=f"one of the assets with a table: {', '.join(sorted(by_asset)) or 'none'}",
            found="another name",
        )
    return [contract_of(by_asset[asset], name=asset.rpartition("/")[2])]


def contract_of(state: TableState, *, name: str) -> str:
    """Return a contract that the table keeps, in YAML: its columns, their types, and its identifier fields."""
    keys = {name: number for number, name in enumerate(state.identifier_fields, start=1)}
    table = {
        "name": name,
        "physicalName": ".".join(state.identifier.parts),
        **_described(state.properties.get("comment")),
        "properties": [_property(field, keys) for field in state.schema],
    }
    document = {
        "apiVersion": _API_VERSION,
        "kind": "DataContract",
        "id": name,
        "name": name,
        "version": "1.0.0",
        "status": "draft",
        "schema": [table],
    }
    return str(yaml.safe_dump(document, sort_keys=False, allow_unicode=True))


def _property(field: Field, keys: Mapping[str, int]) -> dict[str, Any]:
    position = keys.get(field.name)
    return {
        "name": field.name,
        **dict(_type(field.type)),
        **({"required": True} if field.is_required else {}),
        **({"primaryKey": True, "primaryKeyPosition": position} if position else {}),
        **_described(field.doc),
    }


def _type(kind: IcebergType) -> Iterator[tuple[str, Any]]:
    match kind:
        case StructType():
            yield from (("logicalType", "object"), ("properties", [_property(field, {}) for field in kind.fields]))
        case ListType():
            yield from (("logicalType", "array"), ("items", dict(_type(kind.element))))
        case MapType():
            parts = {"key": dict(_type(kind.key)), "value": dict(_type(kind.value))}
            yield from (("logicalType", "map"), ("map", parts))
        case _:
            name = str(kind)
            yield "logicalType", _LOGICAL_TYPES.get(name, "number" if name.startswith("decimal") else "string")
            yield "physicalType", name


def _described(text: str | None) -> dict[str, str]:
    return {"description": text} if text else {}
