"""NULL lists and maps of structs stay NULL.

pyiceberg builds lists and maps of structs anew when it reads them, without their NULLs: a NULL list becomes an empty
one (apache/iceberg-python#3833, open). What it builds is given the NULLs again here, for all of the process: a
`DataScan` is run by the user.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import pyarrow as pa
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
    mask = given.is_null()
    if isinstance(built, pa.MapArray):
        return pa.MapArray.from_arrays(built.offsets, built.keys, built.items, built.type, mask=mask)
    return type(built).from_arrays(built.offsets, built.values, type=built.type, mask=mask)
