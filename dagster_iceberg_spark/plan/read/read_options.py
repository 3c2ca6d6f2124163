"""The options of an input, resolved from its metadata, the run's configuration and the run's tags."""

import datetime as dt
import hashlib
from collections.abc import Mapping
from typing import Any, Final, Literal

from dagster_iceberg_spark.errors import MetadataKeyError
from dagster_iceberg_spark.plan.options.metadata_key import (
    PREFIX,
    MetadataKey,
    Options,
    instant,
    key,
    keys_of,
    names,
    read_metadata,
    table_identifier,
    text,
    unknown_keys,
)
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.lineage import ReadKind

COLUMNS: Final = "columns"
SNAPSHOT_ID: Final = "iceberg/snapshot_id"
AS_OF: Final = "iceberg/as_of"
AS_OF_RUN: Final = "iceberg/as_of_run"
AS_OF_RELEASE: Final = "iceberg/as_of_release"
REF: Final = "iceberg/ref"
ROW_FILTER: Final = "iceberg/row_filter"
LIMIT: Final = "iceberg/limit"
MISSING: Final = "iceberg/missing"
READ: Final = "iceberg/read"
CHANGES_FALLBACK: Final = "iceberg/changes_fallback"


def _columns(value: Any) -> tuple[str, ...]:
    if not value or not isinstance(value, str | list | tuple) or not all(isinstance(item, str) for item in value):
        raise ValueError(f"{value!r}")
    return names(value)


def _number(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    raise ValueError(f"{value!r}")


class ReadOptions(Options):
    """The resolved options of an input."""

    columns: tuple[str, ...] | None = key(
        "list of the columns to read, in this order",
        _columns,
        name=COLUMNS,
        expected="a list with at least one column name",
    )
    snapshot_id: int | None = key("id of the snapshot to read", _number, expected="a snapshot's id", is_of_run=True)
    as_of: dt.datetime | None = key(
        "instant with its zone: reads the snapshot that was current on the branch at that instant",
        instant,
        expected="an instant with its zone, such as 2024-01-31T12:00:00+00:00",
        is_of_run=True,
    )
    as_of_run: str | None = key(
        "id of an earlier run: reads the snapshot that the step of the same name read in that run",
        text,
        expected="a run's id",
        is_of_run=True,
    )
    as_of_release: str | None = key(
        "name of a release: reads the rows that it has published, or that were in the table then",
        text,
        expected="the name of a release",
        is_of_run=True,
    )
    ref: str | None = key("branch or tag to read", text, expected="the name of a branch or a tag", is_of_run=True)
    table: TableIdentifier | None = key(
        "`namespace.table`, for an op's input that comes from no asset", table_identifier
    )
    row_filter: str | None = key(
        "condition in Spark SQL: comparisons of columns with constants", text, expected="a condition in SQL"
    )
    limit: int | None = key(
        "maximum number of rows to read; which rows is not defined", _number, expected="a number of rows"
    )
    missing: Literal["error", "empty"] = key(
        "`error` or `empty`: what happens if the table or a partition has not been written", default="error"
    )
    read: Literal["snapshot", "changes", "changelog"] = key(
        "`snapshot` (all rows), `changes` (rows added since the asset last read the input) or `changelog` (insertions "
        "and deletions since then)",
        default="snapshot",
    )
    changes_fallback: Literal["error", "partitions"] = key(
        "what happens if the changes cannot be determined: `error` fails, `partitions` reads all rows of the run's "
        "partitions, which an asset that appends then replaces in its table",
        default="error",
    )

    @property
    def kind(self) -> ReadKind | None:
        """The kind of incremental read, or None to read all rows."""
        return None if self.read == "snapshot" else self.read

    @property
    def left_out(self) -> str | None:
        """The option that leaves out rows, for the lineage: the limit or the hash of the row filter, or None."""
        if self.limit is not None:
            return LIMIT
        if self.row_filter is None:
            return None
        return f"{ROW_FILTER} {hashlib.sha256(self.row_filter.encode()).hexdigest()[:16]}"

    @property
    def is_head(self) -> bool:
        """Whether the input reads the head of a branch or a tag."""
        return all(item is None for item in (self.snapshot_id, self.as_of, self.as_of_run, self.as_of_release))


INPUT_KEYS: Final[Mapping[str, MetadataKey]] = {item.name: item for item in keys_of(ReadOptions)}
"""The metadata keys of an input by name."""
RUN_KEYS: Final[Mapping[str, MetadataKey]] = {name: item for name, item in INPUT_KEYS.items() if item.is_of_run}
"""The keys of time travel. A run's tags may set them too, and so may its configuration, without the prefix."""


def parse_read_options(
    metadata: Mapping[str, Any],
    *,
    subject: str,
    config: Mapping[str, Any] | None = None,
    tags: Mapping[str, str] | None = None,
) -> ReadOptions:
    """Resolve the options of an input. The run's time travel replaces the definition's.

    The keys of the run's configuration have no prefix, and None counts as no value in it.
    """
    configured = {f"{PREFIX}{name}": value for name, value in (config or {}).items()}
    places = (
        (f"the run's configuration of {subject}", configured, RUN_KEYS),
        ("the run's tags", tags or {}, RUN_KEYS),
        (f"the metadata of {subject}", metadata, INPUT_KEYS),
    )
    for place, given, known in reversed(places):
        for name, hint in unknown_keys(given, known):
            raise MetadataKeyError.refusing("use", place, expected="a key of an input", found=f"`{name}`", hint=hint)
    given, place = next(
        ((given, place) for place, given, _ in places if _moment(given)), (metadata, f"the metadata of {subject}")
    )
    moment = _moment(given)
    _require_one(moment, place)
    others = {name: value for name, value in metadata.items() if name not in RUN_KEYS}
    chosen = {RUN_KEYS[name].option: RUN_KEYS[name].read(value, subject=place) for name, value in moment.items()}
    options = read_metadata(ReadOptions, others, subject=f"the metadata of {subject}").model_copy(update=chosen)
    if options.limit is not None and options.kind is not None:
        raise MetadataKeyError.of_value(
            LIMIT,
            f"the metadata of {subject}",
            expected=f"no limit where `{READ}` is `{options.read}`",
            found=str(options.limit),
            hint="leave it out: rows beyond a limit would count as read.",
        )
    return options


def _moment(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of time travel that have a value."""
    return {name: given[name] for name in RUN_KEYS if given.get(name) is not None}


def _require_one(moment: Mapping[str, Any], place: str) -> None:
    """Reject more than one key of time travel, except an instant of a branch."""
    if len(moment) > 1 and set(moment) != {AS_OF, REF}:
        alone = next(key for key in (SNAPSHOT_ID, AS_OF_RUN, AS_OF_RELEASE) if key in moment)
        raise MetadataKeyError.refusing("use", place, expected=f"`{alone}` alone", found=f"`{'` and `'.join(moment)}`")
