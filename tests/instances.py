"""Dagster instances for tests."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import dagster as dg

_IN_MEMORY: Final = {
    "event_log_storage": {"module": "dagster._core.storage.event_log", "class": "InMemoryEventLogStorage"},
    # The default manager starts two processes for each step.
    "compute_logs": {"module": "dagster._core.storage.noop_compute_log_manager", "class": "NoOpComputeLogManager"},
}


def local_instance(directory: Path) -> AbstractContextManager[dg.DagsterInstance]:
    """Return a persistent instance, so that runs can be resumed. Its events are in memory, which is faster."""
    return dg.DagsterInstance.local_temp(str(directory), overrides=_IN_MEMORY)
