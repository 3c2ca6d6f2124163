"""Faults of a write, as they happen in production: a process that dies, an answer that is lost, a conflict.

A fault strikes the first write of each table in its block. It replaces the write of both engines for that time.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from dagster_iceberg_spark.errors import CommitConflictError, CommitOutcomeUnknownError
from dagster_iceberg_spark.table.snapshot import RowCounts
from dagster_iceberg_spark.versions import installed_pyspark


class ProcessDied(BaseException):
    """Stands for the death of a process, so no code handles it."""


@dataclass
class Fault:
    """A fault while its block lasts.

    Args:
        strikes: What happens in place of a write of an engine.
        times: How often it strikes each table.
    """

    strikes: Callable[[Any, Callable[[], RowCounts]], RowCounts]
    times: int = 1
    struck: dict[tuple[str, ...], int] = field(default_factory=dict)

    @contextmanager
    def in_engines(self) -> Iterator[None]:
        """Replace the writes of the engines inside the block."""
        with ExitStack() as patches:
            for kind in _engines():
                patches.enter_context(mock.patch.object(kind, "write", self._instead_of(kind.write)))
            yield

    def _instead_of(self, genuine: Any) -> Any:
        def write(engine: Any, plan: Any, names: Any) -> RowCounts:
            table = plan.identifier.parts
            if self.struck.get(table, 0) >= self.times:
                return genuine(engine, plan, names)  # type: ignore[no-any-return]
            self.struck[table] = self.struck.get(table, 0) + 1
            return self.strikes(engine, lambda: genuine(engine, plan, names))

        return write


def _engines() -> tuple[Any, ...]:
    from dagster_iceberg_spark.arrow.write.engine import ArrowEngine

    if installed_pyspark() is None:
        return (ArrowEngine,)
    from dagster_iceberg_spark.spark.write.engine import SparkEngine

    return (ArrowEngine, SparkEngine)


def _is_arrow(engine: Any) -> bool:
    return isinstance(engine, _engines()[0])


def death_after_commit() -> Fault:
    """Return the fault that the process dies after the commit, before Dagster knows of the commit."""

    def strikes(_: Any, write: Callable[[], RowCounts]) -> RowCounts:
        write()
        raise ProcessDied

    return Fault(strikes)


def lost_answer() -> Fault:
    """Return the fault that the catalog commits, and its answer does not arrive."""

    def strikes(engine: Any, write: Callable[[], RowCounts]) -> RowCounts:
        write()
        if _is_arrow(engine):
            raise CommitOutcomeUnknownError.refusing(
                "write", engine.request.subject, expected="an answer to the commit", found="none"
            )
        from dagster_iceberg_spark.features.testing.spark import CommitStateUnknownException

        raise CommitStateUnknownException("the answer of the catalog was lost")

    return Fault(strikes)


def conflict(times: int) -> Fault:
    """Return the fault that other writers commit first, this often."""

    def strikes(engine: Any, _: Callable[[], RowCounts]) -> RowCounts:
        if _is_arrow(engine):
            raise CommitConflictError.to_plan_again(
                "write", engine.request.identifier, expected="no other commit", found="one of another writer"
            )
        from dagster_iceberg_spark.features.testing.spark import CommitFailedException

        raise CommitFailedException("another writer has committed")

    return Fault(strikes, times)
