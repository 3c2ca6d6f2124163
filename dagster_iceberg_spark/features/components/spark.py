"""Runs queries over DataFrames."""

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame

from dagster_iceberg_spark.features.components.plan import SqlQuery
from dagster_iceberg_spark.spark.versions import version_of


def run_query(session: Any, query: SqlQuery, frames: Mapping[tuple[str, ...], DataFrame]) -> DataFrame:
    """Return the result of a query, in which DataFrames stand for some of the tables.

    Args:
        session: The session of the DataFrames.
        query: The query.
        frames: The DataFrames by the parts of the names of the tables.
    """
    if not frames:  # Spark then reads no placeholders
        return session.sql(query.text)  # type: ignore[no-any-return]
    names = {parts: f"frame_{number}" for number, parts in enumerate(frames)}
    text = query.with_names(lambda parts: f"{{{names[parts]}}}" if parts in names else None, _escape)
    return version_of(session).query(session, text, {names[parts]: frame for parts, frame in frames.items()})


def _escape(text: str) -> str:
    """Return a text in which braces are no placeholders."""
    return text.replace("{", "{{").replace("}", "}}")
