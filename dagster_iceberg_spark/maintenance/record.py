"""What maintenance records in Dagster."""

from typing import Any, Final

import dagster as dg

from dagster_iceberg_spark.maintenance.table import Maintained

_ACTIONS: Final = dg.TableSchema(
    columns=[
        *map(dg.TableColumn, ("action", "outcome")),
        dg.TableColumn("seconds", "float"),
        *map(dg.TableColumn, ("files", "bytes", "snapshots", "new_snapshots")),
    ]
)
_FIGURES: Final = dg.TableSchema(
    columns=[dg.TableColumn("figure"), dg.TableColumn("before", "float"), dg.TableColumn("after", "float")]
)
_KEPT: Final = dg.TableSchema(columns=[*map(dg.TableColumn, ("snapshot", "committed_at", "needed_by"))])
_SHOWN_SNAPSHOTS: Final = 100


def metadata_of(maintained: Maintained) -> dict[str, Any]:
    """Return the metadata of a step that has maintained a table: the plan, what was done, and the figures."""
    found: dict[str, Any] = {"iceberg/table": str(maintained.table)}
    if maintained.waits_for is not None:
        found["iceberg/waits_for"] = maintained.waits_for
    if (plan := maintained.plan) is not None:
        found["iceberg/plan"] = dg.MetadataValue.md(_listed([*map(str, plan.actions), *plan.notes]))
        kept = [
            dg.TableRecord(
                {
                    "snapshot": str(item.snapshot_id),
                    "committed_at": item.committed_at.isoformat(timespec="seconds"),
                    "needed_by": "; ".join(item.needed_by),
                }
            )
            for item in plan.kept[:_SHOWN_SNAPSHOTS]
        ]
        found["iceberg/kept_snapshots"] = len(plan.kept)
        found["iceberg/kept"] = dg.MetadataValue.table(kept, _KEPT)
    if maintained.done:
        done = [
            dg.TableRecord(
                {
                    "action": item.action,
                    "outcome": item.outcome,
                    "seconds": item.seconds,
                    "files": f"{item.before.files:,} → {item.after.files:,}",
                    "bytes": f"{item.before.bytes:,} → {item.after.bytes:,}",
                    "snapshots": f"{item.before.snapshots:,} → {item.after.snapshots:,}",
                    "new_snapshots": ", ".join(map(str, item.new_snapshots)),
                }
            )
            for item in maintained.done
        ]
        found["iceberg/done"] = dg.MetadataValue.table(done, _ACTIONS)
    if maintained.before is not None:
        before = maintained.before.figures()
        after = before if maintained.after is None else maintained.after.figures()
        rows = [
            dg.TableRecord({"figure": name, "before": _number(before[name]), "after": _number(after[name])})
            for name in before
        ]
        found["iceberg/figures"] = dg.MetadataValue.table(rows, _FIGURES)
    return found


def _listed(lines: list[str]) -> str:
    return "\n".join(f"- {line}" for line in lines) or "Nothing is due."


def _number(value: float | None) -> float:
    return float(value or 0)
