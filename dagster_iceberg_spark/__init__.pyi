from .asset_checks.audits import build_audit_checks
from .asset_checks.data import build_data_checks
from .asset_checks.mirror import build_mirror_checks
from .asset_checks.tables import build_table_checks
from .check.findings import CheckReport, Finding
from .components.lake import IcebergLakeComponent
from .components.sql import SparkSqlComponent
from .components.tables import IcebergTablesComponent
from .config.adls_store import AdlsStore
from .config.aws_credentials import AwsCredentials
from .config.catalogs import GlueCatalog, HadoopCatalog, HiveCatalog, InMemoryCatalog, SparkCatalogByName
from .config.embedded_catalog import EmbeddedCatalog
from .config.metrics import OpenTelemetryMetrics, PrometheusMetrics
from .config.mirror import DuckLakeMirror
from .config.rest_catalog import BasicAuthentication, BearerToken, OAuth2, RestCatalog, SigV4
from .config.s3_store import S3Store
from .config.sql_catalog import SqlCatalog
from .config.stores import GcsStore, HadoopStore
from .errors import (
    AuditFailedError,
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
    MirrorFailedError,
    NotAnIcebergTableError,
    NullValueError,
    OrphanedCommitError,
    OutputTypeError,
    PartitioningError,
    ReplayFailedError,
    RetryableError,
    RowsOutsidePartitionError,
    SchemaMismatchError,
    SparkEnvironmentError,
    TableOwnershipError,
    UnauditedReleaseError,
    UnreadableCommitError,
    UpstreamMissingError,
    WriteFailedError,
)
from .io_manager import IcebergPySparkIOManager
from .maintenance.job import Maintenance, build_health_checks, build_maintenance
from .plan.maintenance_policy import MaintenancePolicy
from .plan.options import metadata_for_table
from .release.asset import build_release
from .resource import IcebergSparkResource
from .undo import build_undo_op, undo_run
from .watching.changed_partitions import build_changed_partitions_sensor
from .watching.sensor import build_table_sensor
from .watching.table import foreign_table

__all__ = [
    "AdlsStore",
    "AuditFailedError",
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
    "DuckLakeMirror",
    "DuplicateCommitError",
    "EmbeddedCatalog",
    "Finding",
    "GcsStore",
    "GlueCatalog",
    "HadoopCatalog",
    "HadoopStore",
    "HiveCatalog",
    "IcebergLakeComponent",
    "IcebergPySparkIOManager",
    "IcebergSparkError",
    "IcebergSparkResource",
    "IcebergTablesComponent",
    "InMemoryCatalog",
    "InvestigationError",
    "Maintenance",
    "MaintenancePolicy",
    "MergeKeyError",
    "MetadataKeyError",
    "MirrorFailedError",
    "NotAnIcebergTableError",
    "NullValueError",
    "OAuth2",
    "OpenTelemetryMetrics",
    "OrphanedCommitError",
    "OutputTypeError",
    "PartitioningError",
    "PrometheusMetrics",
    "ReplayFailedError",
    "RestCatalog",
    "RetryableError",
    "RowsOutsidePartitionError",
    "S3Store",
    "SchemaMismatchError",
    "SigV4",
    "SparkCatalogByName",
    "SparkEnvironmentError",
    "SparkSqlComponent",
    "SqlCatalog",
    "TableOwnershipError",
    "UnauditedReleaseError",
    "UnreadableCommitError",
    "UpstreamMissingError",
    "WriteFailedError",
    "build_audit_checks",
    "build_changed_partitions_sensor",
    "build_data_checks",
    "build_health_checks",
    "build_maintenance",
    "build_mirror_checks",
    "build_release",
    "build_table_checks",
    "build_table_sensor",
    "build_undo_op",
    "foreign_table",
    "metadata_for_table",
    "undo_run",
]
