"""Decides which columns and rows of which assets a change of the code may change."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from dagster_iceberg_spark.features.code_changes.plan.code_state import in_order
from dagster_iceberg_spark.table.schema import Schema

Source: TypeAlias = Literal["query", "recorded", "unknown"]
"""Where columns come from: the query of a SQL model, the last run of an asset, or nowhere."""


@dataclass(frozen=True, slots=True)
class AssetLineage:
    """The columns of upstream assets that an asset is derived from.

    Args:
        columns: The columns of assets that each column is derived from.
        unknown: Columns of which this is not known.
        row_columns: The columns that decide which rows there are, or None if they are not known.
        source: Whether the query or the last run says so.
    """

    columns: Mapping[str, frozenset[tuple[str, str]]]
    row_columns: frozenset[tuple[str, str]] | None
    source: Source
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QueryColumns:
    """What a query returns, without running it.

    Args:
        schema: Its columns.
        lineage: What they are derived from.
        digests: A digest of the expression of each column, or none if they are not known.
        row_digest: A digest of what decides which rows there are.
    """

    schema: Schema
    lineage: AssetLineage
    digests: Mapping[str, str]
    row_digest: str


@dataclass(frozen=True, slots=True)
class Effect:
    """What changes in an asset.

    Args:
        added: Columns that it has in addition.
        lost: Columns that it no longer has.
        retyped: Columns of another type: the names with the types before and after.
        changed: Columns whose values may change.
        is_whole: Whether all rows may change.
        source: Where this is known from.
        breaks: What the change breaks, as sentences.
    """

    added: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    retyped: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    changed: tuple[str, ...] = ()
    is_whole: bool = False
    source: Source = "query"
    breaks: tuple[str, ...] = ()

    @property
    def touched(self) -> frozenset[str]:
        """The columns in which those who read the asset may find something else."""
        return frozenset((*self.lost, *self.retyped, *self.changed))

    @property
    def reaches_readers(self) -> bool:
        """Whether those who read the asset may find something else."""
        return self.is_whole or bool(self.touched)

    @property
    def is_none(self) -> bool:
        """Whether the asset stays as it is."""
        return not (self.reaches_readers or self.added or self.breaks)

    def document(self) -> dict[str, Any]:
        """Return the effect for JSON."""
        return {
            "added": [*self.added],
            "lost": [*self.lost],
            "retyped": {name: {"before": one, "after": other} for name, (one, other) in self.retyped.items()},
            "changed": [*self.changed],
            "all_rows_may_change": self.is_whole,
            "known_from": self.source,
            "breaks": [*self.breaks],
        }


def compare_queries(before: QueryColumns, after: QueryColumns) -> Effect:
    """Return what another query changes in an asset, by itself."""
    retyped, changed, added = dict[str, tuple[str, str]](), list[str](), list[str]()
    for new in after.schema:
        old = before.schema.field(new.name)
        if old is None:
            added.append(new.name)
        elif old.type != new.type:
            retyped[new.name] = (str(old.type), str(new.type))
        elif before.digests.get(old.name) != after.digests.get(new.name):
            changed.append(new.name)
    return Effect(
        added=tuple(added),
        lost=tuple(old.name for old in before.schema if after.schema.field(old.name) is None),
        retyped=retyped,
        changed=tuple(changed),
        is_whole=not (before.digests and after.digests) or before.row_digest != after.row_digest,
    )


def with_readers(
    own: Mapping[str, Effect], inputs: Mapping[str, Sequence[str]], lineages: Mapping[str, AssetLineage]
) -> dict[str, Effect]:
    """Return what changes in assets and in those that are derived from them, down to the last, in this order.

    Args:
        own: What changes in an asset by its own code.
        inputs: The inputs of all assets.
        lineages: What the columns of assets are derived from. Any column of an asset that is left out may be derived
            from any column of its inputs.
    """
    found = dict[str, Effect]()
    for key in in_order(inputs):
        effect, lineage = own.get(key), lineages.get(key)
        for upstream in inputs[key]:
            if upstream in found and found[upstream].reaches_readers:
                effect = _of_reader(effect, lineage, upstream, found[upstream])
        if effect is not None and not effect.is_none:
            found[key] = effect
    return found


def _of_reader(own: Effect | None, lineage: AssetLineage | None, upstream: str, changed: Effect) -> Effect:
    """Return what changes in an asset, with what it finds changed in an input."""
    base = Effect(source="unknown" if lineage is None else lineage.source) if own is None else own
    if lineage is None or changed.is_whole:
        return replace(base, is_whole=True)
    touched = {(upstream, name) for name in changed.touched}
    rows = lineage.row_columns is None or not touched.isdisjoint(lineage.row_columns)
    read = [name for name, origins in lineage.columns.items() if not touched.isdisjoint(origins)]
    changed_columns = dict.fromkeys((*base.changed, *read, *lineage.unknown))
    return replace(
        base,
        changed=tuple(name for name in changed_columns if name not in base.retyped),
        is_whole=base.is_whole or rows,
        breaks=(*base.breaks, *_broken_reads(lineage, upstream, changed.lost)),
    )


def _broken_reads(lineage: AssetLineage, upstream: str, lost: Sequence[str]) -> list[str]:
    """Return what the last run has read and no run can read again. A query was tried against the new columns."""
    if lineage.source != "recorded":
        return []
    read = {name for origins in (*lineage.columns.values(), lineage.row_columns or ()) for name in origins}
    return [
        f"its last run read the column {name} of {upstream}, which is lost" for name in lost if (upstream, name) in read
    ]
