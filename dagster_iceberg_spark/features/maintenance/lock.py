"""The lock of a table that is maintained: a tag, so that only one run at a time maintains the table.

It is held by a run of Dagster, or by a process of the command line.
"""

import os
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dagster_iceberg_spark.table.snapshot import DAY_MS, TableState

_NAME: Final = re.compile(r"dagster_maintenance_(?P<at_ms>\d+)_(?P<run>.+)")
_LONGEST_MS: Final = DAY_MS
"""A lock that is older was left behind by a process that died."""


@dataclass(frozen=True, slots=True)
class MaintenanceLock:
    """A lock.

    Args:
        run_id: The run that holds it.
        taken_at_ms: When it was taken, in milliseconds since 1970.
    """

    run_id: str
    taken_at_ms: int

    @property
    def tag(self) -> str:
        """The name of the tag."""
        return f"dagster_maintenance_{self.taken_at_ms}_{self.run_id}"


def locks_in(state: TableState) -> list[MaintenanceLock]:
    """Return the locks of a table."""
    found = [match for ref in sorted(state.refs) if (match := _NAME.fullmatch(ref)) is not None]
    return [MaintenanceLock(match["run"], int(match["at_ms"])) for match in found]


def is_abandoned(lock: MaintenanceLock, now_ms: int, has_ended: Callable[[str], bool]) -> bool:
    """Return whether the process that took the lock is gone: its run has ended, or a day has passed."""
    return now_ms - lock.taken_at_ms > _LONGEST_MS or has_ended(lock.run_id)


_CLI: Final = "cli"


def process_name() -> str:
    """Return the name under which this process takes locks outside of Dagster: the host and the process id."""
    return f"{_CLI}-{socket.gethostname()}-{os.getpid()}"


def is_process(name: str) -> bool:
    """Return whether a lock was taken by a process outside of Dagster."""
    return name.startswith(f"{_CLI}-")


def has_process_ended(name: str) -> bool:
    """Return whether a process has ended. Those of other hosts are not known to have."""
    host, _, number = name.removeprefix(f"{_CLI}-").rpartition("-")
    if host != socket.gethostname() or not number.isdecimal():
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except OSError:  # another writer's process
        return False
    return False
