"""Which snapshots a step has loaded, so that what it writes can say what it was made of.

A step's inputs are loaded, and its outputs handled, in one process. Entries are kept for as many steps as a process
may have under way, the oldest going first; loading an input again, as a retried step does, replaces its entry.
"""

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from dagster_iceberg_spark.table.lineage import UpstreamRead

_MAXIMUM_STEPS: Final = 256


@dataclass(slots=True)
class _StepReads:
    by_input: dict[str, UpstreamRead] = field(default_factory=dict)


class Ledger:
    """The reads of the process's steps."""

    def __init__(self) -> None:
        """Start with no reads."""
        self._steps: OrderedDict[tuple[str, str], _StepReads] = OrderedDict()
        self._lock = threading.Lock()

    def record(self, run_id: str, step_key: str, input_name: str, read: UpstreamRead) -> None:
        """Remember that the step read it.

        Args:
            run_id: The run.
            step_key: The step.
            input_name: The input, with what tells apart several loads of it.
            read: What was read.
        """
        with self._lock:
            step = self._steps.setdefault((run_id, step_key), _StepReads())
            step.by_input[input_name] = read
            self._steps.move_to_end((run_id, step_key))
            while len(self._steps) > _MAXIMUM_STEPS:
                self._steps.popitem(last=False)

    def reads_of(self, run_id: str, step_key: str) -> tuple[UpstreamRead, ...]:
        """Return what the step has read, in the order of its inputs' names."""
        with self._lock:
            step = self._steps.get((run_id, step_key))
            return () if step is None else tuple(read for _, read in sorted(step.by_input.items()))


LEDGER: Final = Ledger()
"""The process's ledger."""
