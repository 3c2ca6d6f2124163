"""Mirrors a table, and is killed at a point: python -m tests.features.mirror.killed DIRECTORY KIND MODE POINT."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from dagster_iceberg_spark.features.mirror import creation, synchronization
from dagster_iceberg_spark.features.mirror import ducklake_commit as commit
from dagster_iceberg_spark.features.mirror.database import Database
from tests.features.mirror.conftest import lake_in

POINTS: Final = ("ducklake created", "before the transaction", "in the transaction", "before its end", "after it")


def die(*_: Any, **__: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def before(function: Callable[..., Any]) -> Callable[..., Any]:
    def dies(*args: Any, **kwargs: Any) -> Any:
        del args, kwargs
        return die()

    del function
    return dies


def after(function: Callable[..., Any]) -> Callable[..., Any]:
    def dies(*args: Any, **kwargs: Any) -> Any:
        function(*args, **kwargs)
        return die()

    return dies


def main(directory: str, kind: str, mode: Any, point: str) -> None:
    patched: Any
    if point == "ducklake created":
        creation._create = after(creation._create)
    elif point == "before the transaction":
        vars(synchronization)["commit_change"] = before(commit.commit_change)
    elif point == "in the transaction":
        commit._Commit._tag = before(commit._Commit._tag)  # type: ignore[method-assign]
    elif point == "before its end":
        patched = Database.execute

        def execute(self: Database, sql: str, *parameters: Any) -> None:
            if sql == "COMMIT":
                die()
            patched(self, sql, *parameters)

        Database.execute = execute  # type: ignore[method-assign]
    else:
        vars(synchronization)["commit_change"] = after(commit.commit_change)
    lake_in(Path(directory), kind=kind).synchronize("t", mode)


if __name__ == "__main__":
    main(*sys.argv[1:])
