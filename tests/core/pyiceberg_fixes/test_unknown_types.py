"""Tables with a column of a type that pyiceberg does not support."""

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError
from pyiceberg.catalog.rest import TableResponse
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import ValidationError as MetadataValidationError

from dagster_iceberg_spark.pyiceberg_fixes.unknown_types import load_table, unknown_columns
from dagster_iceberg_spark.table.schema import INT, Field, ListType, PrimitiveType

REFUSALS = (ValidationError, MetadataValidationError)


@pytest.fixture(params=["variant", "geometry(OGC:CRS84)"])
def kind(request: pytest.FixtureRequest) -> str:
    """A type that pyiceberg does not read."""
    return str(request.param)


@pytest.fixture
def stored(catalog: SqlCatalog, kind: str) -> dict[str, Any]:
    """The metadata of the table `db.t`, with an int column, and one of such a type."""
    table = catalog.create_table("db.t", schema=pa.schema([("id", pa.int32())]))
    file = Path(table.metadata_location.removeprefix("file://"))
    document: dict[str, Any] = json.loads(file.read_text())
    document["schemas"][0]["fields"].append({"id": 2, "name": "v", "required": False, "type": kind})
    file.write_text(json.dumps(document))
    return document


def test_the_other_columns_and_the_whole_metadata_are_loaded(catalog: SqlCatalog, stored: dict[str, Any]) -> None:
    loaded = load_table(catalog, ("db", "t"))
    assert loaded.table.schema().column_names == ["id"]
    assert loaded.document == stored


def test_a_table_with_known_types_is_loaded_unchanged(catalog: SqlCatalog) -> None:
    catalog.create_table("db.known", schema=pa.schema([("id", pa.int32())]))
    assert load_table(catalog, ("db", "known")).document is None


def test_pyiceberg_still_refuses_the_table(catalog: SqlCatalog, stored: dict[str, Any], kind: str) -> None:
    """Also after the table was loaded without the column."""
    load_table(catalog, ("db", "t"))
    with pytest.raises(REFUSALS, match=re.escape(kind)):
        catalog.load_table("db.t")
    answer = json.dumps({"metadata-location": "m", "metadata": stored, "config": {}})
    with pytest.raises(REFUSALS, match=re.escape(kind)):
        TableResponse.model_validate_json(answer)


def test_a_column_with_a_nested_unknown_type_is_unknown() -> None:
    variant = PrimitiveType("variant")
    fields = [Field("i", INT), Field("v", variant), Field("l", ListType(variant))]
    assert unknown_columns(fields) == ("v", "l")
