"""The jobs of `benchmarks.cold` in plain PySpark, each for a process of its own. Nothing of Dagster is imported.

`python -m benchmarks.cold_plain JOB DIRECTORY ROUND` does one of them.
"""

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from benchmarks.settings import SETTINGS
from dagster_iceberg_spark.versions import ICEBERG_EXTENSIONS, ICEBERG_SPARK_CATALOG, ICEBERG_SPARK_RUNTIME, SQLITE_JDBC

FIRST_DAY = "2013-01-01"
ROWS = 10_000
STORED = 1_000_000
NAMESPACE = "plain"


def rows_of_job(session: SparkSession, job: str, number: int) -> DataFrame:
    """Return the rows of one day, or those that are merged: half of them are new, and 30 days are touched."""
    value = f"cast({number} as bigint) as v"
    if job == "day":
        day = f"date_add('{FIRST_DAY}', 364)"
        return session.range(STORED, STORED + ROWS).selectExpr("id", value, f"{day} as day")
    day = f"date_add('{FIRST_DAY}', cast(335 + id % 30 as int))"
    keys = session.range(STORED - ROWS // 2, STORED + ROWS // 2)
    return keys.selectExpr("id", value, f"if(id < {STORED}, {day_of('id')}, {day}) as day")


def day_of(key: str) -> str:
    """Return the day of a stored row, as an expression."""
    return f"date_add('{FIRST_DAY}', cast({key} * 365 div {STORED} as int))"


def stored_rows(session: SparkSession) -> DataFrame:
    """Return the rows that the table begins with."""
    return session.range(STORED).selectExpr("id", "cast(0 as bigint) as v", f"{day_of('id')} as day")


def session_in(directory: str) -> SparkSession:
    """Return a session as `benchmarks.local_spark` has it."""
    catalog = "spark.sql.catalog.lake"
    options: dict[str, bool | float | int | str | None] = {
        **SETTINGS,
        "spark.jars.packages": f"{ICEBERG_SPARK_RUNTIME},{SQLITE_JDBC}",
        "spark.sql.extensions": ICEBERG_EXTENSIONS,
        catalog: ICEBERG_SPARK_CATALOG,
        f"{catalog}.type": "jdbc",
        f"{catalog}.uri": f"jdbc:sqlite:{directory}/catalog.db",
        f"{catalog}.jdbc.schema-version": "V1",
        f"{catalog}.warehouse": f"file://{directory}/warehouse",
    }
    return SparkSession.builder.config(map=options).getOrCreate()


def main() -> None:
    """Do the job that the arguments name."""
    job, directory, number = sys.argv[1:]
    session = session_in(directory)
    batch = rows_of_job(session, job, int(number))
    if job == "day":
        batch.writeTo(f"lake.{NAMESPACE}.day").overwrite(F.expr(f"day = date_add('{FIRST_DAY}', 364)"))
        return
    batch.createOrReplaceTempView("batch")
    session.sql(
        f"merge into lake.{NAMESPACE}.merge t using batch s on t.id = s.id "
        "when matched then update set * when not matched then insert *"
    )


if __name__ == "__main__":
    main()
