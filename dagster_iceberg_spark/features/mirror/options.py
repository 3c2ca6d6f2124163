"""How a DuckLake mirrors the table of an asset."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import PlainValidator

from dagster_iceberg_spark.plan.options.metadata_key import Options, key, parse_options, read_metadata, table_identifier
from dagster_iceberg_spark.table.identifier import TableIdentifier

MIRROR: Final = "iceberg/mirror"
MIRROR_STATE: Final = "iceberg/mirror_state"
"""Key of a materialization's metadata: what the mirror of its table shows."""

MirrorMode: TypeAlias = Literal["view", "register", "copy"]
"""`view`: a view over Iceberg's metadata file. `register`: Iceberg's data files. `copy`: files of the DuckLake."""
Codec: TypeAlias = Literal["snappy", "zstd", "gzip", "none"]
"""The compression of copied files."""


class MirrorSettings(Options):
    """The settings of an asset that differ from those of the IO manager.

    Args:
        table: The schema and the name in the DuckLake.
        mode: What the mirror consists of.
        compression: The compression of copied files.
    """

    table: Annotated[TableIdentifier | None, PlainValidator(table_identifier)] = None
    mode: MirrorMode | None = None
    compression: Codec | None = None


@dataclass(frozen=True, slots=True)
class Mirror:
    """How one table is mirrored.

    Args:
        table: The schema and the name in the DuckLake. A schema has a single level, which may contain dots.
        mode: What the mirror consists of.
        compression: The compression of copied files.
    """

    table: TableIdentifier
    mode: MirrorMode
    compression: Codec

    @classmethod
    def of(
        cls, identifier: TableIdentifier, settings: MirrorSettings, *, mode: MirrorMode, compression: Codec
    ) -> "Mirror":
        """Return how a table is mirrored, by the settings of its asset and the defaults of the IO manager."""
        named = settings.table or identifier
        table = TableIdentifier((".".join(named.namespace),), named.name)
        return cls(table, settings.mode or mode, settings.compression or compression)


def parse_mirror(value: Any) -> MirrorSettings | Literal[False]:
    """Parse the settings of an asset. `false` excludes its table."""
    if value is False:
        return False
    return parse_options(MirrorSettings, value, expected="a dict of settings, or false")


class MirrorOptions(Options):
    """How the table of an asset is mirrored."""

    mirror: MirrorSettings | Literal[False] | None = key(
        'dict with `table`, `mode` and `compression` in the DuckLake, such as `{"table": "analytics.flights"}`; '
        "`false`: the table is not mirrored",
        parse_mirror,
        default_text="the IO manager's `mirror`, under the name of the table",
        is_addressing=True,
    )


def mirror_settings(metadata: Mapping[str, Any], *, subject: str) -> MirrorSettings | Literal[False] | None:
    """Return the settings of an asset's mirror, or None without any. Unlike elsewhere, None is `false`."""
    if MIRROR in metadata and metadata[MIRROR] is None:
        return False
    return read_metadata(MirrorOptions, metadata, subject=subject).mirror
