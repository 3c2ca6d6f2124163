"""Spark DataFrame assets stored as Apache Iceberg tables, for Dagster."""

from dagster_iceberg_spark.asset_checks import build_table_checks
from dagster_iceberg_spark.check.findings import CheckReport, Finding
from dagster_iceberg_spark.config.adls import AdlsStore
from dagster_iceberg_spark.config.authentication import BasicAuthentication, BearerToken, OAuth2, SigV4
from dagster_iceberg_spark.config.aws import AwsCredentials
from dagster_iceberg_spark.config.catalogs import GlueCatalog, HadoopCatalog
from dagster_iceberg_spark.config.gcs import GcsStore
from dagster_iceberg_spark.config.hadoop import HadoopStore
from dagster_iceberg_spark.config.hive import HiveCatalog
from dagster_iceberg_spark.config.local import InMemoryCatalog, SparkCatalogByName
from dagster_iceberg_spark.config.rest import RestCatalog
from dagster_iceberg_spark.config.sql import EmbeddedCatalog, SqlCatalog
from dagster_iceberg_spark.config.stores import S3Store
from dagster_iceberg_spark.errors import (
    CatalogUnavailableError,
    ChangesConsumedError,
    ChangesUnknownError,
    CommitConflictError,
    CommitOutcomeUnknownError,
    ConfigurationError,
    CredentialsExpiredError,
    DataError,
    DisplacedCommitError,
    DuplicateCommitError,
    IcebergSparkError,
    InvestigationError,
    MergeKeyError,
    MetadataKeyError,
    NotAnIcebergTableError,
    NullValueError,
    OrphanedCommitError,
    OutputTypeError,
    PartitioningError,
    RetryableError,
    RowsOutsidePartitionError,
    SchemaMismatchError,
    SparkEnvironmentError,
    TableOwnershipError,
    UnreadableCommitError,
    UpstreamMissingError,
    WriteFailedError,
)
from dagster_iceberg_spark.io_manager import IcebergPySparkIOManager
from dagster_iceberg_spark.plan.options import metadata_for_table
from dagster_iceberg_spark.resource import IcebergSparkResource

__all__ = [
    "AdlsStore",
    "AwsCredentials",
    "BasicAuthentication",
    "BearerToken",
    "CatalogUnavailableError",
    "ChangesConsumedError",
    "ChangesUnknownError",
    "CheckReport",
    "CommitConflictError",
    "CommitOutcomeUnknownError",
    "ConfigurationError",
    "CredentialsExpiredError",
    "DataError",
    "DisplacedCommitError",
    "DuplicateCommitError",
    "EmbeddedCatalog",
    "Finding",
    "GcsStore",
    "GlueCatalog",
    "HadoopCatalog",
    "HadoopStore",
    "HiveCatalog",
    "IcebergPySparkIOManager",
    "IcebergSparkError",
    "IcebergSparkResource",
    "InMemoryCatalog",
    "InvestigationError",
    "MergeKeyError",
    "MetadataKeyError",
    "NotAnIcebergTableError",
    "NullValueError",
    "OAuth2",
    "OrphanedCommitError",
    "OutputTypeError",
    "PartitioningError",
    "RestCatalog",
    "RetryableError",
    "RowsOutsidePartitionError",
    "S3Store",
    "SchemaMismatchError",
    "SigV4",
    "SparkCatalogByName",
    "SparkEnvironmentError",
    "SqlCatalog",
    "TableOwnershipError",
    "UnreadableCommitError",
    "UpstreamMissingError",
    "WriteFailedError",
    "build_table_checks",
    "metadata_for_table",
]
