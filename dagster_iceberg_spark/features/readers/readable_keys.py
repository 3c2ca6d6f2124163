"""Derives metadata keys of the core from the engines that read a table."""

from collections.abc import Mapping
from typing import Any, Final

from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.features.readers.options import READERS_KEY, ReaderOptions
from dagster_iceberg_spark.features.readers.plan import FORMAT_3, READERS, TYPES, without
from dagster_iceberg_spark.plan.options.metadata_key import PREFIX, read_metadata
from dagster_iceberg_spark.plan.options.output_options import FORMAT_VERSION

_PROPERTIES: Final = f"{PREFIX}table_properties"
_UNREAD_TYPES: Final = f"{PREFIX}unread_types"
_MODES: Final = tuple(f"write.{verb}.mode" for verb in ("delete", "update", "merge"))
_COPIES: Final = "copy-on-write"
_FORMAT_2: Final = 2


def with_readers(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return metadata that keeps to what the readers of the table can read.

    Raises:
        MetadataKeyError: A reader is not known.
        ConfigurationError: The metadata asks for what a reader cannot read.
    """
    options = read_metadata(ReaderOptions, metadata, subject="the asset")
    readers, properties = options.readers, _as_mapping(metadata.get(_PROPERTIES))
    given = metadata.get(FORMAT_VERSION, properties.get("format-version"))
    lacking = without(FORMAT_3, readers)
    if str(given) == "3" and lacking:
        raise _refused("format version 3", FORMAT_3, lacking)
    version = _FORMAT_2 if lacking and given is None else given
    deletes = "deletion vectors" if str(version) == "3" else "position deletes"
    lacking_deletes = without(deletes, readers)
    if lacking_deletes and (mode := next((name for name in _MODES if properties.get(name, _COPIES) != _COPIES), None)):
        raise _refused(f"the table property {mode}", deletes, lacking_deletes)
    copies = dict.fromkeys(_MODES, _COPIES) if lacking_deletes else {}
    return {
        _UNREAD_TYPES: [kind for kind, feature in TYPES.items() if without(feature, readers)],
        **metadata,
        **({} if version is None else {FORMAT_VERSION: version}),
        **({_PROPERTIES: {**copies, **properties}} if copies else {}),
    }


def _as_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _refused(what: str, feature: str, lacking: list[str]) -> ConfigurationError:
    known = ", ".join(f"{name} ({READERS[name].since})" for name in lacking)
    return ConfigurationError.refusing(
        "write",
        "the table of the asset",
        expected=f"a table that the engines in `{READERS_KEY}` read",
        found=f"{what}, and {known} cannot read {feature}",
        hint=f"leave it out, or remove {' and '.join(lacking)} from `{READERS_KEY}`.",
    )
