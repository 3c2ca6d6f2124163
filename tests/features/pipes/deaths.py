"""Kills the process at a named point, as `kill -9` does. Environment variables name the point of each side."""

import importlib
import os
import signal
from typing import Any, Final

_PACKAGE: Final = "dagster_iceberg_spark"
JOB_POINTS: Final = {
    "features.pipes.job_side:read_document:before": False,
    "features.pipes.job_side:commit_output:before": False,
    "catalog.data_commit:commit_table:before": False,
    "catalog.data_commit:commit_table:after": False,  # to the staged branch
    "commit.staged_write:publish:before": False,
    "commit.staged_write:publish:after": True,
    "features.pipes.extras:JobReport.of:before": True,
}
"""The points of a job that appends, and whether its snapshot is published there."""
LOCATION_POINTS: Final = (
    "features.pipes.launch:look:after",
    "features.pipes.reattachment:_handle_of:before",
    "features.pipes.reattachment:LaunchedJobs.record:after",
    "features.pipes.launch:reports_in:before",
    "commit.elsewhere:materialize:before",
    "commit.elsewhere:materialize:after",
    "assets.table_io_manager:report_commit:before",
)


def die_at(point: str | None) -> None:
    """Let the process die when it comes to the point, which names a module, a function, and before or after."""
    if not point:
        return
    module, name, when = point.split(":")
    owner: Any = importlib.import_module(f"{_PACKAGE}.{module}")
    *classes, function = name.split(".")
    for each in classes:
        owner = getattr(owner, each)
    genuine = getattr(owner, function)

    def dies(*args: Any, **kwargs: Any) -> Any:
        if when == "after":
            genuine(*args, **kwargs)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, function, dies)
