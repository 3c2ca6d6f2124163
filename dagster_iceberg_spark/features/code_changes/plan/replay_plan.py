"""Decides what the tables of a run start from when it is replayed, and whether their rows are the same."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from dagster_iceberg_spark.errors import UpstreamMissingError
from dagster_iceberg_spark.table import lineage
from dagster_iceberg_spark.table.snapshot import Snapshot, TableState

_REPLACING: Final = frozenset({"replace", "overwrite_partitions"})

Verdict: TypeAlias = Literal["same", "rounding", "differs"]
"""`rounding`: the values are the same in seven digits. Sums of floating-point numbers depend on their order."""


@dataclass(frozen=True, slots=True)
class Start:
    """Where the branch of a replay starts. `is_emptied` says whether its rows are deleted first."""

    snapshot_id: int
    is_emptied: bool = False


def snapshots_of_asset(state: TableState, asset: str, branch: str) -> Iterator[Snapshot]:
    """Yield the snapshots of a branch in which runs stored an asset, newest first. An undo stores none."""
    for snapshot in state.ancestors(branch):
        if snapshot.summary.get(lineage.ASSET_KEY) == asset and lineage.UNDOES not in snapshot.summary:
            yield snapshot


def snapshots_of_run(state: TableState, run_id: str, asset: str, branch: str) -> tuple[Snapshot, ...]:
    """Return the snapshots of a branch in which a run stored an asset, newest first."""
    stored = snapshots_of_asset(state, asset, branch)
    return tuple(snapshot for snapshot in stored if snapshot.summary.get(lineage.RUN_ID) == run_id)


def start_of(state: TableState, first: Snapshot) -> Start:
    """Return the start of a replay: the snapshot before the first one of the run.

    A write that replaces its rows may as well start at its own snapshot, if that one has expired or there is none.

    Raises:
        UpstreamMissingError: The snapshot before has expired, and the write adds to its rows.
    """
    parent = first.parent_snapshot_id
    if parent is not None and parent in state.snapshots:
        return Start(parent)
    replaces = first.summary.get(lineage.WRITE_DISPOSITION) in _REPLACING
    if parent is not None and not replaces:
        raise UpstreamMissingError.refusing(
            "replay",
            f"snapshot {first.snapshot_id} of {state.identifier}",
            expected=f"the snapshot before it, {parent}, whose rows the run added to",
            found="none: it has expired",
            hint="keep snapshots longer, with `replayable_for` of the maintenance policy.",
        )
    return Start(first.snapshot_id, is_emptied=not replaces)


@dataclass(frozen=True, slots=True)
class RowDigest:
    """A digest of rows, in any order. Each is a pair: of the values, and of the values rounded to seven digits.

    Args:
        rows: The number of rows.
        columns: The digest of each column.
        whole: The digest of the rows as a whole.
    """

    rows: int
    columns: Mapping[str, tuple[str, str]]
    whole: tuple[str, str]


@dataclass(frozen=True, slots=True)
class RowComparison:
    """The rows of a run beside those of its replay.

    Args:
        before: The number of rows that the run had left in its partitions.
        after: The number of rows that the replay has left in them.
        columns: Whether each column has the same values.
        whole: Whether the rows are the same.
    """

    before: int
    after: int
    columns: Mapping[str, Verdict]
    whole: Verdict

    @property
    def differing(self) -> list[str]:
        """The columns whose values differ by more than rounding."""
        return [name for name, verdict in self.columns.items() if verdict == "differs"]

    def words(self) -> str:
        """Return the result in words."""
        if self.whole == "same":
            return "the same rows"
        if self.whole == "rounding":
            rounded = [name for name, verdict in self.columns.items() if verdict == "rounding"]
            return f"the same rows, but for the last digits of {', '.join(rounded)}"
        names = self.differing
        return f"other values in {', '.join(names)}" if names else "the same values in each column, in other rows"

    def document(self) -> dict[str, Any]:
        """Return the comparison for JSON."""
        return {"rows_before": self.before, "rows_after": self.after, "rows": self.whole, "columns": dict(self.columns)}


def compare(before: RowDigest, after: RowDigest) -> RowComparison:
    """Compare the rows of a run with those of its replay, in the columns that both have."""
    shared = [name for name in before.columns if name in after.columns]
    columns = {name: _verdict(before.columns[name], after.columns[name]) for name in shared}
    return RowComparison(before.rows, after.rows, columns, _verdict(before.whole, after.whole))


@dataclass(frozen=True, slots=True)
class ReplayedTable:
    """A table of a replayed run.

    Args:
        asset: The asset.
        table: The table, with its namespace.
        partitions: Its partitions in words, or None for the whole table.
        keys: Its partition keys, or none for the whole table.
        snapshot_id: The snapshot of the run.
        replayed_id: The snapshot of the replay.
        branch: The branch that has it.
        code_versions: The code version of the asset in the run and now.
        new_columns: The columns that the table lacks. They are left out.
        unpinned: What the asset reads as it is now, because no input has loaded it from the table.
        comparison: The rows of both, or None if they were not compared.
        differing: The partitions whose rows differ, or None if the rows were not compared.
    """

    asset: str
    table: str
    partitions: str | None
    keys: Sequence[str]
    snapshot_id: int
    replayed_id: int
    branch: str
    code_versions: tuple[str | None, str | None]
    new_columns: Sequence[str] = ()
    unpinned: Sequence[str] = ()
    comparison: RowComparison | None = field(default=None, kw_only=True)
    differing: Sequence[str] | None = field(default=None, kw_only=True)

    @property
    def is_same(self) -> bool:
        """Whether the rows were compared and are the same, but for rounding, and no column is new."""
        return self.comparison is not None and self.comparison.whole != "differs" and not self.new_columns

    def words(self) -> str:
        """Return the result in words."""
        parts = [] if self.comparison is None else [self.comparison.words()]
        parts += [f"new columns: {', '.join(self.new_columns)}"] if self.new_columns else []
        parts += [f"read as of now: {', '.join(self.unpinned)}"] if self.unpinned else []
        before, after = self.code_versions
        parts += [f"code version {before} then, {after} now"] if before != after else []
        return "; ".join(parts)

    def document(self) -> dict[str, Any]:
        """Return the table for JSON."""
        before, after = self.code_versions
        return {
            "asset": self.asset,
            "table": self.table,
            "partitions": self.partitions,
            "partition_keys": [*self.keys],
            "snapshot_id": str(self.snapshot_id),
            "replayed_snapshot_id": str(self.replayed_id),
            "branch": self.branch,
            "code_version": {"before": before, "after": after},
            "new_columns": [*self.new_columns],
            "read_as_of_now": [*self.unpinned],
            "words": self.words(),
            "is_same": self.is_same,
            **({} if self.comparison is None else {"comparison": self.comparison.document()}),
            **({} if self.differing is None else {"differing_partitions": [*self.differing]}),
        }


def _verdict(before: tuple[str, str], after: tuple[str, str]) -> Verdict:
    if before == after:
        return "same"
    return "rounding" if before[1] == after[1] else "differs"
