"""The size that the files of a write should have."""

import re
from typing import Any, Final

from dagster_iceberg_spark.plan.options.metadata_key import Options, key
from dagster_iceberg_spark.table.identifier import NotationError

_SIZE: Final = re.compile(r"(?P<number>\d{1,9}) *(?P<unit>kB|MB|GB)", re.IGNORECASE)
_BYTES: Final = {"kb": 10**3, "mb": 10**6, "gb": 10**9}


def size(value: Any) -> int:
    """Parse a size, such as `16 MB`, to bytes."""
    parts = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if parts is None:
        raise NotationError("a size, such as `512 kB` or `16 MB`", repr(value))
    return int(parts["number"]) * _BYTES[parts["unit"].lower()]


class FileSizeOptions(Options):
    """The size in bytes below which the files of a write are small, or None if the asset names none."""

    min_file_size: int | None = key(
        "size, such as `16 MB`: a write that adds at least 10 files, smaller than this on average, logs a warning",
        size,
        expected="a size, such as `16 MB`",
        default_text="no warning",
    )
