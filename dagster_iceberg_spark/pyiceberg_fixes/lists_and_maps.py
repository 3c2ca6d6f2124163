"""NULL lists and maps are read as empty ones, and structs in nested ones are matched by name.

Two defects of `ArrowProjectionVisitor.list` and `ArrowProjectionVisitor.map`, measured with pyiceberg 0.12.0:

- pyiceberg builds a list or a map of structs anew and leaves out its NULLs: a NULL list is read as an empty one. It
  should pass the NULLs on. https://github.com/apache/iceberg-python/issues/3833
- pyiceberg casts a list or a map of lists or maps, and a cast matches fields of structs by name. A field that was
  renamed, or whose name Iceberg escapes in files, is read as NULL. It should match fields by id, as in other columns.
  Not reported upstream as of 0.12.0.

Both are fixed at once: every list and map is built of its own parts, with its own NULLs.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import ArrowProjectionVisitor
from pyiceberg.types import ListType, MapType


def install() -> None:
    """Make pyiceberg build every list and map of its parts. A second call does nothing."""
    for name, rebuilt in (("list", _rebuilt_list), ("map", _rebuilt_map)):
        method = getattr(ArrowProjectionVisitor, name)
        if not hasattr(method, "__wrapped__"):
            setattr(ArrowProjectionVisitor, name, _replacing(method, rebuilt))


def _replacing(method: Callable[..., Any], rebuilt: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def project(self: Any, kind: Any, array: Any, *parts: Any) -> Any:
        if any(part is None for part in parts) or not isinstance(array, pa.ListArray | pa.LargeListArray | pa.MapArray):
            return method(self, kind, array, *parts)
        return rebuilt(self, kind, array, *parts)

    return project


def with_parts(array: pa.Array, parts: list[pa.Array], kind: pa.DataType) -> pa.Array:
    """Return a list or a map, with its length and its NULLs, but of other elements, or other keys and values."""
    offsets = pc.add(array.offsets, 0)  # Arrow takes no mask with a slice, which a large row group has
    mask = array.is_null() if array.null_count else None
    return type(array).from_arrays(offsets, *parts, type=kind, mask=mask)


def _rebuilt_list(visitor: Any, kind: ListType, array: pa.Array, elements: pa.Array) -> pa.Array:
    elements = visitor._cast_if_needed(kind.element_field, elements)  # noqa: SLF001 - stands in for a method
    of = pa.large_list if isinstance(array, pa.LargeListArray) else pa.list_
    return with_parts(array, [elements], of(visitor._construct_field(kind.element_field, elements.type)))  # noqa: SLF001


def _rebuilt_map(visitor: Any, kind: MapType, array: pa.MapArray, *parts: pa.Array) -> pa.Array:
    fields = (kind.key_field, kind.value_field)
    cast = [visitor._cast_if_needed(field, part) for field, part in zip(fields, parts, strict=True)]  # noqa: SLF001
    built = (visitor._construct_field(field, part.type) for field, part in zip(fields, cast, strict=True))  # noqa: SLF001
    return with_parts(array, cast, pa.map_(*built))
