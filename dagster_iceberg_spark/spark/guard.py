"""Rejects rows that the run does not own, or that lack a required value, while they are written."""

from pyspark.sql import DataFrame

from dagster_iceberg_spark.plan.write_plan import Guard
from dagster_iceberg_spark.spark import expressions, sql
from dagster_iceberg_spark.spark.failures import MICROSECONDS, OUTSIDE_END, OUTSIDE_MARKER
from dagster_iceberg_spark.table.schema import folded


def refusal(frame: DataFrame, guard: Guard) -> str:
    """Return the filter that rejects rows that the run does not own. Spark compiles it with the rest of the stage."""
    types = {folded(field.name): field.dataType.typeName() for field in frame.schema.fields}
    message: list[str] = []
    label = f"{OUTSIDE_MARKER}{guard.partitions}: "
    for column in guard.columns:
        is_instant = types.get(folded(column)) == "timestamp"
        message += [sql.constant_text(f"{label}{column}="), expressions.shown_value(column, is_instant=is_instant)]
        label = f"{MICROSECONDS if is_instant else ''}, "
    return expressions.refusal_of_others(guard.owned, [*message, sql.constant_text(f"{label[:-2]}{OUTSIDE_END}")])
