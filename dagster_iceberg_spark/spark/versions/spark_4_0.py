"""Spark 4.0."""

import copy
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame

from dagster_iceberg_spark.errors import SparkEnvironmentError
from dagster_iceberg_spark.spark.session.runtime import is_connect
from dagster_iceberg_spark.spark.versions.spark_4_1 import Spark41
from dagster_iceberg_spark.table.predicate import Predicate, without_lists

_SESSION_ID = "session_id"


class Spark40(Spark41):
    """What Spark 4.0 does otherwise than 4.1."""

    name = "4.0"
    counts_merged_rows = False

    def sibling(self, session: Any) -> Any:
        """Return a new session with the same configuration. Spark Connect cannot clone one before 4.1."""
        if not is_connect(session):
            return session.newSession()
        from pyspark.sql.connect.session import SparkSession as ConnectSession

        builder = copy.copy(session.client._builder)  # noqa: SLF001 - no public way to the address of a session
        builder._params = {key: value for key, value in builder._params.items() if key != _SESSION_ID}  # noqa: SLF001
        sibling = ConnectSession(builder, userId=session.client._user_id)  # noqa: SLF001
        own = self.configuration(sibling)
        for key, value in self.configuration(session).items():
            if own.get(key) != value:
                sibling.conf.set(key, value)
        return sibling

    def require_local_server(self) -> None:
        """Reject `remote="local"`: servers check tokens since 4.1."""
        raise SparkEnvironmentError.refusing(
            "start",
            "the local Spark Connect server",
            expected="pyspark 4.1 or newer, whose server checks a token",
            found=f"pyspark {self.name}",
            hint='upgrade pyspark, or leave `remote="local"` out.',
        )

    def printed_plan(self, frame: Any, *, maximum_fields: int) -> str:
        """Return the analyzed plan of a classic DataFrame, as Spark prints it."""
        self.make_active(frame.sparkSession)
        plan = frame._jdf.queryExecution().analyzed()
        return str(plan.treeString(True, False, maximum_fields, False))  # noqa: FBT003 - Java has no names

    def with_all_columns(self, frame: DataFrame, stored: Callable[[], DataFrame]) -> DataFrame:
        """Return the DataFrame with NULL in the columns that it lacks. Spark 4.0 requires all columns of the table."""
        table = stored()
        is_case_sensitive = frame.sparkSession.conf.get("spark.sql.caseSensitive") == "true"
        fold = str if is_case_sensitive else str.lower
        held = {fold(name) for name in frame.columns}
        lacking = [f"`{name.replace('`', '``')}`" for name in table.columns if fold(name) not in held]
        return frame.unionByName(table.select(*lacking).limit(0), allowMissingColumns=True) if lacking else frame

    def overwritten(self, rows: Predicate) -> Predicate:
        """Return the filter without lists of texts: Iceberg 1.11 fails in them for partitions of NULL.

        `ResidualEvaluator.in` asks a `CharSequenceSet`, which refuses NULL (https://github.com/trinodb/trino/pull/30099).
        """
        return without_lists(rows)
