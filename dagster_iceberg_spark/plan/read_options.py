"""What an input asks for: its metadata, the run's configuration and the run's tags, resolved once."""

import datetime as dt
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NoReturn

from dagster_iceberg_spark.errors import MetadataKeyError
from dagster_iceberg_spark.plan.options import TABLE
from dagster_iceberg_spark.plan.values import instant, names, nearest_of, text
from dagster_iceberg_spark.table.lineage import ReadKind

COLUMNS: Final = "columns"
SNAPSHOT_ID: Final = "iceberg/snapshot_id"
AS_OF: Final = "iceberg/as_of"
AS_OF_RUN: Final = "iceberg/as_of_run"
REF: Final = "iceberg/ref"
ROW_FILTER: Final = "iceberg/row_filter"
LIMIT: Final = "iceberg/limit"
MISSING: Final = "iceberg/missing"
READ: Final = "iceberg/read"
CHANGES_FALLBACK: Final = "iceberg/changes_fallback"

RUN_KEYS: Final[Mapping[str, str]] = {
    SNAPSHOT_ID: "id of the snapshot to read",
    AS_OF: "instant, with its zone: the snapshot that the branch had then is read",
    AS_OF_RUN: "id of an earlier run: the very snapshot that its step of the same name has read is read",
    REF: "branch or tag to read",
}
"""The keys that say when to read: also in a run's configuration, by their last part, and in a run's tags."""

INPUT_KEYS: Final[Mapping[str, str]] = {
    **RUN_KEYS,
    TABLE: "`namespace.table`, of an op's input that comes from no asset",
    ROW_FILTER: "condition in SQL: comparisons of columns with constants",
    LIMIT: "number of rows to read at most, whichever",
    MISSING: "`error` or `empty`: what a table or a partition is read as that nobody has written",
    READ: "`snapshot` (all rows), `changes` (rows that were added since the asset has last read the input) or "
    "`changelog` (insertions and deletions since then)",
    CHANGES_FALLBACK: "`error` or `full`: what is read where changes cannot be told",
}
"""Every `iceberg/` key of an input, and the values that it takes."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What is asked for.

    Args:
        columns: Columns to read, in order; None: all.
        snapshot_id: The snapshot to read.
        as_of: The instant to read the branch at, aware.
        as_of_run: The run whose snapshot to read.
        ref: Branch or tag.
        row_filter: Which rows, in SQL.
        limit: How many rows at most.
        missing: What to do where there is no table, or nobody has written a partition.
        read: Whether all rows are read, those that are new, or every change.
        changes_fallback: What to do where it cannot be told what has changed.
    """

    columns: tuple[str, ...] | None = None
    snapshot_id: int | None = None
    as_of: dt.datetime | None = None
    as_of_run: str | None = None
    ref: str | None = None
    row_filter: str | None = None
    limit: int | None = None
    missing: Literal["error", "empty"] = "error"
    read: Literal["snapshot", "changes", "changelog"] = "snapshot"
    changes_fallback: Literal["error", "full"] = "error"

    @property
    def kind(self) -> ReadKind | None:
        """Which changes are read; None: all rows."""
        return None if self.read == "snapshot" else self.read

    @property
    def left_out(self) -> str | None:
        """What leaves rows of the snapshot out, for the lineage: a limit, or which row filter; None: nothing does."""
        if self.limit is not None:
            return LIMIT
        if self.row_filter is None:
            return None
        return f"{ROW_FILTER} {hashlib.sha256(self.row_filter.encode()).hexdigest()[:16]}"

    @property
    def is_head(self) -> bool:
        """Whether the newest snapshot of a branch is asked for, or what a tag stands for."""
        return self.snapshot_id is None and self.as_of is None and self.as_of_run is None


def parse_read_options(
    metadata: Mapping[str, Any],
    *,
    subject: str,
    config: Mapping[str, Any] | None = None,
    tags: Mapping[str, str] | None = None,
) -> ReadOptions:
    """Resolve what an input asks for. What the run says of when to read replaces what the definition says of it.

    Args:
        metadata: Of the input (`AssetIn(metadata=...)`, `In(metadata=...)`).
        subject: The input, for messages.
        config: Of the input, in the run's configuration; keys have no prefix, and None stands for nothing.
        tags: Of the run.

    Raises:
        MetadataKeyError: A key is unknown, or its value is not one that it takes.
    """
    configured = {f"iceberg/{key}": value for key, value in (config or {}).items()}
    for place, given, known in (
        (f"the metadata of {subject}", metadata, INPUT_KEYS),
        (f"the run's configuration of {subject}", configured, RUN_KEYS),
        ("the run's tags", tags or {}, RUN_KEYS),
    ):
        _require_known(given, known, place)
    own = _Values(metadata, f"the metadata of {subject}")
    moment = next(
        (
            values
            for values in (
                _Values(configured, f"the run's configuration of {subject}"),
                _Values(tags or {}, "the run's tags"),
            )
            if values.said
        ),
        own,
    )
    _require_one(moment.said, moment.place)
    options = ReadOptions(
        columns=own.read(COLUMNS, _columns, "a list of column names, not empty"),
        snapshot_id=moment.read(SNAPSHOT_ID, _number, "a snapshot's id"),
        as_of=moment.read(AS_OF, instant, "an instant with its zone, such as 2024-01-31T12:00:00+00:00"),
        as_of_run=moment.read(AS_OF_RUN, text, "a run's id"),
        ref=moment.read(REF, text, "the name of a branch or a tag"),
        row_filter=own.read(ROW_FILTER, text, "a condition in SQL"),
        limit=own.read(LIMIT, _number, "a number of rows"),
        missing=own.read(MISSING, _one_of("error", "empty"), "`error` or `empty`") or "error",
        read=own.read(READ, _one_of("snapshot", "changes", "changelog"), "`snapshot`, `changes` or `changelog`")
        or "snapshot",
        changes_fallback=own.read(CHANGES_FALLBACK, _one_of("error", "full"), "`error` or `full`") or "error",
    )
    if options.limit is not None and options.kind is not None:
        raise MetadataKeyError.of_value(
            LIMIT,
            f"the metadata of {subject}",
            expected=f"no limit where `{READ}` asks for what is new",
            found=str(options.limit),
            hint="leave it out: rows beyond a limit would count as read.",
        )
    return options


def _require_known(given: Mapping[str, Any], known: Mapping[str, str], place: str) -> None:
    for key in given:
        if key.startswith("iceberg/") and key not in known:
            nearest = nearest_of(key, tuple(known))
            raise MetadataKeyError.of_unknown_key(
                key, place, expected="a key of an input", known=known, nearest=nearest
            )


def _require_one(said: Mapping[str, Any], place: str) -> None:
    """Refuse two answers to when to read; an instant is one of a branch."""
    if len(said) > 1 and set(said) != {AS_OF, REF}:
        alone = next(key for key in (SNAPSHOT_ID, AS_OF_RUN) if key in said)
        raise MetadataKeyError.refusing("use", place, expected=f"`{alone}` alone", found=f"`{'` and `'.join(said)}`")


@dataclass(frozen=True, slots=True)
class _Values:
    """What one place says of an input."""

    given: Mapping[str, Any]
    place: str

    @property
    def said(self) -> Mapping[str, Any]:
        """What it says of when to read."""
        return {key: self.given[key] for key in RUN_KEYS if self.given.get(key) is not None}

    def read(self, key: str, parse: Callable[[Any], Any], expected: str) -> Any:
        value = self.given.get(key)
        if value is None:
            return None
        try:
            return parse(value)
        except (ValueError, TypeError) as error:
            self._refuse(key, expected, value, error)

    def _refuse(self, key: str, expected: str, value: Any, error: Exception) -> NoReturn:
        raise MetadataKeyError.of_value(key, self.place, expected=expected, found=repr(value)) from error


def _columns(value: Any) -> tuple[str, ...]:
    columns = names(value)
    if not columns:
        raise ValueError(value)
    return columns


def _number(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    raise ValueError(value)


def _one_of(*known: str) -> Callable[[Any], Any]:
    def parse(value: Any) -> Any:
        if value not in known:
            raise ValueError(value)
        return value

    return parse
