"""The seam of the core: observers of writes, reads and moves of `main`, such as metrics and mirrors.

An observer cannot change a write. What it reports becomes metadata of the materialization.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import dagster as dg

from dagster_iceberg_spark.assets.engines import Written
from dagster_iceberg_spark.catalog.description import CatalogDescription, first_line
from dagster_iceberg_spark.plan.write.write_request import WriteRequest
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.snapshot import Commit


@dataclass(frozen=True, slots=True)
class ObservedTable:
    """The table of an asset.

    Args:
        metadata: The metadata of the asset's definition.
        subject: The asset or the table, for messages.
    """

    catalog: CatalogDescription
    identifier: TableIdentifier
    metadata: Mapping[str, Any]
    subject: str

    @property
    def name(self) -> str:
        """The name of the table, with its catalog."""
        return f"{self.catalog.name}.{self.identifier}"


@dataclass(frozen=True, slots=True)
class ObservedWrite:
    """A write that has committed."""

    context: dg.OutputContext
    table: ObservedTable
    request: WriteRequest
    written: Written

    @property
    def commit(self) -> Commit:
        """The commit of the rows."""
        return self.written.commit


class Observer:
    """Observes the tables of an IO manager. Each method is called for one table, and does nothing by default."""

    action: ClassVar[str] = "observe the write"
    """What it does after a write, for messages."""

    def planned(self, table: ObservedTable) -> None:
        """Refuse a table whose metadata asks for what the observer cannot do, before anything is written.

        Raises:
            ConfigurationError: The metadata or the configuration of the observer is wrong.
        """

    def wrote(self, write: ObservedWrite) -> Mapping[str, Any]:  # noqa: ARG002
        """Return what to add to the metadata of a materialization, whose rows are committed."""
        return {}

    def failed(self, table: ObservedTable, error: BaseException) -> None:
        """Take note of a write that has failed."""

    def moved(
        self,
        table: ObservedTable,  # noqa: ARG002
        *,
        report: Callable[[str], None],  # noqa: ARG002
        warn: Callable[[str], None],  # noqa: ARG002
    ) -> Mapping[str, Any]:
        """Follow the head of `main`, which has moved. Return what was done, for the metadata of a materialization.

        Args:
            table: The table.
            report: Called with a sentence about what was done.
            warn: Called with a sentence about a failure.

        Raises:
            IcebergSparkError: The observer failed, and is configured to fail the step. `main` stays as it is.
        """
        return {}

    def needed(self, table: ObservedTable) -> Mapping[int, str]:  # noqa: ARG002
        """Return the snapshots whose files the observer still needs, each with what needs it.

        Raises:
            IcebergSparkError: They cannot be determined. The message names what needs them.
        """
        return {}

    def read(self, table: ObservedTable, *, planning_seconds: float) -> None:
        """Take note of a scan of an input, and how long it took to plan."""

    def flush(self) -> None:
        """Export what was noted. Called at the end of a process's work."""


def report_write(observers: Sequence[Observer], write: ObservedWrite) -> dict[str, Any]:
    """Tell the observers of a write. Return what they report, by the keys of metadata.

    A failure is logged. It does not cost the run what it has committed.
    """
    reported = dict[str, Any]()
    for observer in observers:
        try:
            reported |= observer.wrote(write)
        except Exception as error:  # noqa: BLE001 - the rows are committed
            found = write.table.catalog.redact(first_line(error))
            write.context.log.warning(f"Cannot {observer.action}: {found}")
    return reported
