"""Dagster instances for tests."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import dagster as dg

_UNCAPTURED: Final = {
    # The default manager starts two processes for each step, and redirects the output of the whole process.
    "compute_logs": {"module": "dagster._core.storage.noop_compute_log_manager", "class": "NoOpComputeLogManager"}
}
_IN_MEMORY: Final = {
    **_UNCAPTURED,
    "event_log_storage": {"module": "dagster._core.storage.event_log", "class": "InMemoryEventLogStorage"},
}


def local_instance(directory: Path) -> AbstractContextManager[dg.DagsterInstance]:
    """Return a persistent instance, so that runs can be resumed. Its events are in memory, which is faster."""
    return dg.DagsterInstance.local_temp(str(directory), overrides=_IN_MEMORY)


def shared_instance(directory: Path) -> AbstractContextManager[dg.DagsterInstance]:
    """Return a persistent instance for runs in several threads of the process."""
    return dg.DagsterInstance.local_temp(str(directory), overrides=_UNCAPTURED)
