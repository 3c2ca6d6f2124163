"""Maven coordinates, and the versions that the package is tested with."""

from typing import Final

MINIMUM_JAVA_VERSION: Final = 17
"""Spark 4 runs on Java 17 and newer (Spark 4.1 documentation, "Downloading")."""

ICEBERG_VERSION: Final = "1.12.0"
ICEBERG_SPARK_RUNTIME: Final = f"org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:{ICEBERG_VERSION}"
ICEBERG_AWS_BUNDLE: Final = f"org.apache.iceberg:iceberg-aws-bundle:{ICEBERG_VERSION}"
ICEBERG_AZURE_BUNDLE: Final = f"org.apache.iceberg:iceberg-azure-bundle:{ICEBERG_VERSION}"
ICEBERG_GCP_BUNDLE: Final = f"org.apache.iceberg:iceberg-gcp-bundle:{ICEBERG_VERSION}"
SQLITE_JDBC: Final = "org.xerial:sqlite-jdbc:3.53.4.0"
MYSQL_JDBC: Final = "com.mysql:mysql-connector-j:9.4.0"
POSTGRESQL_JDBC: Final = "org.postgresql:postgresql:42.7.8"

ICEBERG_EXTENSIONS: Final = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
ICEBERG_SPARK_CATALOG: Final = "org.apache.iceberg.spark.SparkCatalog"
