"""The package's own tables: what maintenance remembers of the tables of a namespace."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame

from dagster_iceberg_spark.catalog.look import look
from dagster_iceberg_spark.plan.write import CREATION_PROPERTIES
from dagster_iceberg_spark.spark import sql
from dagster_iceberg_spark.spark.columns import functions_of
from dagster_iceberg_spark.spark.session import IcebergSession
from dagster_iceberg_spark.spark.tables import refresh
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.snapshot import DAY_MS, TableState

TABLE_UUID: Final = "table_uuid"
_MANY_SNAPSHOTS: Final = 100


@dataclass(frozen=True, slots=True)
class OwnTable:
    """A table of the package, in the namespace of the tables that its rows are about, and partitioned by these.

    Args:
        columns: The columns in Spark's notation. `table_uuid` is among them.
    """

    name: str
    columns: str

    def beside(self, state: TableState) -> TableIdentifier:
        """Return the table in the namespace of another one."""
        return TableIdentifier(state.identifier.namespace, self.name)


def rows_about(session: IcebergSession, own: OwnTable, state: TableState) -> DataFrame | None:
    """Return the rows about a table, or None if the package's table does not exist yet."""
    if look(session.catalog, own.beside(state)) is None:
        return None
    refresh(session, own.beside(state))
    column = functions_of(session.spark).col(TABLE_UUID)
    return session.spark.table(_name(session, own, state)).where(column == state.uuid)


def replace_rows(
    session: IcebergSession,
    own: OwnTable,
    state: TableState,
    rows: Sequence[tuple[Any, ...]],
    kept: DataFrame | None = None,
) -> None:
    """Replace the rows about a table by these, and by some that are kept. The first ones create the package's table."""
    name = _name(session, own, state)
    statement = sql.create_own_table(
        session.catalog.name, own.beside(state), own.columns, TABLE_UUID, CREATION_PROPERTIES
    )
    session.spark.sql(statement)
    frame: DataFrame = session.spark.createDataFrame(list(rows), own.columns)
    every = frame if kept is None else kept.unionByName(frame)
    column = functions_of(session.spark).col(TABLE_UUID)
    every.coalesce(1).writeTo(name).overwrite(column == state.uuid)
    _expire(session, own.beside(state))


def _expire(session: IcebergSession, identifier: TableIdentifier) -> None:
    state = look(session.catalog, identifier)
    if state is not None and len(state.snapshots) > _MANY_SNAPSHOTS:
        yesterday = sql.instant(int(time.time() * 1000) - DAY_MS)
        session.spark.sql(sql.call(session.catalog.name, "expire_snapshots", identifier, older_than=yesterday))


def _name(session: IcebergSession, own: OwnTable, state: TableState) -> str:
    return sql.table_name(session.catalog.name, own.beside(state))
