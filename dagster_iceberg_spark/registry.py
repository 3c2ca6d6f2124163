"""The features of the package. The core reaches them by name, here, and does not import them otherwise.

A feature is a folder of `features/`. Without the folder, it does not exist: the core works without it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

_FOLDER: Final = f"{__package__}.features"


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature, by the names of what the core asks it for.

    Args:
        name: Its folder.
        commands: Its commands of the command line, in `commands.py`.
        options: The class of its metadata keys, in `options.py`.
        result_keys: The metadata keys that it reports with a materialization.
        derives: The function that derives metadata keys of the core from those of the feature, with its module.
        derives_from: The metadata key without which there is nothing to derive.
        findings: The function that adds to what the command `check` finds in a code location, with its module.
    """

    name: str
    commands: tuple[str, ...] = ()
    options: str | None = None
    result_keys: tuple[str, ...] = ()
    derives: str | None = None
    derives_from: str | None = None
    findings: str | None = None

    def load(self, name: str) -> Any:
        """Return an object of the feature by its module and name, such as `options.MirrorOptions`."""
        module, _, attribute = name.rpartition(".")
        return getattr(import_module(f"{_FOLDER}.{self.name}.{module}"), attribute)


_FEATURES: Final = (
    Feature("agents", commands=("mcp", "tables")),
    Feature("checks"),
    Feature("code_changes", commands=("impact", "replay")),
    Feature("components"),
    Feature(
        "contracts",
        commands=("contract",),
        options="ContractOptions",
        result_keys=("iceberg/contract_version",),
        derives="derivation.with_contract",
        derives_from="iceberg/contract",
        findings="requirements.check_requirements",
    ),
    Feature("file_sizes", options="FileSizeOptions", result_keys=("iceberg/average_file_bytes",)),
    Feature("lineage", commands=("history", "why"), result_keys=("iceberg/row_columns", "iceberg/copied_columns")),
    Feature("maintenance", commands=("health", "maintain"), options="MaintenanceOptions"),
    Feature("metrics"),
    Feature("mirror", commands=("mirror",), options="MirrorOptions", result_keys=("iceberg/mirror_state",)),
    Feature("pipes"),
    Feature(
        "readers",
        options="ReaderOptions",
        derives="readable_keys.with_readers",
        derives_from="iceberg/readers",
        findings="unread_tables.check_readers",
    ),
    Feature("releases", commands=("branches", "diff", "env", "undo"), findings="release_asset.check_releases"),
    Feature("remote_sessions"),
    Feature("serving", commands=("serve",)),
    Feature("testing", commands=("test",)),
    Feature("watching"),
)


@cache
def features() -> tuple[Feature, ...]:
    """Return the features whose folders exist."""
    return tuple(feature for feature in _FEATURES if find_spec(f"{_FOLDER}.{feature.name}") is not None)


def derived_metadata(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the metadata of a definition with the keys that features derive from theirs."""
    for feature in features():
        if feature.derives is not None and metadata.get(str(feature.derives_from)) is not None:
            metadata = feature.load(feature.derives)(metadata)
    return metadata


def feature_options() -> Iterator[type]:
    """Yield the classes of the features' metadata keys."""
    for feature in features():
        if feature.options is not None:
            yield feature.load(f"options.{feature.options}")
