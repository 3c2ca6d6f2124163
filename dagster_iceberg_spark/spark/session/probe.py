"""Probes a session: its versions, and a temporary table."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from dagster_iceberg_spark.catalog.damage import lone_creation
from dagster_iceberg_spark.distribution import PACKAGE_VERSION
from dagster_iceberg_spark.failure_kinds import FailureKind
from dagster_iceberg_spark.plan.options.output_options import WriteOptions
from dagster_iceberg_spark.plan.write.write_request import RetryLimits, TableRequest, WriteRequest
from dagster_iceberg_spark.spark import sql
from dagster_iceberg_spark.spark.failures import ENGINE_ERRORS, inspect_failure, kind_of, translating
from dagster_iceberg_spark.spark.session.runtime import is_connect
from dagster_iceberg_spark.spark.session.session import IcebergSession
from dagster_iceberg_spark.spark.write.engine import commit_frame
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.lineage import Materialization
from dagster_iceberg_spark.table.scope import PartitionScope
from dagster_iceberg_spark.table.sql_text import table_name


def versions(session: IcebergSession) -> str:
    """Return the versions that the session runs on, and where it runs, in one line."""
    spark: Any = session.spark
    with translating(session.catalog, action="ask", subject=str(session.catalog)):
        [[iceberg, java, scala]] = spark.sql(sql.versions(session.catalog.name)).collect()
        place = "on a Spark Connect server" if is_connect(spark) else f"with the master {spark.sparkContext.master}"
        scala = scala.removeprefix("version ")
        return f"Spark {spark.version} {place}, Iceberg {iceberg}, Java {java}, Scala {scala}"


def has_namespace(session: IcebergSession, namespace: Sequence[str]) -> bool:
    """Return whether the catalog has the namespace."""
    with translating(session.catalog, action="look for the namespace", subject=".".join(namespace)):
        try:
            session.spark.sql(sql.describe_namespace(session.catalog.name, namespace)).collect()
        except ENGINE_ERRORS as error:
            if kind_of(inspect_failure(error)) is FailureKind.NAMESPACE_MISSING:
                return False
            raise
    return True


def create_namespace(session: IcebergSession, namespace: Sequence[str]) -> None:
    """Create the namespace if it does not exist."""
    with (
        lone_creation(session.catalog, namespace),
        translating(session.catalog, action="create the namespace", subject=".".join(namespace)),
    ):
        session.spark.sql(sql.create_namespace(session.catalog.name, namespace)).collect()


def drop_namespace(session: IcebergSession, namespace: Sequence[str]) -> None:
    """Drop the namespace, which must be empty."""
    with translating(session.catalog, action="drop the namespace", subject=".".join(namespace)):
        session.spark.sql(sql.drop_namespace(session.catalog.name, namespace)).collect()


def write_rows(session: IcebergSession, identifier: TableIdentifier, *, rows: int, token: str) -> str:
    """Replace the table's rows, as a materialization does, or create the table. Return the table's location."""
    request = WriteRequest(
        table=TableRequest(identifier, asset_key=None, is_named_explicitly=True, options=WriteOptions()),
        materialization=Materialization(
            asset_key=identifier.name,
            run_id=token,
            job=None,
            step_key=None,
            scope=PartitionScope(),
            code_version=None,
            upstream=(),
            write_disposition="replace",
            commit_token=token,
            package_version=PACKAGE_VERSION,
        ),
        candidates=(),
        record_of=lambda _: "none",
        limits=RetryLimits(attempts=2, seconds=60.0),
        report=lambda _: None,
        announce=lambda _: None,
        earlier_attempts=tuple,
    )
    return commit_frame(session, request, session.spark.range(rows)).location


def count_rows(session: IcebergSession, identifier: TableIdentifier) -> int:
    """Return the number of rows that Spark reads."""
    with translating(session.catalog, action="read", subject=str(identifier)):
        return int(session.spark.table(table_name(session.catalog.name, identifier)).count())


def drop_table(session: IcebergSession, identifier: TableIdentifier) -> None:
    """Drop the table, and its files if the catalog deletes files."""
    name = session.catalog.name
    with suppress(*ENGINE_ERRORS):  # some catalogs, such as Nessie, do not delete files
        session.spark.sql(sql.drop_table(name, identifier, files="deleted")).collect()
    with translating(session.catalog, action="drop", subject=str(identifier)):
        session.spark.sql(sql.drop_table(name, identifier, files="kept")).collect()
