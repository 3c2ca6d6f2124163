"""Tables with columns of types that pyiceberg does not have, such as `variant`.

pyiceberg refuses to load such a table at all. Its other columns can be read all the same: where it has refused, it is
given the table's metadata once more, without those columns. Outside of `without_unknown_columns` nothing changes: what
pyiceberg itself does with the table, a commit for instance, goes on to be refused.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.types import IcebergType

from dagster_iceberg_spark.table.schema import DecimalType, Field, PrimitiveType, types_within
from dagster_iceberg_spark.table.schema import IcebergType as ColumnType

_documents: ContextVar[list[dict[str, Any]] | None] = ContextVar("documents", default=None)
_ANY_TYPE: Final[TypeAdapter[Any]] = TypeAdapter(IcebergType)


@contextmanager
def without_unknown_columns() -> Iterator[list[dict[str, Any]]]:
    """Have pyiceberg load tables without the columns that it does not know; yields their documents, whole.

    It holds for what is loaded in this thread.
    """
    _teach()
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
    except (ValidationError, ValueError):
        return False
    return True


def _has_all(described: Any) -> bool:
    """Say the same of a type as a document has it."""
    if isinstance(described, str):
        return _has(described)
    inner = [described.get(key) for key in ("element", "key", "value")]
    inner += [field["type"] for field in described.get("fields", ())]
    return all(_has_all(item) for item in inner if item is not None)


def _without(document: dict[str, Any]) -> dict[str, Any]:
    """Return a table's metadata without those columns (Iceberg spec, "Table Metadata Fields")."""

    def known(schema: dict[str, Any]) -> dict[str, Any]:
        return {**schema, "fields": [field for field in schema["fields"] if _has_all(field["type"])]}

    return {**document, "schemas": [known(schema) for schema in document["schemas"]]}


def _teach() -> None:
    """Let what pyiceberg reads table metadata with pass by here; a second time nothing is done."""
    if getattr(TableMetadataUtil.parse_raw, "__wrapped__", None) is not None:
        return
    from pyiceberg.catalog import rest  # which other catalogs do without

    of_file, of_answer = TableMetadataUtil.parse_raw, rest.TableResponse.model_validate_json

    def parse_raw(data: str) -> Any:
        documents = _documents.get()
        if documents is None:
            return of_file(data)
        documents.append(json.loads(data))
        return of_file(json.dumps(_without(documents[-1])))

    def model_validate_json(text: str, **how: Any) -> Any:
        documents = _documents.get()
        if documents is None:
            return of_answer(text, **how)
        answer = json.loads(text)
        documents.append(answer["metadata"])
        return of_answer(json.dumps({**answer, "metadata": _without(answer["metadata"])}), **how)

    parse_raw.__wrapped__ = of_file  # type: ignore[attr-defined]
    rest.TableResponse.model_validate_json = staticmethod(model_validate_json)  # type: ignore[assignment, method-assign]
    TableMetadataUtil.parse_raw = staticmethod(parse_raw)  # type: ignore[method-assign]
