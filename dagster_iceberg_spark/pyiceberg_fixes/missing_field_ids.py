"""A Parquet file with a field id missing inside of one column is taken for a file without any field ids.

The parts of a `variant` have no field ids (Iceberg spec, "Parquet"). pyiceberg 0.12.0 refuses to read any column of a
file with such a column, unless the table has a name mapping. It should read the other columns by their ids.
Not reported upstream as of 0.12.0; https://github.com/apache/iceberg-python/issues/1819 asks for `variant` itself.

The fix hides those columns from pyiceberg where the table has no name mapping.
"""

from collections.abc import Iterator
from functools import wraps
from typing import Any, Final

import pyarrow as pa
from pyiceberg.io import pyarrow as pyiceberg_arrow

_FIELD_ID: Final = b"PARQUET:field_id"


def install() -> None:
    """Make pyiceberg read a file's schema without such columns. A second call does nothing."""
    genuine = pyiceberg_arrow.pyarrow_to_schema
    if hasattr(genuine, "__wrapped__"):
        return

    @wraps(genuine)
    def pyarrow_to_schema(schema: pa.Schema, *args: Any, **kwargs: Any) -> Any:
        is_mapped = bool(args and args[0] is not None) or kwargs.get("name_mapping") is not None
        return genuine(schema if is_mapped else with_ids(schema), *args, **kwargs)

    pyiceberg_arrow.pyarrow_to_schema = pyarrow_to_schema


def with_ids(schema: pa.Schema) -> pa.Schema:
    """Return the schema without columns that have an id and inner parts without one."""
    kept = [field for field in schema if not _has_id(field) or all(map(_has_id, _inner(field)))]
    return schema if len(kept) == len(schema) else pa.schema(kept, metadata=schema.metadata)


def _has_id(field: pa.Field) -> bool:
    return field.metadata is not None and _FIELD_ID in field.metadata


def _inner(field: pa.Field) -> Iterator[pa.Field]:
    kind = field.type
    if pa.types.is_map(kind):
        parts = [kind.key_field, kind.item_field]
    else:
        parts = [kind.field(index) for index in range(kind.num_fields)]
    for part in parts:
        yield part
        yield from _inner(part)
