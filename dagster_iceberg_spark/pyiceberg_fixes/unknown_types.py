"""A table with a column of a type that pyiceberg does not have cannot be loaded at all.

pyiceberg 0.12.0 has no `variant` type, and refuses the metadata of a table with such a column. It should load the
table, and refuse the column where it is read. https://github.com/apache/iceberg-python/issues/1819 asks for the type.
It has `geometry` and `geography`, but reads their reference systems in quotes only, where the Iceberg spec ("Primitive
Types", `geometry(C)`) and Iceberg's Java library write none: `geometry(OGC:CRS84)`.

Where pyiceberg refuses a table, the fix gives it the metadata once more, without those columns. Outside of
`complete_documents` nothing changes.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import ValidationError as MetadataValidationError
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.typedef import Identifier
from pyiceberg.types import IcebergType

from dagster_iceberg_spark.table.schema import DecimalType, Field, PrimitiveType, types_within
from dagster_iceberg_spark.table.schema import IcebergType as ColumnType

_documents: ContextVar[list[dict[str, Any]] | None] = ContextVar("documents", default=None)
_REFUSALS: Final = ("Unsupported field type: '", "Could not parse ge")
"""What pyiceberg says of such a type, or of a geometry or geography whose reference system it does not understand."""
_ANY_TYPE: Final[TypeAdapter[Any]] = TypeAdapter(IcebergType)


@dataclass(frozen=True, slots=True)
class LoadedTable:
    """pyiceberg's table without the columns of types that it does not have, and the metadata with these, if any."""

    table: Table
    document: dict[str, Any] | None = None


def load_table(catalog: Catalog, identifier: Identifier) -> LoadedTable:
    """Load a table; where pyiceberg refuses a column's type, without such columns."""
    try:
        return LoadedTable(catalog.load_table(identifier))
    except (ValidationError, MetadataValidationError) as error:
        if not any(refusal in str(error) for refusal in _REFUSALS):
            raise
    return load_complete(catalog, identifier)


def load_complete(catalog: Catalog, identifier: Identifier) -> LoadedTable:
    """Load a table without columns of types that pyiceberg does not have, and its metadata document with them."""
    with complete_documents() as documents:
        table = catalog.load_table(identifier)
    return LoadedTable(table, documents[-1])


@contextmanager
def complete_documents() -> Iterator[list[dict[str, Any]]]:
    """Yield the metadata documents of the tables that this thread loads meanwhile, whose columns may be of any type.

    pyiceberg loads the tables without the columns of types that it does not have.
    """
    _watch_metadata()
    documents: list[dict[str, Any]] = []
    token = _documents.set(documents)
    try:
        yield documents
    finally:
        _documents.reset(token)


def unknown_columns(fields: Sequence[Field]) -> tuple[str, ...]:
    """Return the names of the columns whose type, or a type inside of it, pyiceberg does not have."""
    return tuple(field.name for field in fields if not all(_has(name) for name in _primitives_of(field.type)))


def _primitives_of(column_type: ColumnType) -> Iterator[str]:
    return (str(item) for item in types_within(column_type) if isinstance(item, PrimitiveType | DecimalType))


@cache
def _has(name: str) -> bool:
    try:
        _ANY_TYPE.validate_python(name)
    except (ValidationError, MetadataValidationError, ValueError):
        return False
    return True


def _has_all(described: Any) -> bool:
    """Return the same of a type as a document has it."""
    if isinstance(described, str):
        return _has(described)
    inner = [described.get(key) for key in ("element", "key", "value")]
    inner += [field["type"] for field in described.get("fields", ())]
    return all(_has_all(item) for item in inner if item is not None)


def without_unknown_columns(document: dict[str, Any]) -> dict[str, Any]:
    """Return a table's metadata without the columns of such types (Iceberg spec, "Table Metadata Fields")."""

    def known(schema: dict[str, Any]) -> dict[str, Any]:
        return {**schema, "fields": [field for field in schema["fields"] if _has_all(field["type"])]}

    if "schemas" not in document:  # format version 1
        return document
    return {**document, "schemas": [known(schema) for schema in document["schemas"]]}


def _watch_metadata() -> None:
    """Make pyiceberg's parsers of table metadata pass by here. A second call does nothing."""
    if getattr(TableMetadataUtil.parse_raw, "__wrapped__", None) is not None:
        return
    from pyiceberg.catalog import rest  # which other catalogs do without

    of_file, of_answer = TableMetadataUtil.parse_raw, rest.TableResponse.model_validate_json

    def parse_raw(data: str) -> Any:
        documents = _documents.get()
        if documents is None:
            return of_file(data)
        documents.append(json.loads(data))
        return of_file(json.dumps(without_unknown_columns(documents[-1])))

    def model_validate_json(text: str, **how: Any) -> Any:
        documents = _documents.get()
        if documents is None:
            return of_answer(text, **how)
        answer = json.loads(text)
        documents.append(answer["metadata"])
        return of_answer(json.dumps({**answer, "metadata": without_unknown_columns(answer["metadata"])}), **how)

    parse_raw.__wrapped__ = of_file  # type: ignore[attr-defined]
    rest.TableResponse.model_validate_json = staticmethod(model_validate_json)  # type: ignore[assignment, method-assign]
    TableMetadataUtil.parse_raw = staticmethod(parse_raw)  # type: ignore[method-assign]
