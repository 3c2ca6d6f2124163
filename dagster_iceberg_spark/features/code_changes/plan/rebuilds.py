"""Decides what two replays of a run say about a change of the code."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

from dagster_iceberg_spark.features.code_changes.plan.effects import Effect
from dagster_iceberg_spark.features.code_changes.plan.report import counted
from dagster_iceberg_spark.plan.read.history import cell

Outcome: TypeAlias = Literal["same", "differs", "not deterministic", "not replayed"]
_SHOWN: Final = 20
"""The most partitions that a line lists."""


@dataclass(frozen=True, slots=True)
class ReplayedAsset:
    """An asset of a run that was replayed with the old code and with the new.

    Args:
        key: The asset.
        run_id: The run.
        outcome: Whether the new code makes the same rows. If the old code does not, this cannot be determined.
        words: What differs, or why the run was not replayed.
        partitions: The partitions of the run.
        differing: Those whose rows differ.
        columns: The columns whose values differ.
        added: The columns that the table lacks.
        is_whole: Whether rows are missing, new, or combined differently.
    """

    key: str
    run_id: str
    outcome: Outcome
    words: str
    partitions: tuple[str, ...] = ()
    differing: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    is_whole: bool = False

    @classmethod
    def of(
        cls, key: str, run_id: str, before: Mapping[str, Any] | str, after: Mapping[str, Any] | str
    ) -> "ReplayedAsset":
        """Return what the documents of two replays say, or the reasons why they have failed."""
        if isinstance(before, str):
            return cls(key, run_id, "not replayed", f"with the old code: {before}")
        if isinstance(after, str):
            return cls(key, run_id, "not replayed", f"with the new code: {after}")
        old, new = before[key], after[key]
        comparison = new["comparison"]
        columns = tuple(name for name, verdict in comparison["columns"].items() if verdict == "differs")
        has_other_rows = comparison["rows_before"] != comparison["rows_after"] or not columns
        compared = cls(
            key,
            run_id,
            "same" if new["is_same"] else "differs",
            new["words"],
            tuple(new["partition_keys"]),
            tuple(new["differing_partitions"]),
            columns,
            tuple(new["new_columns"]),
            is_whole=comparison["rows"] == "differs" and has_other_rows,
        )
        if old["is_same"]:
            return compared
        return replace(compared, outcome="not deterministic", words=f"the old code makes {old['words']}")

    @property
    def is_doubtful(self) -> bool:
        """Whether the replays do not show what the new code changes."""
        return self.outcome in ("not deterministic", "not replayed")

    def document(self) -> dict[str, Any]:
        """Return the asset for JSON."""
        return {
            "asset": self.key,
            "run_id": self.run_id,
            "outcome": self.outcome,
            "words": self.words,
            "partitions": [*self.partitions],
            "differing_partitions": [*self.differing],
            "differing_columns": [*self.columns],
            "new_columns": [*self.added],
        }


def effects_of(replayed: Iterable[ReplayedAsset]) -> dict[str, Effect]:
    """Return what the new code changes in assets, if all replays show it."""
    by_key = dict[str, list[ReplayedAsset]]()
    for item in replayed:
        by_key.setdefault(item.key, []).append(item)
    return {
        key: Effect(
            added=tuple(dict.fromkeys(name for item in items for name in item.added)),
            changed=tuple(dict.fromkeys(name for item in items for name in item.columns)),
            is_whole=any(item.is_whole for item in items),
        )
        for key, items in by_key.items()
        if not any(item.is_doubtful for item in items)
    }


@dataclass(frozen=True, slots=True)
class Rebuild:
    """What to rebuild of an asset.

    Args:
        key: The asset.
        partitions: The partitions, or None for a whole table.
        untried: The number of other partitions that no replay has tried.
    """

    key: str
    partitions: tuple[str, ...] | None
    untried: int = 0

    def words(self) -> str:
        """Return what to rebuild in words."""
        if self.partitions is None:
            return "the whole table"
        names = ", ".join(self.partitions[:_SHOWN]) or "none that was replayed"
        more = len(self.partitions) - _SHOWN
        others = f"; not replayed: {counted(self.untried, 'other partition')}" if self.untried else ""
        return f"{names}{f' and {more} more' if more > 0 else ''}{others}"

    def document(self) -> dict[str, Any]:
        """Return this for JSON."""
        partitions = None if self.partitions is None else [*self.partitions]
        return {"asset": self.key, "partitions": partitions, "not_replayed": self.untried}


@dataclass(frozen=True, slots=True)
class ChangedRuns:
    """What changed code makes of the inputs of old runs.

    Args:
        replayed: The assets that were replayed.
        never_run: Assets whose code changes and that no run has stored.
        rebuilds: What to rebuild.
    """

    replayed: tuple[ReplayedAsset, ...]
    never_run: tuple[str, ...]
    rebuilds: tuple[Rebuild, ...]

    @property
    def is_same(self) -> bool:
        """Whether all assets have the same rows."""
        return all(item.outcome == "same" for item in self.replayed)

    def document(self) -> dict[str, Any]:
        """Return this for JSON."""
        return {
            "replayed": [item.document() for item in self.replayed],
            "never_run": [*self.never_run],
            "rebuild": [item.document() for item in self.rebuilds],
        }

    def markdown(self, revisions: str) -> str:
        """Return this as Markdown for a pull request."""
        return "\n".join(self._lines(revisions))

    def _lines(self, revisions: str) -> Iterator[str]:
        yield f"### What the code of `{revisions}` makes of the same inputs\n"
        if self.replayed:
            yield "| asset | run | rows | what differs |"
            yield "|---|---|---|---|"
            yield from (_row((item.key, item.run_id[:8], item.outcome, item.words)) for item in self.replayed)
        else:
            yield "No asset with a run has other code."
        if self.never_run:
            yield f"\nNo run has stored: {', '.join(map(cell, self.never_run))}."
        if self.rebuilds:
            yield "\nTo rebuild:\n"
            yield from (f"- {cell(item.key)}: {cell(item.words())}" for item in self.rebuilds)
        doubtful = sorted({item.key for item in self.replayed if item.is_doubtful})
        if doubtful:
            names = ", ".join(map(cell, doubtful))
            yield f"\nThe replays do not show what to rebuild of {names}, and of what is derived from it."
        elif self.replayed and not self.rebuilds:
            yield "\nNothing has to be rebuilt."


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(map(cell, cells))} |"
