"""Who holds the lock of a table: a run of Dagster, or a process of the command line."""

import os
import socket
from typing import Final

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
    except OSError:  # somebody else's process
        return False
    return False
