"""The policy of maintenance: what is kept, and the thresholds of each action."""

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.plan.options.metadata_key import boolean, duration, duration_text, key, names, settings
from dagster_iceberg_spark.table.identifier import NotationError

RETAIN: Final = "iceberg/retain"
_DAY: Final = dt.timedelta(days=1)
MINIMUM_ORPHAN_AGE: Final = 3 * _DAY
"""Iceberg's default. A write that is running may have created the files of as many days."""

_LONG_ENOUGH: Final = f"at least {duration_text(MINIMUM_ORPHAN_AGE)}, because a running write needs its files"


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenancePolicy:
    """What maintenance keeps, and the thresholds of its actions.

    Durations may be texts such as `12 hours` or `7 days`, as they are in metadata.

    Args:
        compact: Whether to compact data files.
        min_input_files: Compact a partition that has at least this many small files.
        target_file_bytes: The size of compacted files, in bytes. Files below 75 % of it are small. Default: the table
            property `write.target-file-size-bytes`, or else 512 MiB.
        delete_ratio: Compact a partition if delete files name at least this share of its rows.
        settle: How long to wait after the time window of a partition has ended before the partition is compacted.
        zorder_by: Columns by whose z-order compaction clusters rows. Default: the table's sort order.
        min_manifests: Rewrite the manifests of a table that has at least this many, if they are small on average.
        statistics: Whether to compute statistics of columns and partitions, by which engines plan joins, once rows have
            changed. This reads all rows.
        min_snapshots: Expire snapshots of a table that has at least this many.
        older_than: Expire snapshots that are older, unless they are needed.
        retain_last: Keep this many snapshots of each branch, whatever their age.
        replayable_for: Keep the snapshots that a materialization has read for this long. The newest materializations of
            up to 100 partitions of an asset always keep them.
        resumable_for: Keep the snapshots that a failed run reads if it is re-executed, for this long.
        remove_orphans: Whether to remove files that belong to no snapshot.
        orphans_older_than: Remove such files if they are older: at least 3 days.
        keep_lineage: Whether to keep the summaries of expired snapshots in a table.

    Raises:
        ConfigurationError: A value is out of range.

    Example:
        >>> import datetime as dt
        >>> MaintenancePolicy(older_than=dt.timedelta(days=30)).retain_last
        10
    """

    compact: bool = True
    min_input_files: int = 5
    target_file_bytes: int | None = None
    delete_ratio: float = 0.3
    settle: dt.timedelta = _DAY
    zorder_by: tuple[str, ...] = ()
    min_manifests: int = 20
    statistics: bool = False
    min_snapshots: int = 20
    older_than: dt.timedelta = 7 * _DAY
    retain_last: int = 10
    replayable_for: dt.timedelta = 7 * _DAY
    resumable_for: dt.timedelta = 3 * _DAY
    remove_orphans: bool = True
    orphans_older_than: dt.timedelta = MINIMUM_ORPHAN_AGE
    keep_lineage: bool = True

    def __post_init__(self) -> None:
        """Parse the values as those in metadata."""
        for name, parse in _PARSERS.items():
            value = getattr(self, name)
            if value is None and _FIELDS[name].default is None:
                continue
            try:
                object.__setattr__(self, name, parse(value))
            except NotationError as error:
                subject = f"`{name}` of the maintenance policy"
                raise ConfigurationError.refusing("use", subject, expected=error.expected, found=error.found) from error

    def overridden_by(self, settings: Mapping[str, Any]) -> "MaintenancePolicy":
        """Return the policy with the settings of an asset, as `parse_maintenance` returns them."""
        return replace(self, **settings)


_FIELDS: Final = {item.name: item for item in fields(MaintenancePolicy)}
MAINTENANCE_SETTINGS: Final = tuple(_FIELDS)


def parse_maintenance(value: Any) -> Mapping[str, Any] | None:
    """Parse the settings of an asset that differ from the policy. `false` excludes its table, and returns None."""
    if value is False:
        return None
    if not isinstance(value, Mapping):
        raise NotationError("a dict of settings, or false", repr(value))
    return settings(value, _PARSERS)


def _parser_of(name: str, default: Any) -> Callable[[Any], Any]:
    """Return the parser of a setting. The one without a default is a number of bytes."""
    if name == "orphans_older_than":
        return _age_of_orphans
    if isinstance(default, bool):
        return boolean
    if isinstance(default, dt.timedelta):
        return duration
    if isinstance(default, tuple):
        return _columns
    return _share if isinstance(default, float) else _whole_number


def _columns(value: Any) -> tuple[str, ...]:
    try:
        return names(value)
    except TypeError as error:
        raise NotationError("a list of columns", repr(value)) from error


def _whole_number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise NotationError("a whole number of at least 1", repr(value))
    return value


def _age_of_orphans(value: Any) -> dt.timedelta:
    age = duration(value)
    if age < MINIMUM_ORPHAN_AGE:
        raise NotationError(_LONG_ENOUGH, duration_text(age))
    return age


def _share(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise NotationError("a share above 0 and up to 1", repr(value))
    return float(value)


_PARSERS: Final = {name: _parser_of(name, item.default) for name, item in _FIELDS.items()}


@dataclass(frozen=True, slots=True)
class MaintenanceOptions:
    """How the table of an asset is maintained."""

    maintenance: Mapping[str, Any] | None = key(
        'dict of settings that differ from the policy of the maintenance, such as `{"older_than": "30 days"}`; '
        "`false`: the table is not maintained",
        parse_maintenance,
        default=dict,
        default_text="the policy",
    )
    retain: dt.timedelta | None = key(
        "duration, such as `400 days`: maintenance deletes the rows of partitions whose time window ended longer ago",
        duration,
        expected="a duration, such as `400 days`",
        default_text="rows are kept",
    )
