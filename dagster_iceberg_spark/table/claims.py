"""Claims, by which runs of a table know of each other.

A claim is a tag whose name has the run and the time. A run that sees no other claim sets its own, and looks again. Of
two runs that claim the same at once, each sees the other's claim then, or only the first one continues.
"""

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from dagster_iceberg_spark.table.scope import PartitionScope
from dagster_iceberg_spark.table.snapshot import DAY_MS, TableState
from dagster_iceberg_spark.table.updates import SetTag, tag_days

MAINTENANCE: Final = "maintenance"
_SEVERAL: Final = "several"
_DIGITS: Final = 8
_NAME: Final = re.compile(
    rf"dagster_(?P<what>{MAINTENANCE}|write_[0-9a-f]{{{_DIGITS}}}_(?:{_SEVERAL}|[0-9a-f]{{{_DIGITS}}}))"
    r"_(?P<at_ms>\d+)_(?P<run>.+)"
)
_LONGEST_MS: Final = DAY_MS
"""A claim that is older was left behind by a process that died."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim.

    Args:
        what: What is claimed: the maintenance of the table, or the rows of an asset (`written_rows`).
        run_id: The run that has claimed it.
        taken_at_ms: When, in milliseconds since 1970.
    """

    what: str
    run_id: str
    taken_at_ms: int

    @property
    def tag(self) -> str:
        """The name of the tag."""
        return f"dagster_{self.what}_{self.taken_at_ms}_{self.run_id}"

    def update(self, state: TableState, snapshot_id: int) -> SetTag:
        """Return the update that sets the tag at a snapshot. The tag expires after a day."""
        age_ms = self.taken_at_ms - state.snapshots[snapshot_id].committed_at_ms
        return SetTag(self.tag, snapshot_id, tag_days(age_ms, _LONGEST_MS))

    def overlaps(self, other: "Claim") -> bool:
        """Return whether two claims may be to the same rows. Several partitions overlap all others of their asset."""
        (rows, _, part), (others, _, of_other) = self.what.rpartition("_"), other.what.rpartition("_")
        return rows == others and (part == of_other or _SEVERAL in (part, of_other))

    def others_in(self, state: TableState, *, but: Sequence["Claim"] = ()) -> list["Claim"]:
        """Return the other claims in a table that overlap this one, but for some."""
        found = [match for ref in sorted(state.refs) if (match := _NAME.fullmatch(ref)) is not None]
        claims = (Claim(match["what"], match["run"], int(match["at_ms"])) for match in found)
        return [claim for claim in claims if claim.overlaps(self) and claim not in (self, *but)]

    def rivals_in(self, state: TableState, has_ended: Callable[[str], bool]) -> tuple[list["Claim"], list["Claim"]]:
        """Return the other claims that count, and those that were left behind, when this one is taken.

        A claim was left behind if its run has ended, or if a day has passed.
        """
        others, now_ms = self.others_in(state), self.taken_at_ms
        left = [claim for claim in others if now_ms - claim.taken_at_ms > _LONGEST_MS or has_ended(claim.run_id)]
        return [claim for claim in others if claim not in left], left


def written_rows(asset: str, branch: str, scope: PartitionScope) -> str:
    """Return what a write claims: the rows of an asset's partition, or of several, on a branch."""
    rows = hashlib.sha256(json.dumps([asset, branch]).encode()).hexdigest()[:_DIGITS]
    is_one = not scope.is_whole_table and len(scope.keys) == 1
    return f"write_{rows}_{scope.digest[:_DIGITS] if is_one else _SEVERAL}"
