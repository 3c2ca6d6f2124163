"""Spark 4.1."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, DataFrameWriterV2, Observation, SparkSession, types

from dagster_iceberg_spark.spark.session.runtime import is_connect, loses_executors
from dagster_iceberg_spark.table.predicate import Predicate

SNAPSHOT_PROPERTY = "spark.sql.iceberg.snapshot-property."


class MergeWriter(Protocol):
    """Spark's `MergeIntoWriter`."""

    def whenMatched(self, condition: Column | None = None) -> Any:  # noqa: N802 - Spark's name
        """Begin a clause for rows that match."""

    def whenNotMatched(self, condition: Column | None = None) -> Any:  # noqa: N802 - Spark's name
        """Begin a clause for rows of the source that match none."""

    def merge(self) -> None:
        """Run the MERGE."""


class Spark41:
    """What Spark 4.1 does. Older versions override it."""

    name = "4.1"
    counts_merged_rows = True
    """Whether a MERGE's snapshot has the numbers of rows that it inserted, updated and deleted."""
    alters_columns_together = True
    """Whether one ALTER TABLE statement alters several columns."""
    has_siblings_on_connect = True
    """Whether a session of Spark Connect has siblings."""

    # Sessions

    def sibling(self, session: Any) -> Any:
        """Return a new session with the same configuration and the same global views."""
        if not is_connect(session):
            return session.newSession()
        sibling = session.cloneSession()
        sibling.release_session_on_close = True  # pyspark 4.1 does not set it in the clone, and `stop` reads it
        return sibling

    def configuration(self, session: Any) -> dict[str, str]:
        """Return the whole configuration of the session."""
        return dict(session.conf.getAll)

    @contextmanager
    def without_retries(self, session: Any) -> Iterator[None]:
        """Disable the retries of a Spark Connect session while the block runs."""
        policies = session.client.get_retry_policies()
        session.client.set_retry_policies(())
        try:
            yield
        finally:
            session.client.set_retry_policies(policies)

    def never_retry(self, session: Any) -> None:
        """Disable the retries of a Spark Connect session."""
        session.client.set_retry_policies(())

    def release(self, session: Any) -> None:
        """End the session on its Spark Connect server, with a single request."""
        session.client.release_session()

    @contextmanager
    def progress(self, session: Any, handler: Callable[..., None]) -> Iterator[None]:
        """Call the handler with the progress of a Spark Connect session's operations while the block runs."""
        session.registerProgressHandler(handler)
        try:
            yield
        finally:
            session.removeProgressHandler(handler)

    def require_local_server(self) -> None:
        """Reject `remote="local"` if the server does not check tokens."""

    # Writes

    def require_supported(self, session: Any, subject: str, *, merges: bool, mixes_specs: bool) -> None:
        """Reject a write that the session cannot carry out with all promises, before anything is written.

        `mixes_specs` says whether it replaces partitions by the rows' own, in files of several partition specs.
        """

    def overwrite(
        self,
        session: Any,  # noqa: ARG002 - older versions ask for it
        writer: DataFrameWriterV2,
        rows: Column,
        *,
        is_by_partition: bool,  # noqa: ARG002
    ) -> None:
        """Replace the rows that the filter matches."""
        writer.overwrite(rows)

    # Queries

    def query(self, session: Any, text: str, frames: Mapping[str, DataFrame]) -> DataFrame:
        """Return the result of a query. A name in braces stands for a DataFrame, two braces for one."""
        return session.sql(text, **frames)  # type: ignore[no-any-return]

    # Plans

    def printed_plan(self, frame: Any, *, maximum_fields: int) -> str:
        """Return the analyzed plan of a classic DataFrame, as Spark prints it.

        The fields of expressions are limited by the configuration of the thread's active session alone.
        """
        self.make_active(frame.sparkSession)
        plan = frame._jdf.queryExecution().analyzed()
        return str(plan.treeString(True, False, maximum_fields, False, False))  # noqa: FBT003 - Java has no names

    def make_active(self, session: Any) -> None:
        """Make a classic session the active one of the JVM's thread, as pyspark does to create a DataFrame."""
        sessions = type(session)._get_j_spark_session_class(session._jvm)  # noqa: SLF001 - no public way
        sessions.setActiveSession(session._jsparkSession)

    # Rows

    def observation(self, session: SparkSession, name: str) -> Any:
        """Return an observation for the session, or None if a write cannot be observed."""
        if is_connect(session):
            from pyspark.sql.connect.observation import Observation as ConnectObservation

            return ConnectObservation(name)
        return Observation(name)

    def frame_of(self, session: Any, rows: Any, schema: types.StructType) -> DataFrame:
        """Return the Arrow table as a DataFrame that is part of the plan."""
        return session.createDataFrame(rows, schema)  # type: ignore[no-any-return]

    def arrow_of(self, frame: Any) -> Any:
        """Return the DataFrame as an Arrow table."""
        return frame.toArrow()

    def on_disk(self, frame: Any) -> DataFrame:
        """Return the DataFrame with its rows on the disks of the executors."""
        from pyspark import StorageLevel

        level = StorageLevel.DISK_ONLY_2 if loses_executors(frame.sparkSession) else StorageLevel.DISK_ONLY
        return frame.localCheckpoint(storageLevel=level)  # type: ignore[no-any-return]

    def checkpoint(self, frame: Any) -> DataFrame:
        """Return the DataFrame with its rows computed once, on two executors if the session has a cluster.

        Rows of a checkpoint cannot be computed again: with one copy, a lost executor makes the write fail.
        """
        from pyspark import StorageLevel

        if loses_executors(frame.sparkSession):
            return frame.localCheckpoint(storageLevel=StorageLevel.MEMORY_AND_DISK_2)  # type: ignore[no-any-return]
        return frame.localCheckpoint()  # type: ignore[no-any-return]

    def with_all_columns(self, frame: DataFrame, stored: Callable[[], DataFrame]) -> DataFrame:  # noqa: ARG002
        """Return the DataFrame with the columns that the table has and it lacks, if a write needs them.

        Args:
            frame: The rows.
            stored: Returns the table's rows.
        """
        return frame

    def overwritten(self, rows: Predicate) -> Predicate:
        """Return the filter of an overwrite in a form that Iceberg can evaluate."""
        return rows

    def overwrite_filter(self, stored: Callable[[], DataFrame], rows: Column) -> Column:  # noqa: ARG002
        """Return the filter of an overwrite in a form that Spark hands to Iceberg.

        Args:
            stored: Returns the table's rows.
            rows: The filter. It may have transforms, as functions of the catalog.
        """
        return rows

    # Expressions

    @property
    def primitive_types(self) -> Mapping[type[types.DataType], str]:
        """Spark's types that not every version has, with Iceberg's names."""
        return {types.VariantType: "variant"}

    def is_valid_utf8(self, text: str) -> str:
        """Return an expression for whether a text is valid UTF-8."""
        return f"is_valid_utf8({text})"

    def valid_utf8(self, text: str) -> str:
        """Return an expression for a text with a replacement for bytes that are not UTF-8."""
        return f"make_valid_utf8({text})"

    def condition_of(self, error: PySparkException) -> str | None:
        """Return Spark's error condition, such as `TABLE_OR_VIEW_NOT_FOUND`."""
        return error.getCondition()

    # Merges

    def merge_into(
        self,
        source: DataFrame,
        table: str,
        condition: Column,
        snapshot_properties: Mapping[str, str],  # noqa: ARG002 - the session has them
    ) -> MergeWriter:
        """Return a MERGE of the DataFrame, whose commit carries the properties.

        Args:
            source: The rows, in a session that nothing else uses and that has the properties.
            table: The full name of the table or branch.
            condition: The condition of a match.
            snapshot_properties: The properties of the snapshot.
        """
        return source.mergeInto(table, condition)
