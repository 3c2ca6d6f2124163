"""The rules of a merge, from `iceberg/merge`, and the session settings for its MERGE."""

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import BeforeValidator, model_validator
from typing_extensions import Self

from dagster_iceberg_spark.errors import MergeKeyError
from dagster_iceberg_spark.plan.options.metadata_key import (
    ColumnName,
    ColumnNames,
    Options,
    expecting,
    instant,
    parse_options,
    sort_field,
    text,
)
from dagster_iceberg_spark.table.identifier import NotationError
from dagster_iceberg_spark.table.partitioning import SortField
from dagster_iceberg_spark.table.schema import fold

MergeStrategy: TypeAlias = Literal["upsert", "insert_only", "delete_insert", "scd2", "replace_where"]
Retirement: TypeAlias = Literal["never", "partitions", "all"]
NullKeys: TypeAlias = Literal["error", "match"]

_OF_UPSERT: Final = ("update_columns", "exclude_columns", "when_matched", "sync")
_OF_SCD2: Final = ("valid_from", "valid_to", "is_current", "retire", "boundary")
OF_RUN: Final = "run"
OF_PARTITION: Final = "partition"


def _boundary(value: Any) -> str | dt.datetime:
    return str(value) if value in (OF_RUN, OF_PARTITION) else instant(value)


_SortOrder = Annotated[
    SortField,
    BeforeValidator(expecting("`column`, `column asc` or `column desc`", lambda value: sort_field(text(value)))),
]
_RowCondition = Annotated[str, BeforeValidator(expecting("SQL over `source` and `target`", text))]
_Condition = Annotated[str, BeforeValidator(expecting("a condition in SQL", text))]
_INSTANT: Final = "an instant with its zone, such as 2024-01-31T12:00:00+00:00,"
_Boundary = Annotated[
    str | dt.datetime, BeforeValidator(expecting(f"`{OF_RUN}`, `{OF_PARTITION}`, or {_INSTANT}", _boundary))
]


class MergeRules(Options):
    """The rules by which a batch is merged into the table.

    Args:
        strategy: `upsert` updates rows with a stored key and inserts the others. `insert_only` only inserts the others.
            `delete_insert` replaces all rows of each key in the batch; a key may have several rows. `scd2` keeps the
            versions of each key, with the time in which each is valid. `replace_where` replaces the rows that meet a
            condition, whatever their keys.
        null_keys: Whether a NULL in a key is rejected, or is treated as a value.
        dedup_sort: If a key has several rows in the batch, the first in this order is used. None rejects them.
        hard_delete: The column of the batch that marks keys to delete, by true, or by any value if it is not boolean.
            It is not stored.
        update_columns: The columns that an update writes, or None for all.
        exclude_columns: The columns that an update does not write.
        when_matched: A condition in SQL over `source` (the batch's row) and `target` (the table's row). A row is
            updated or deleted only if it is true.
        sync: Whether rows of the scope are deleted if the batch lacks their keys.
        valid_from: The column with the start of a version.
        valid_to: The column with the end of a version. NULL means that the version is current.
        is_current: A column that holds whether the version is current, or None for no such column.
        retire: Whether a version ends if the batch lacks its key: never, in the run's partitions, or in all.
        where: The condition in SQL of the rows that `replace_where` replaces. The batch's rows must meet it too.
        boundary: The start of the batch's versions: an instant, the start of the run (`run`), or the start of the run's
            partition (`partition`). If the batch has the column `valid_from`, each row has its own start.
    """

    strategy: MergeStrategy = "upsert"
    null_keys: NullKeys = "error"
    dedup_sort: _SortOrder | None = None
    hard_delete: ColumnName | None = None
    update_columns: ColumnNames | None = None
    exclude_columns: ColumnNames = ()
    when_matched: _RowCondition | None = None
    sync: bool = False
    valid_from: ColumnName = "valid_from"
    valid_to: ColumnName = "valid_to"
    is_current: ColumnName | None = None
    retire: Retirement = "never"
    boundary: _Boundary = OF_RUN
    where: _Condition | None = None

    @model_validator(mode="after")
    def _refuse_contradictions(self) -> Self:
        given = {name for name in self.model_fields_set if getattr(self, name) is not False}
        if self.update_columns is not None and self.exclude_columns:
            raise NotationError("`update_columns` or `exclude_columns`", "both")
        for strategy, options in (("upsert", _OF_UPSERT), ("scd2", _OF_SCD2)):
            if self.strategy != strategy and (others := sorted(given.intersection(options))):
                raise NotationError(f"`{others[0]}` with the strategy {strategy!r} alone", f"{self.strategy!r}")
        if len(set(map(fold, self.validity))) < len(self.validity):
            raise NotationError(
                "a column of its own for each of `valid_from`, `valid_to` and `is_current`", "one twice"
            )
        if (self.strategy == "replace_where") != (self.where is not None):
            raise NotationError("the strategy 'replace_where' together with `where`", "one of them")
        if self.where is not None and (others := sorted(given - {"strategy", "where"})):
            raise NotationError("`where` alone with the strategy 'replace_where'", f"`{others[0]}`")
        if self.strategy == "insert_only" and self.hard_delete is not None:
            raise NotationError("`hard_delete` with a strategy that deletes", "'insert_only'")
        return self

    @property
    def changes_absent_keys(self) -> bool:
        """Whether the merge changes rows whose keys the batch lacks."""
        return self.sync or self.retire != "never"

    @property
    def is_by_row(self) -> bool:
        """Whether the outcome for a row depends on other columns of the stored row."""
        return self.strategy == "scd2" or self.when_matched is not None

    @property
    def validity(self) -> tuple[str, ...]:
        """The columns that the package fills."""
        if self.strategy != "scd2":
            return ()
        return (self.valid_from, self.valid_to, *(() if self.is_current is None else (self.is_current,)))

    @property
    def named_columns(self) -> dict[str, tuple[str, ...]]:
        """The columns that the batch must have, by the option that names them."""
        return {
            "dedup_sort": () if self.dedup_sort is None else (self.dedup_sort.column,),
            "hard_delete": () if self.hard_delete is None else (self.hard_delete,),
            "update_columns": self.update_columns or (),
            "exclude_columns": self.exclude_columns,
        }

    def by_names(self, name_of: Callable[[str], str]) -> "MergeRules":
        """Return the rules with other column names. The SQL of `when_matched` does not change."""
        changes = {
            "dedup_sort": self.dedup_sort and replace(self.dedup_sort, column=name_of(self.dedup_sort.column)),
            "hard_delete": self.hard_delete and name_of(self.hard_delete),
            "update_columns": self.update_columns and tuple(map(name_of, self.update_columns)),
            "exclude_columns": tuple(map(name_of, self.exclude_columns)),
            "valid_from": name_of(self.valid_from),
            "valid_to": name_of(self.valid_to),
            "is_current": self.is_current and name_of(self.is_current),
        }
        return self.model_copy(update=changes)


def parse_merge_rules(value: Any) -> MergeRules:
    """Parse the rules from a dict of options or from the name of a strategy."""
    given = {"strategy": value} if isinstance(value, str) else value
    return parse_options(MergeRules, given, expected="a dict of options, or the name of a strategy")


MAXIMUM_LISTED_KEYS: Final = 100
"""With more rows, the keys of a batch are searched between the least and the greatest. Iceberg prunes by lists of up to
200 values (`ManifestEvaluator` and its like, `IN_PREDICATE_LIMIT`)."""

GROUP_FILTER: Final = "spark.sql.optimizer.runtime.rowLevelOperationGroupFilter.enabled"
"""Whether a copy-on-write MERGE first runs a query to find the files with matching rows (Spark, `SQLConf`)."""
SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"


def key_error(
    subject: str, names: Sequence[str], rules: MergeRules, keys: Sequence[Sequence[Any]], counts: Sequence[int]
) -> MergeKeyError:
    """Build the error for keys of a batch that are NULL, or have several rows. `counts` has the rows of each key."""
    named = (", ".join(map("{}={}".format, names, key)) for key in keys)
    examples = "; ".join(map("({}) in {} row(s)".format, named, counts))
    wanted = [] if rules.strategy == "delete_insert" else [f"one row for each value of {', '.join(names)}"]
    if rules.null_keys == "error":
        wanted.append(f"no NULL in {'it' if wanted else ', '.join(names)}")
    ways = "let `dedup_sort` of `iceberg/merge` choose one" if rules.dedup_sort is None else "sort by more"
    hint = (
        f"drop the extra rows in the asset (`dropDuplicates`, or a window that keeps the newest), {ways}, or add a "
        "column to `iceberg/merge_keys`."
    )
    if rules.null_keys == "error" and all(None in key for key in keys):
        hint = 'fill or filter the column in the asset, or set `"null_keys": "match"` in `iceberg/merge`.'
    return MergeKeyError.refusing(
        "merge into", subject, expected=", and ".join(wanted), found=examples.replace("None", "NULL"), hint=hint
    )


MAXIMUM_LISTED_FILES: Final = 5000
"""The maximum number of data files in a table whose manifests are read to find the size of a MERGE."""
PARTITION_BYTES: Final = 16 * 1024 * 1024
MINIMUM_PARTITIONS: Final = 8


@dataclass(frozen=True, slots=True)
class MergeSize:
    """The size of a MERGE.

    Args:
        files: The number of data files that may hold rows with keys of the batch, by their metadata.
        batch_bytes: The approximate size of the batch's values in memory, in bytes, or None if it is unknown.
        column_ratio: The number of the table's columns for each column of the batch.
    """

    files: int
    stored_rows: int
    batch_rows: int
    batch_bytes: int | None
    column_ratio: float = 1.0

    @property
    def shuffled_bytes(self) -> int | None:
        """The maximum size that the join shuffles, in bytes, if stored rows are as wide as those of the batch."""
        if self.batch_bytes is None or not self.batch_rows:
            return None
        stored_bytes = self.stored_rows * self.batch_bytes / self.batch_rows * self.column_ratio
        return round(self.batch_bytes + stored_bytes)


def merge_settings(size: MergeSize, *, changed_files: int, shuffle_partitions: int) -> dict[str, str]:
    """Return the settings to change in the session for a MERGE that changes rows of so many files."""
    settings = {}
    if changed_files >= size.files:
        # Every planned file is rewritten, so the query would exclude none.
        settings[GROUP_FILTER] = "false"
    if size.shuffled_bytes is not None:
        enough = max(MINIMUM_PARTITIONS, -(-size.shuffled_bytes // PARTITION_BYTES))
        if enough < shuffle_partitions:
            settings[SHUFFLE_PARTITIONS] = str(enough)
    return settings
