"""NULL lists and maps of structs stay NULL.

pyiceberg builds lists and maps of structs anew when it reads them, without their NULLs: a NULL list becomes an empty
one (apache/iceberg-python#3833, open). What it builds is given the NULLs again here, for all of the process: a
`DataScan` is run by the user.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import ArrowProjectionVisitor


def keep_nulls() -> None:
    """Let pyiceberg's projection keep the NULLs; a second time nothing is done."""
    for name in ("list", "map"):
        method = getattr(ArrowProjectionVisitor, name)
        if not hasattr(method, "__wrapped__"):
            setattr(ArrowProjectionVisitor, name, _keeping_nulls(method))


def _keeping_nulls(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def project(self: Any, kind: Any, array: Any, *parts: Any) -> Any:
        return with_nulls_of(array, method(self, kind, array, *parts))

    return project


def with_nulls_of(given: pa.Array | None, built: pa.Array | None) -> pa.Array | None:
    """Return what was built of a list or a map, NULL where that was."""
    if given is None or built is None or built.null_count == given.null_count:
        return built
    # Of a large row group the offsets are a slice, with which Arrow takes no mask: the sum is an array of its own.
    mask, offsets = given.is_null(), pc.add(built.offsets, 0)
    if isinstance(built, pa.MapArray):
        return pa.MapArray.from_arrays(offsets, built.keys, built.items, built.type, mask=mask)
    return type(built).from_arrays(offsets, built.values, type=built.type, mask=mask)
