"""What a session can say of itself, and a table that is made to be dropped."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from dagster_iceberg_spark.catalog.damage import lone_creation
from dagster_iceberg_spark.distribution import PACKAGE_VERSION
from dagster_iceberg_spark.failure_kinds import FailureKind
from dagster_iceberg_spark.plan.adoption import Record
from dagster_iceberg_spark.plan.options import WriteOptions
from dagster_iceberg_spark.plan.table_request import TableRequest
from dagster_iceberg_spark.plan.write_request import RetryLimits, WriteRequest
from dagster_iceberg_spark.spark import sql
from dagster_iceberg_spark.spark.columns import is_connect
from dagster_iceberg_spark.spark.commit import materialize
from dagster_iceberg_spark.spark.engine_failure import ENGINE_ERRORS, inspect_failure
from dagster_iceberg_spark.spark.failures import kind_of, translated
from dagster_iceberg_spark.spark.session import IcebergSession
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.lineage import Materialization
from dagster_iceberg_spark.table.scope import PartitionScope

_LIMITS: Final = RetryLimits(attempts=2, seconds=60.0)


@dataclass(frozen=True, slots=True)
class Versions:
    """What a session runs on.

    Args:
        spark: Spark's version.
        iceberg: The version of Iceberg's runtime.
        java: The version of the driver's or the server's Java.
        scala: The version of its Scala.
        place: Where it runs, in words.
    """

    spark: str
    iceberg: str
    java: str
    scala: str
    place: str

    def __str__(self) -> str:
        """Return them in one line."""
        return (
            f"Spark {self.spark} {self.place}, Iceberg {self.iceberg}, Java {self.java}, "
            f"Scala {self.scala.removeprefix('version ')}"
        )


def versions(session: IcebergSession) -> Versions:
    """Return what the session runs on.

    Raises:
        IcebergSparkError: The session does not answer, or lacks Iceberg's procedures.
    """
    spark: Any = session.spark
    with _translated_errors(session, "ask", str(session.catalog)):
        [row] = spark.sql(sql.versions(session.catalog.name)).collect()
        place = "on a Spark Connect server" if is_connect(spark) else f"with the master {spark.sparkContext.master}"
        return Versions(spark.version, row[0], row[1], row[2], place)


def has_namespace(session: IcebergSession, namespace: Sequence[str]) -> bool:
    """Say whether the catalog has the namespace.

    Raises:
        IcebergSparkError: The catalog does not answer.
    """
    with _translated_errors(session, "look for the namespace", ".".join(namespace)):
        try:
            session.spark.sql(sql.describe_namespace(session.catalog.name, namespace)).collect()
        except ENGINE_ERRORS as error:
            if kind_of(inspect_failure(error)) is FailureKind.NAMESPACE_MISSING:
                return False
            raise
    return True


def create_namespace(session: IcebergSession, namespace: Sequence[str]) -> None:
    """Create the namespace, which may be there.

    Raises:
        IcebergSparkError: It cannot be created.
    """
    with (
        lone_creation(session.catalog, namespace),
        _translated_errors(session, "create the namespace", ".".join(namespace)),
    ):
        session.spark.sql(sql.create_namespace(session.catalog.name, namespace)).collect()


def drop_namespace(session: IcebergSession, namespace: Sequence[str]) -> None:
    """Drop the namespace, which has to be empty.

    Raises:
        IcebergSparkError: It cannot be dropped.
    """
    with _translated_errors(session, "drop the namespace", ".".join(namespace)):
        session.spark.sql(sql.drop_namespace(session.catalog.name, namespace)).collect()


def write_rows(session: IcebergSession, identifier: TableIdentifier, *, rows: int, token: str) -> str:
    """Replace the table's rows by so many, as a materialization does; return the table's location.

    It is created if it is not there.

    Args:
        session: The session.
        identifier: The table.
        rows: How many.
        token: The commit token.

    Raises:
        IcebergSparkError: It cannot be written.
    """
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
        record_of=_nothing_recorded,
        limits=_LIMITS,
        report=lambda _: None,
        announce=lambda _: None,
        earlier_attempts=tuple,
    )
    return materialize(session, request, session.spark.range(rows)).location


def _nothing_recorded(_snapshot_id: int) -> Record:
    return "none"


def count_rows(session: IcebergSession, identifier: TableIdentifier) -> int:
    """Return how many rows Spark reads.

    Raises:
        IcebergSparkError: The table cannot be read.
    """
    with _translated_errors(session, "read", str(identifier)):
        return int(session.spark.table(sql.table_name(session.catalog.name, identifier)).count())


def drop_table(session: IcebergSession, identifier: TableIdentifier) -> None:
    """Drop the table, with its files where the catalog deletes any.

    Raises:
        IcebergSparkError: It cannot be dropped.
    """
    name = session.catalog.name
    with suppress(*ENGINE_ERRORS):  # some catalogs, such as Nessie, refuse to delete files
        session.spark.sql(sql.drop_table(name, identifier, files="deleted")).collect()
    with _translated_errors(session, "drop", str(identifier)):
        session.spark.sql(sql.drop_table(name, identifier, files="kept")).collect()


@contextmanager
def _translated_errors(session: IcebergSession, action: str, subject: str) -> Iterator[None]:
    try:
        yield
    except ENGINE_ERRORS as error:
        raise translated(error, action=action, subject=subject, redact=session.catalog.redact) from error
