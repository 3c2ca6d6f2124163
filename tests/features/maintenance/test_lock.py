"""Whether the process that holds the lock of a table has ended.

docs/maintenance.md: What is done, and when
"""

import socket
import subprocess
import sys

from dagster_iceberg_spark.features.maintenance.table_maintenance import has_process_ended, is_process, process_name


def test_a_process_of_this_host_is_known_to_run_or_to_have_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        pass
    own = process_name()
    ended = own.rpartition("-")[0] + f"-{child.pid}"
    assert [is_process(name) for name in (own, ended, "5d0f3c1e-8a41")] == [True, True, False]
    assert [has_process_ended(name) for name in (own, ended)] == [False, True]


def test_nobody_knows_of_a_process_elsewhere() -> None:
    assert not has_process_ended("cli-elsewhere-1")
    assert not has_process_ended(f"cli-{socket.gethostname()}-not a number")
