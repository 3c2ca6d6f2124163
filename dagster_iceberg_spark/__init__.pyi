from .asset_checks import build_table_checks
from .check.findings import CheckReport, Finding
from .config.adls import AdlsStore
from .config.authentication import BasicAuthentication, BearerToken, OAuth2, SigV4
from .config.aws import AwsCredentials
from .config.catalogs import GlueCatalog, HadoopCatalog
from .config.gcs import GcsStore
from .config.hadoop import HadoopStore
from .config.hive import HiveCatalog
from .config.local import InMemoryCatalog, SparkCatalogByName
from .config.rest import RestCatalog
from .config.sql import EmbeddedCatalog, SqlCatalog
from .config.stores import S3Store
from .errors import (
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
from .io_manager import IcebergPySparkIOManager
from .plan.options import metadata_for_table
from .resource import IcebergSparkResource

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
