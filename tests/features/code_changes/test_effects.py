"""What a change reaches: columns and rows of assets that are derived from a changed one."""

from typing import Any

import pytest

from dagster_iceberg_spark.features.code_changes.plan.effects import (
    AssetLineage,
    Effect,
    QueryColumns,
    compare_queries,
    with_readers,
)
from dagster_iceberg_spark.features.code_changes.plan.rebuilds import ChangedRuns, Rebuild, ReplayedAsset, effects_of
from dagster_iceberg_spark.features.code_changes.plan.report import NOTES, AssetImpact, markdown_of
from dagster_iceberg_spark.table.schema import DOUBLE, LONG, STRING, Field, Schema

ORDERS = frozenset({("orders", "cents")})
NONE: frozenset[tuple[str, str]] = frozenset()


def lineage(rows: frozenset[tuple[str, str]] | None = NONE, **columns: frozenset[tuple[str, str]]) -> AssetLineage:
    return AssetLineage(columns, rows, "recorded")


@pytest.mark.parametrize(
    ("own", "known", "expected"),
    [
        (Effect(changed=("cents",)), lineage(total=ORDERS, day=NONE), Effect(changed=("total",), source="recorded")),
        (Effect(changed=("note",)), lineage(total=ORDERS), None),
        (Effect(added=("cents",)), lineage(total=ORDERS), None),
        (
            Effect(retyped={"cents": ("int", "long")}),
            lineage(total=ORDERS),
            Effect(changed=("total",), source="recorded"),
        ),
        (Effect(changed=("cents",)), lineage(ORDERS, total=NONE), Effect(is_whole=True, source="recorded")),
        (Effect(changed=("cents",)), lineage(None, total=NONE), Effect(is_whole=True, source="recorded")),
        (Effect(changed=("cents",)), None, Effect(is_whole=True, source="unknown")),
        (Effect(is_whole=True), lineage(total=NONE), Effect(is_whole=True, source="recorded")),
        (
            Effect(changed=("note",)),
            AssetLineage({"total": ORDERS}, NONE, "recorded", ("made",)),
            Effect(changed=("made",), source="recorded"),
        ),
        (
            Effect(lost=("cents",)),
            lineage(total=ORDERS),
            Effect(
                changed=("total",),
                source="recorded",
                breaks=("its last run read the column cents of orders, which is lost",),
            ),
        ),
    ],
)
def test_a_change_reaches_what_is_derived_from_it(
    own: Effect, known: AssetLineage | None, expected: Effect | None
) -> None:
    lineages = {} if known is None else {"daily": known}
    inputs = {"orders": (), "daily": ("orders",), "report": ("daily",), "other": ()}
    found = with_readers({"orders": own}, inputs, {**lineages, "report": lineage(all=frozenset({("daily", "total")}))})
    assert found.get("daily") == expected
    assert ("report" in found) is (expected is not None and (expected.is_whole or "total" in expected.changed))
    assert "other" not in found


def columns(row_digest: str = "r", digests: dict[str, str] | None = None, **types: Any) -> QueryColumns:
    fields = tuple(Field(name, kind) for name, kind in types.items())
    own = dict.fromkeys(types, "d") if digests is None else digests
    return QueryColumns(Schema(fields), lineage(), own, row_digest)


def test_queries_are_compared_by_columns_and_rows() -> None:
    before = columns(id=LONG, cents=LONG, note=STRING, v=LONG)
    after = columns(digests={"id": "d", "cents": "d", "V": "x", "new": "d"}, id=LONG, cents=DOUBLE, V=LONG, new=LONG)
    assert compare_queries(before, before).is_none
    assert compare_queries(before, after) == Effect(("new",), ("note",), {"cents": ("long", "double")}, ("V",))
    assert compare_queries(before, columns("other", id=LONG, cents=LONG, note=STRING, v=LONG)) == Effect(is_whole=True)
    assert compare_queries(before, columns(digests={}, id=LONG, cents=LONG, note=STRING, v=LONG)).is_whole


def test_the_report_says_what_breaks_first() -> None:
    lost = Effect(changed=("a|b",), source="recorded", breaks=("its last run read the column x of y, which is lost",))
    impacts = [
        AssetImpact("y", ("query",), Effect(lost=("x",), retyped={"z": ("int", "long")}), "db.y", 1, 2_000),
        AssetImpact("z", (), lost, "db.z", None, None),
    ]
    assert markdown_of(impacts, "main..HEAD").splitlines() == [
        "### What `main..HEAD` changes",
        "",
        "**This breaks:**",
        "",
        "- z: its last run read the column x of y, which is lost",
        "",
        "| asset | definition | columns | rows | rebuild |",
        "|---|---|---|---|---|",
        "| y | query | lost: x; retyped: z (int to long) | the same | 1 partition, 2.0 kB |",
        r"| z | unchanged | values may differ: a\|b (of the last run) | the same |  |",
        "",
        "To rebuild: 1 table, 2.0 kB.",
        "",
        NOTES,
    ]
    assert markdown_of([], "a").splitlines()[-1] == "No asset changes."


def replay(*, is_same: bool = True, rows: tuple[int, int] = (2, 2), new: Any = (), **verdicts: str) -> dict[str, Any]:
    whole = "differs" if "differs" in verdicts.values() or rows[0] != rows[1] else "same"
    comparison = {"rows": whole, "rows_before": rows[0], "rows_after": rows[1], "columns": verdicts}
    days = ["1", "2"]
    facts = {"partition_keys": days, "differing_partitions": days[1:] if whole == "differs" else [], "words": "words"}
    return {"a": {"is_same": is_same, "new_columns": new, "comparison": comparison, **facts}}


SAME = replay(v="same")
OTHER = replay(v="differs", w="same", is_same=False)


@pytest.mark.parametrize(
    ("before", "after", "outcome", "effect"),
    [
        (SAME, SAME, "same", Effect()),
        (SAME, OTHER, "differs", Effect(changed=("v",))),
        (SAME, replay(v="differs", rows=(2, 3), is_same=False), "differs", Effect(changed=("v",), is_whole=True)),
        (SAME, replay(v="same", rows=(2, 3), is_same=False), "differs", Effect(is_whole=True)),
        (SAME, replay(v="same", new=["n"], is_same=False), "differs", Effect(added=("n",))),
        (OTHER, OTHER, "not deterministic", None),
        ("no branch", SAME, "not replayed", None),
        (SAME, "a step failed", "not replayed", None),
    ],
)
def test_two_replays_say_what_the_new_code_changes(
    before: Any, after: Any, outcome: str, effect: Effect | None
) -> None:
    found = ReplayedAsset.of("a", "run", before, after)
    assert found.outcome == outcome
    assert effects_of([found]).get("a") == effect
    assert effects_of([found, ReplayedAsset.of("a", "other", "gone", SAME)]) == {}, "one replay does not show it"


def test_the_report_of_replays_says_what_to_rebuild() -> None:
    same, other = (ReplayedAsset.of("a", "0123456789", SAME, each) for each in (SAME, OTHER))
    doubtful = ReplayedAsset.of("a", "0123456789", OTHER, OTHER)
    assert ChangedRuns((same,), (), ()).markdown("main").endswith("\nNothing has to be rebuilt.")
    text = ChangedRuns((other,), ("b",), (Rebuild("a", ("2",), 1), Rebuild("c", None))).markdown("main")
    assert "| a | 01234567 | differs | words |" in text
    assert "No run has stored: b." in text
    assert text.endswith("\n- a: 2; not replayed: 1 other partition\n- c: the whole table")
    text = ChangedRuns((doubtful,), (), ()).markdown("main")
    assert "| not deterministic | the old code makes words |" in text
    assert text.endswith("what to rebuild of a, and of what is derived from it.")
    assert Rebuild("a", tuple(map(str, range(25)))).words().endswith("19 and 5 more")
    assert "No asset with a run has other code." in ChangedRuns((), (), ()).markdown("main")
