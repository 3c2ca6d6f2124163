"""What a change of the code changes, as Markdown and for JSON."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dagster_iceberg_spark.features.code_changes.plan.effects import Effect
from dagster_iceberg_spark.features.maintenance.plan.health import readable_bytes
from dagster_iceberg_spark.plan.read.history import cell


@dataclass(frozen=True, slots=True)
class AssetImpact:
    """What changes in an asset.

    Args:
        key: The asset.
        change: What its definition says differently, or nothing for an asset that only reads others.
        effect: What this changes in the table.
        table: The table, if it exists.
        partitions: The number of partitions to rebuild, if they are known.
        bytes: The size of the files to rebuild, or None if there is nothing to rebuild.
    """

    key: str
    change: Sequence[str]
    effect: Effect
    table: str | None
    partitions: int | None
    bytes: int | None

    def document(self) -> dict[str, Any]:
        """Return the asset for JSON."""
        return {
            "asset": self.key,
            "change": [*self.change],
            "table": self.table,
            "effect": self.effect.document(),
            "rebuild": None if self.bytes is None else {"partitions": self.partitions, "bytes": self.bytes},
        }


def markdown_of(impacts: Sequence[AssetImpact], revisions: str) -> str:
    """Return what changes between revisions, as Markdown for a pull request."""
    return "\n".join(_lines(impacts, revisions))


def _lines(impacts: Sequence[AssetImpact], revisions: str) -> Iterator[str]:
    yield f"### What `{revisions}` changes\n"
    if not impacts:
        yield "No asset changes."
        return
    breaks = [(impact, text) for impact in impacts for text in impact.effect.breaks]
    if breaks:
        yield "**This breaks:**\n"
        yield from (f"- {cell(impact.key)}: {cell(text)}" for impact, text in breaks)
        yield ""
    yield "| asset | definition | columns | rows | rebuild |"
    yield "|---|---|---|---|---|"
    for impact in impacts:
        cells = (impact.key, ", ".join(impact.change) or "unchanged", *_effect_cells(impact))
        yield f"| {' | '.join(map(cell, cells))} |"
    rebuilt = [impact for impact in impacts if impact.bytes is not None]
    if rebuilt:
        size = readable_bytes(sum(impact.bytes or 0 for impact in rebuilt))
        yield f"\nTo rebuild: {counted(len(rebuilt), 'table')}, {size}."
    if any(impact.effect.source != "query" for impact in impacts):
        yield f"\n{NOTES}"


NOTES: Final = (
    "Queries were analyzed. Columns of other assets are those of their last run: other Python code may change any of "
    "them, and `replay --changed` shows what it does."
)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as `2 partitions`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _effect_cells(impact: AssetImpact) -> tuple[str, str, str]:
    effect = impact.effect
    found = "; ".join(f"{kind} {', '.join(names)}" for kind, names in _kinds(effect) if names)
    known = " (of the last run)" if found and effect.source == "recorded" else ""
    columns = found or ("not known" if effect.source == "unknown" else "the same")
    rows = "all may change" if effect.is_whole else "the same"
    rebuild = ""
    if impact.bytes is not None:
        partitions = "" if impact.partitions is None else f"{counted(impact.partitions, 'partition')}, "
        rebuild = f"{partitions}{readable_bytes(impact.bytes)}"
    return f"{columns}{known}", rows, rebuild


def _kinds(effect: Effect) -> Iterator[tuple[str, Iterable[str]]]:
    yield "new:", effect.added
    yield "lost:", effect.lost
    yield "retyped:", [f"{name} ({one} to {other})" for name, (one, other) in effect.retyped.items()]
    yield "values may differ:", effect.changed
