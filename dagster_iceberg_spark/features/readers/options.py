"""The metadata key of the feature."""

from typing import Any, Final

from dagster_iceberg_spark.features.readers.plan import READERS
from dagster_iceberg_spark.plan.options.metadata_key import PREFIX, Options, key, list_of_text

READERS_KEY: Final = f"{PREFIX}readers"


def _readers(value: Any) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(list_of_text(value)))
    if unknown := [name for name in names if name not in READERS]:
        raise ValueError(repr(unknown[0]))
    return names


class ReaderOptions(Options):
    """The engines that read the table of an asset."""

    readers: tuple[str, ...] = key(
        f"list of engines that read the table: {', '.join(f'`{name}`' for name in READERS)}; what one of them cannot "
        "read is avoided where there is a choice, and refused otherwise",
        _readers,
        expected=f"some of {', '.join(READERS)}",
        default=(),
        default_text="none",
    )
