"""The snapshots that each step has read, for the lineage of the snapshots that it writes.

One process loads a step's inputs and handles its outputs. The ledger keeps the most recent steps, up to a maximum that
exceeds the number of steps that a process runs at a time. If a step loads an input again, as in a retry, the new read
replaces the old one.
"""

import threading
from collections import OrderedDict
from typing import Final

from dagster_iceberg_spark.table.lineage import UpstreamRead

_MAXIMUM_STEPS: Final = 256


class Ledger:
    """The reads of the process's steps."""

    def __init__(self) -> None:
        """Start with no reads."""
        self._steps: OrderedDict[tuple[str, str], dict[str, UpstreamRead]] = OrderedDict()
        self._lock = threading.Lock()

    def record(self, run_id: str, step_key: str, input_name: str, read: UpstreamRead) -> None:
        """Record a read of a step, under a name that is unique among the reads of the step."""
        with self._lock:
            self._steps.setdefault((run_id, step_key), {})[input_name] = read
            self._steps.move_to_end((run_id, step_key))
            while len(self._steps) > _MAXIMUM_STEPS:
                self._steps.popitem(last=False)

    def reads_of(self, run_id: str, step_key: str) -> tuple[UpstreamRead, ...]:
        """Return the reads of the step, ordered by the names of its inputs."""
        with self._lock:
            return tuple(read for _, read in sorted(self._steps.get((run_id, step_key), {}).items()))


LEDGER: Final = Ledger()
"""The ledger of the process."""
