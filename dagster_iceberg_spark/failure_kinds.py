"""The kinds of failures of engines, catalogs and stores, each with the package's error and its message.

Spark and pyiceberg report the same failures in different words. `spark/failures.py`, `catalog/failures.py` and
`catalog/aws_credentials.py` recognize them. Each kind is defined once here, so that the same failure always has the
same message.
"""

from enum import Enum, unique
from functools import partial
from typing import Final, TypeAlias

from dagster_iceberg_spark.errors import (
    CatalogUnavailableError,
    CommitConflictError,
    CommitOutcomeUnknownError,
    ConfigurationError,
    CredentialsExpiredError,
    IcebergSparkError,
    InvestigationError,
    NullValueError,
    RowsOutsidePartitionError,
    SchemaMismatchError,
    SparkEnvironmentError,
    UpstreamMissingError,
    WriteFailedError,
)
from dagster_iceberg_spark.versions import (
    ICEBERG_AWS_BUNDLE,
    ICEBERG_AZURE_BUNDLE,
    ICEBERG_EXTENSIONS,
    ICEBERG_GCP_BUNDLE,
    ICEBERG_SPARK_RUNTIME,
)

_Kind: TypeAlias = tuple[type[IcebergSparkError], str, str | None]


def _kind(error: type[IcebergSparkError], expected: str, hint: str | None = None) -> _Kind:
    return error, expected, hint


_misconfigured: Final = partial(_kind, ConfigurationError)
_unavailable: Final = partial(_kind, CatalogUnavailableError)
_unfit_session: Final = partial(_kind, SparkEnvironmentError)


@unique
class FailureKind(Enum):
    """A kind of failure.

    Attributes:
        error: The class of the package's error.
        expected: What the package expected.
        hint: What to do about it, as an imperative.
    """

    # The rows
    ROW_OUTSIDE_PARTITION = (
        RowsOutsidePartitionError,
        "only rows of the run's partitions",
        'filter the DataFrame, or set `iceberg/rows_outside_partition` to "drop" to leave them out and count them.',
    )
    NULL_IN_REQUIRED_COLUMN = (
        NullValueError,
        "no NULL in a required column",
        "fill or filter the column in the asset.",
    )
    MALFORMED_VALUE = (
        SchemaMismatchError,
        "uuids as texts such as 'f79c3e09-677c-4bbd-a479-3f349cb785e7', and binary values of the length of a fixed",
        "correct the column in the asset.",
    )
    INCOMPATIBLE_VALUE = (
        SchemaMismatchError,
        "values that the table's column types hold",
        "cast the column in the asset.",
    )
    CHECKPOINT_GONE = _misconfigured(
        "a DataFrame that the Spark Connect server still has",
        "call `cache()` in place of `localCheckpoint()`: the server may forget a checkpoint before it is written.",
    )
    TYPE_UNKNOWN_TO_SPARK = _misconfigured(
        "a table whose column types Spark supports",
        "load it as a pyarrow.Table, or as another type that needs no JVM. No asset of this IO manager can write it.",
    )
    PYTHON_FUNCTION_FAILED = (
        WriteFailedError,
        "the DataFrame's own Python functions to return",
        "see the error's cause for where it was raised.",
    )
    QUERY_TABLE_MISSING = _misconfigured(
        "every table and view that the DataFrame reads",
        "create it before the asset runs, and keep temporary views until the rows are written.",
    )

    # The commit
    COMMIT_CONFLICT = (
        CommitConflictError,
        "no other writer to change the table at the same time",
        "run the asset again.",
    )
    ROWS_CHANGED = (CommitConflictError, "the rows that the batch was compared with", "run the asset again.")
    TABLE_VANISHED = (CommitConflictError, "the table that was there a moment ago", "run the asset again.")
    COMMIT_OUTCOME_UNKNOWN = (CommitOutcomeUnknownError, "an answer to the commit")
    CONNECTION_LOST = (CommitOutcomeUnknownError, "an answer from the Spark Connect server")
    SESSION_ENDED = _unavailable(
        "a Spark Connect server that has not restarted since", "run the asset again: it gets a new session."
    )

    # The installation
    ICEBERG_RUNTIME_MISSING = _unfit_session(
        "Iceberg's runtime for Spark 4.1 and the catalog's JDBC driver in the session",
        f"start the session with `spark.jars.packages` holding {ICEBERG_SPARK_RUNTIME}, or let the resource start it.",
    )
    SQL_EXTENSIONS_MISSING = _unfit_session(
        "a session with Iceberg's SQL extensions",
        f"set spark.sql.extensions to {ICEBERG_EXTENSIONS} when the session starts.",
    )
    JDBC_DRIVER_MISSING = _unfit_session(
        "the catalog's JDBC driver in the session",
        "add the driver's Maven coordinate to `spark.jars.packages` of the session.",
    )
    STORE_CLIENT_MISSING = _unfit_session(
        "the client of the object store in the session",
        f"let the resource start the JVM, or start it with `spark.jars.packages` holding {ICEBERG_AWS_BUNDLE} for "
        f"S3, {ICEBERG_GCP_BUNDLE} for GCS, {ICEBERG_AZURE_BUNDLE} for ADLS. A JVM that is already running loads "
        "no more jars.",
    )
    HADOOP_CLIENT_MISSING = _unfit_session(
        "Hadoop's client of the warehouse's scheme in the session",
        "set the catalog's `store` to use Iceberg's own client (`AdlsStore`, `GcsStore`, `S3Store`), or add "
        "Hadoop's client to `spark.jars.packages`.",
    )
    PYTHON_CLIENT_MISSING = _misconfigured(
        "the Python package for the store or the database",
        "install the extra that brings it: `dagster-iceberg-spark[azure]`, `[mysql]` or `[postgres]`.",
    )

    # The credentials
    CREDENTIALS_EXPIRED = (
        CredentialsExpiredError,
        "credentials that have not expired",
        "run it again. If that fails too, give the catalog or the store credentials that outlive the work.",
    )
    CREDENTIALS_REFUSED = _misconfigured(
        "credentials that the catalog and the store accept",
        "check the credentials of the catalog and of the store in the resource configuration.",
    )
    CREDENTIALS_REFUSED_BY_AZURE = _misconfigured(
        "credentials that the store accepts",
        "check `account_key`, `sas_token` or the client of the store; a client needs a role on the container's data.",
    )
    CREDENTIALS_REFUSED_BY_GOOGLE = _misconfigured(
        "credentials that the store accepts",
        "check the `token` of the store, which may have expired. Without a token, check Google's default credentials.",
    )
    HADOOP_USER_REFUSED = _misconfigured(
        "a user that the Hive Metastore or HDFS lets in",
        "check `kerberos_principal`, the Kerberos ticket (`klist`), and what the user may do there.",
    )
    METASTORE_PRIVILEGE_MISSING = _misconfigured(
        "a user with the privilege that the Hive Metastore requires",
        "grant the privilege to the user, or connect as another user.",
    )
    AWS_CREDENTIALS_MISSING = _misconfigured(
        "AWS credentials and a region",
        "set `credentials` and `region` in the resource configuration, or where the AWS SDK looks for them. On a "
        "cluster or a Spark Connect server, give the nodes a role.",
    )
    AWS_PROFILE_MISSING = _misconfigured(
        "a profile that the AWS configuration files have", "check `profile`, AWS_PROFILE and AWS_CONFIG_FILE."
    )
    AWS_ROLE_REFUSED = _misconfigured(
        "a role that trusts these credentials", "check `role_arn` and `external_id`, and the role's trust policy."
    )
    AWS_ROLE_MALFORMED = _misconfigured("a role that can exist", "correct `role_arn`.")
    AWS_LOGIN_EXPIRED = _misconfigured("a login that has not expired", "run `aws sso login`.")
    AWS_KEYS_EXPIRED = (CredentialsExpiredError, "new keys before the old ones expire")
    AWS_KEYS_UNAVAILABLE = _unavailable("a service that hands out keys")
    AWS_ACCESS_DENIED = _misconfigured(
        "a catalog and a store that let these credentials in",
        "check what the credentials may do, the `region`, and the clock of this machine.",
    )
    CLOCK_SKEWED = _misconfigured(
        "a clock that differs from the store's by minutes at most",
        "set the clock of the machine that the process or Spark runs on.",
    )
    CERTIFICATE_UNTRUSTED = _misconfigured(
        "a certificate of an authority that Spark's JVM trusts, and this process for reads without a JVM",
        "for Spark, import the authority into a trust store (`keytool -importcert`), and start the JVM, or the "
        "Spark Connect server, with `-Djavax.net.ssl.trustStore=<path>` in `spark.driver.extraJavaOptions` and "
        "`spark.executor.extraJavaOptions`. For reads without a JVM, set `ca_bundle` of a REST catalog to a PEM "
        "file with that authority (the variables REQUESTS_CA_BUNDLE and CURL_CA_BUNDLE win over it), `sslrootcert` "
        "in a PostgreSQL URI, or, for a store, the variable SSL_CERT_FILE.",
    )

    # The catalog
    CATALOG_UNREACHABLE = _unavailable("an answer from the catalog and the store", "run it again when they are back.")
    THROTTLED = _unavailable(
        "a catalog and a store that take that many requests", "run it again, with fewer runs at the same time."
    )
    NAMESPACE_MISSING = _misconfigured(
        "a namespace that exists", "create it, or set `auto_create_namespace` of the IO manager."
    )
    BRANCHES_UNSUPPORTED = _misconfigured(
        "a catalog that keeps the branches of tables",
        "leave out `iceberg/branch` and `iceberg/audits`. The catalog's `uri` may name a branch of Nessie's own.",
    )
    REQUEST_REFUSED = _misconfigured(
        "a request that the REST catalog takes",
        "correct `uri`, `warehouse` and `prefix` of the catalog, or what the message names.",
    )
    NOT_A_REST_CATALOG = _misconfigured(
        "the answers of an Iceberg REST catalog", "correct `uri`, `warehouse` and `prefix` of the catalog."
    )
    DATABASE_ADDRESS_WRONG = _misconfigured(
        "a database and parameters that the server and its client know",
        "correct the catalog's `uri`: the database's name, `sslmode` and other parameters.",
    )
    DATABASE_PERMISSION_DENIED = _misconfigured(
        "a user that may use the catalog's database",
        "grant the user of the catalog's `uri` CONNECT and CREATE, and SELECT, INSERT, UPDATE and DELETE on the "
        "tables `iceberg_tables` and `iceberg_namespace_properties`.",
    )
    SQLITE_FILE_DAMAGED = (
        InvestigationError,
        "an intact SQLite file, where it was when it was opened",
        "restore the file from a backup, then restart the process.",
    )
    SQLITE_FILE_READ_ONLY = _misconfigured(
        "a SQLite file that the process and Spark may write",
        "let the user that runs them write the catalog's file and its directory, which holds the journal. Then "
        "restart the process.",
    )
    SQLITE_FILE_LOCKED = _unavailable(
        "a SQLite file that others lock only for moments",
        "run it again when the other process is done. For many writers at once, use PostgreSQL or a REST catalog.",
    )
    HIVE_VERSION_UNSUPPORTED = _misconfigured(
        "a Hive Metastore that answers clients of Hive 2.3",
        "use Hive 2.3 to 4.0.0, or its REST endpoint with `RestCatalog`.",
    )
    HIVE_NAME_INVALID = _misconfigured(
        "a name of letters, digits and underscores in a Hive Metastore",
        "name the table by `iceberg/table` and its namespace by `schema`.",
    )
    HIVE_LOCKS_MISSING = _misconfigured(
        "the tables of locks in the Hive Metastore's database", "initialise its schema with Hive's `schematool`."
    )
    HIVE_KEEPS_COLUMN_TYPES = _misconfigured(
        "a Hive Metastore that lets a column's type change in its place, as when a column is dropped or moved",
        "set `hive.metastore.disallow.incompatible.col.type.changes` to `false` where the metastore runs.",
    )

    # The store
    BUCKET_MISSING = _misconfigured(
        "a bucket or container that exists",
        "create it, or correct the catalog's `warehouse`, or the store's `endpoint` and `region`.",
    )
    DISK_FULL = _unavailable("room for the files of the write", "free some space, then run the asset again.")
    PERMISSION_DENIED = _misconfigured(
        "files and directories that the process and Spark may use",
        "let the user that runs them read and write there. If a directory cannot be made, also look for a full disk.",
    )
    FILE_MISSING = (
        InvestigationError,
        "every file that the table's metadata names",
        (
            "if its snapshot has expired since, run it again. If the file exists, let the user that runs Spark "
            "and this process see its directory. Otherwise bring it back from a backup, or roll the table back to a "
            "snapshot that does not need it. If that is not possible, drop the table from the catalog and materialize "
            "its asset again."
        ),
    )
    PARTITION_SPEC_UNREADABLE = _misconfigured(
        "at most one partition field of each decimal type: pyiceberg reads no manifests with several",
        "load the table as a pyspark DataFrame, or partition it by fewer decimals.",
    )
    METADATA_DAMAGED = (
        InvestigationError,
        "metadata files and manifests that can be read to their end",
        (
            "bring the file back from a backup, or roll the table back to a snapshot that does not need it. If "
            "neither is possible, drop the table from the catalog and materialize its asset again."
        ),
    )
    DATA_FILE_DAMAGED = (
        InvestigationError,
        "a data file that can be read to its end",
        (
            "materialize the partition of the file's rows again, which replaces the file. Otherwise bring it back "
            "from a backup, or roll the table back to a snapshot that does not need it."
        ),
    )

    ENGINE_FAILED = (WriteFailedError, "the engine to succeed")

    def __init__(self, error: type[IcebergSparkError], expected: str, hint: str | None = None) -> None:
        self.error, self.expected, self.hint = error, expected, hint

    @property
    def label(self) -> str:
        """The kind's name in plain words."""
        return self.name.lower().replace("_", " ")

    def refusal(self, action: str, subject: str, found: str) -> IcebergSparkError:
        """Return the error for a failure of this kind. The client's message (`found`) must be without secrets."""
        return self.error_during(action).refusing(action, subject, expected=self.expected, found=found, hint=self.hint)

    def error_during(self, action: str) -> type[IcebergSparkError]:
        """Return the class of the error during this action. A write follows the loading of the table."""
        if action == "write" and self in (FailureKind.CREDENTIALS_REFUSED, FailureKind.HADOOP_USER_REFUSED):
            return CredentialsExpiredError  # the catalog accepted the credentials a moment before
        if action == "write" and self is FailureKind.NOT_A_REST_CATALOG:
            return CatalogUnavailableError  # another service temporarily responds in place of the catalog
        if action == "read" and self is FailureKind.TABLE_VANISHED:
            return UpstreamMissingError
        if action != "write" and self.error is CommitOutcomeUnknownError:
            return CatalogUnavailableError  # only a commit must not be repeated
        return self.error
