from .check.findings import CheckReport, Finding
from .config.catalog import GcsStore, HadoopStore
from .config.catalogs import GlueCatalog, HadoopCatalog, HiveCatalog, InMemoryCatalog, SparkCatalogByName
from .config.rest_catalog import BasicAuthentication, BearerToken, OAuth2, RestCatalog, SigV4
from .config.sql_catalog import EmbeddedCatalog, SqlCatalog
from .config.stores import AdlsStore, AwsCredentials, S3Store
from .errors import (
    AuditFailedError,
    CatalogUnavailableError,
    ChangesConsumedError,
    ChangesUnknownError,
    CommitConflictError,
    CommitOutcomeUnknownError,
    ConcurrentWriteError,
    ConfigurationError,
    CredentialsExpiredError,
    DataError,
    DisplacedCommitError,
    DuplicateCommitError,
    EngineUnfitError,
    IcebergSparkError,
    InvestigationError,
    JobFailedError,
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
from .features.checks.data_checks import build_audit_checks, build_data_checks
from .features.checks.table_checks import build_table_checks
from .features.components.lake import IcebergLakeComponent
from .features.components.sql_assets import SparkSqlComponent
from .features.components.table_assets import IcebergTablesComponent
from .features.contracts.requirements import build_contract_checks, require_contracts
from .features.maintenance.job import Maintenance, build_health_checks, build_maintenance
from .features.maintenance.options import MaintenancePolicy
from .features.metrics.config import OpenTelemetryMetrics, PrometheusMetrics
from .features.mirror.config import DuckLakeMirror
from .features.mirror.mirrors import build_mirror_checks
from .features.pipes.launch import IcebergPipes
from .features.pipes.reattachment import ReattachableSubprocessClient, reattachable
from .features.releases.ci_environment import ci_environment
from .features.releases.release_asset import build_release
from .features.releases.undo import build_undo_op, undo_run
from .features.remote_sessions.emr import EmrServerlessSession, EmrSession
from .features.remote_sessions.spark_operator import SparkConnectService
from .features.watching.changed_partitions import build_changed_partitions_sensor
from .features.watching.table_sensor import build_table_sensor, foreign_table
from .io_manager import IcebergPySparkIOManager
from .metadata import metadata_for_table
from .plan.read.read_plan import ReadPlan
from .resource import IcebergSparkResource

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
    "ConcurrentWriteError",
    "ConfigurationError",
    "CredentialsExpiredError",
    "DataError",
    "DisplacedCommitError",
    "DuckLakeMirror",
    "DuplicateCommitError",
    "EmbeddedCatalog",
    "EmrServerlessSession",
    "EmrSession",
    "EngineUnfitError",
    "Finding",
    "GcsStore",
    "GlueCatalog",
    "HadoopCatalog",
    "HadoopStore",
    "HiveCatalog",
    "IcebergLakeComponent",
    "IcebergPipes",
    "IcebergPySparkIOManager",
    "IcebergSparkError",
    "IcebergSparkResource",
    "IcebergTablesComponent",
    "InMemoryCatalog",
    "InvestigationError",
    "JobFailedError",
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
    "ReadPlan",
    "ReattachableSubprocessClient",
    "ReplayFailedError",
    "RestCatalog",
    "RetryableError",
    "RowsOutsidePartitionError",
    "S3Store",
    "SchemaMismatchError",
    "SigV4",
    "SparkCatalogByName",
    "SparkConnectService",
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
    "build_contract_checks",
    "build_data_checks",
    "build_health_checks",
    "build_maintenance",
    "build_mirror_checks",
    "build_release",
    "build_table_checks",
    "build_table_sensor",
    "build_undo_op",
    "ci_environment",
    "foreign_table",
    "metadata_for_table",
    "reattachable",
    "require_contracts",
    "undo_run",
]
