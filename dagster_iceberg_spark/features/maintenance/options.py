"""The policy of maintenance: what is kept, and the thresholds of each action."""

import datetime as dt
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator

from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.plan.options.metadata_key import (
    ColumnNames,
    Duration,
    OptionError,
    Options,
    duration,
    duration_text,
    key,
    parse_options,
)
from dagster_iceberg_spark.table.identifier import NotationError

RETAIN: Final = "iceberg/retain"
_DAY: Final = dt.timedelta(days=1)
MINIMUM_ORPHAN_AGE: Final = 3 * _DAY
"""Iceberg's default. A write that is running may have created the files of as many days."""

_LONG_ENOUGH: Final = f"at least {duration_text(MINIMUM_ORPHAN_AGE)}, because a running write needs its files"


def _whole_number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise NotationError("a whole number of at least 1", repr(value))
    return value


def _share(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise NotationError("a share above 0 and up to 1", repr(value))
    return float(value)


def _age_of_orphans(age: dt.timedelta) -> dt.timedelta:
    if age < MINIMUM_ORPHAN_AGE:
        raise NotationError(_LONG_ENOUGH, duration_text(age))
    return age


_Count = Annotated[int, BeforeValidator(_whole_number)]


class MaintenanceSettings(Options):
    """What the maintenance of a table keeps, and the thresholds of its actions.

    `MaintenancePolicy` describes them. The settings of an asset override the policy's.
    """

    compact: bool = True
    min_input_files: _Count = 5
    target_file_bytes: _Count | None = None
    delete_ratio: Annotated[float, BeforeValidator(_share)] = 0.3
    settle: Duration = _DAY
    zorder_by: ColumnNames = ()
    min_manifests: _Count = 20
    statistics: bool = False
    min_snapshots: _Count = 20
    older_than: Duration = 7 * _DAY
    retain_last: _Count = 10
    replayable_for: Duration = 7 * _DAY
    resumable_for: Duration = 3 * _DAY
    remove_orphans: bool = True
    orphans_older_than: Annotated[Duration, AfterValidator(_age_of_orphans)] = MINIMUM_ORPHAN_AGE
    keep_lineage: bool = True


class MaintenancePolicy(MaintenanceSettings):
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

    if not TYPE_CHECKING:  # type checkers derive the arguments from the fields

        def __init__(self, **settings: Any) -> None:
            """Validate the settings."""
            try:
                super().__init__(**settings)
            except OptionError as error:
                subject = f"`{error.option}` of the maintenance policy" if error.option else "the maintenance policy"
                raise ConfigurationError.refusing(
                    "use", subject, expected=error.expected, found=error.found, hint=error.hint
                ) from error

    def overridden_by(self, settings: MaintenanceSettings) -> "MaintenancePolicy":
        """Return the policy with the settings of an asset."""
        return self.model_copy(update={name: getattr(settings, name) for name in settings.model_fields_set})


def parse_maintenance(value: Any) -> MaintenanceSettings | None:
    """Parse the settings of an asset that differ from the policy. `false` excludes its table, and returns None."""
    if value is False:
        return None
    return parse_options(MaintenanceSettings, value, expected="a dict of settings, or false")


class MaintenanceOptions(Options):
    """How the table of an asset is maintained."""

    maintenance: MaintenanceSettings | None = key(
        'dict of settings that differ from the policy of the maintenance, such as `{"older_than": "30 days"}`; '
        "`false`: the table is not maintained",
        parse_maintenance,
        default=MaintenanceSettings,
        default_text="the policy",
    )
    retain: dt.timedelta | None = key(
        "duration, such as `400 days`: maintenance deletes the rows of partitions whose time window ended longer ago",
        duration,
        expected="a duration, such as `400 days`",
        default_text="rows are kept",
    )
