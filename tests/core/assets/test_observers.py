"""Observers cannot change a write."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import dagster as dg

from dagster_iceberg_spark import SqlCatalog
from dagster_iceberg_spark.assets.observers import ObservedTable, ObservedWrite, Observer, report_write
from dagster_iceberg_spark.assets.table_io_manager import TableIOManager
from dagster_iceberg_spark.table.identifier import TableIdentifier

CATALOG = SqlCatalog(uri="postgresql://me:hushhush@db/lake", warehouse="/w").describe()
TABLE = ObservedTable(CATALOG, TableIdentifier(("db",), "t"), {}, "t")


class Broken(Observer):
    action = "count sheep"

    def wrote(self, write: ObservedWrite) -> Mapping[str, Any]:
        raise ValueError("hushhush\nmore")


class Counting(Observer):
    def wrote(self, write: ObservedWrite) -> Mapping[str, Any]:
        return {"iceberg/sheep": 3}


def test_the_failure_of_an_observer_costs_nothing_but_its_report() -> None:
    lines: list[str] = []
    context: Any = SimpleNamespace(log=SimpleNamespace(warning=lines.append))
    nothing: Any = None
    write = ObservedWrite(context, TABLE, nothing, nothing)
    assert report_write([Broken(), Counting()], write) == {"iceberg/sheep": 3}
    assert lines == ["Cannot count sheep: ********"]


def test_an_io_manager_without_features_has_no_observers() -> None:
    io_manager = TableIOManager()
    assert io_manager.observers() == ()
    assert io_manager.moved(TABLE, report=print, warn=print) == {}


def test_an_observer_does_nothing_by_default() -> None:
    observer = Observer()
    observer.planned(TABLE)
    observer.failed(TABLE, dg.Failure())
    observer.read(TABLE, planning_seconds=0.1)
    observer.flush()
    assert (observer.moved(TABLE, report=print, warn=print), observer.needed(TABLE)) == ({}, {})
