"""The Spark session of a job, which reads its inputs and commits its DataFrames."""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from pyspark.sql import SparkSession

from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.spark.session.session import IcebergSession, SessionSettings, attach_catalog, open_session

_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""What `spark-submit` sets in the environment of the Python process."""


def session_of(spark: Any, catalog: CatalogDescription, properties: Mapping[str, str]) -> IcebergSession:
    """Return a session with the catalog: the given one, the active one, or a new one.

    A session that has a catalog of this name keeps it, with its credentials. `properties` are then what pyiceberg needs
    besides.
    """
    found = spark or SparkSession.getActiveSession()
    if found is None and _SUBMITTED not in os.environ:
        return open_session(SessionSettings(catalog))
    session: SparkSession = found or SparkSession.builder.getOrCreate()
    if session.conf.get(f"spark.sql.catalog.{catalog.name}", None) is None:
        return attach_catalog(session, catalog)
    its_own = replace(catalog, spark_properties={}, pyiceberg_properties=properties, source="session")
    return attach_catalog(session, its_own)
