"""Parquet files with columns whose inner parts have no field ids, as those of a variant have none.

pyiceberg takes such a file for one without any ids, which only a name mapping helps to read. Where there is none, its
schema is taken without those columns here, for all of the process: a `DataScan` is run by the user.
"""

from collections.abc import Iterator
from functools import wraps
from typing import Any, Final

import pyarrow as pa
from pyiceberg.io import pyarrow as pyiceberg_arrow

_FIELD_ID: Final = b"PARQUET:field_id"


def skip_columns_without_ids() -> None:
    """Let pyiceberg take schemas of files without such columns; a second time nothing is done."""
    genuine = pyiceberg_arrow.pyarrow_to_schema
    if hasattr(genuine, "__wrapped__"):
        return

    @wraps(genuine)
    def pyarrow_to_schema(schema: pa.Schema, *args: Any, **kwargs: Any) -> Any:
        is_mapped = bool(args and args[0] is not None) or kwargs.get("name_mapping") is not None
        return genuine(schema if is_mapped else identified(schema), *args, **kwargs)

    pyiceberg_arrow.pyarrow_to_schema = pyarrow_to_schema


def identified(schema: pa.Schema) -> pa.Schema:
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
