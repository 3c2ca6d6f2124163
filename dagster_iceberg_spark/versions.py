"""The one place that knows Maven coordinates and the versions that the package is tested with."""

from typing import Final

MINIMUM_JAVA_VERSION: Final = 17
"""Spark 4 runs on Java 17 and newer (Spark 4.1 documentation, "Downloading")."""

ICEBERG_SPARK_RUNTIME: Final = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
SQLITE_JDBC: Final = "org.xerial:sqlite-jdbc:3.53.4.0"
POSTGRESQL_JDBC: Final = "org.postgresql:postgresql:42.7.8"

ICEBERG_EXTENSIONS: Final = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
ICEBERG_SPARK_CATALOG: Final = "org.apache.iceberg.spark.SparkCatalog"
