"""Translating the engine's errors. Each kind has an example that Spark was observed to raise."""

from collections.abc import Callable

import pytest
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import (
    AnalysisException,
    ParseException,
    PySparkAssertionError,
    PySparkException,
    PythonException,
    SparkRuntimeException,
)
from pyspark.errors.exceptions.connect import SparkConnectException, SparkConnectGrpcException, UnknownException

from dagster_iceberg_spark import errors
from dagster_iceberg_spark.failure_kinds import FailureKind
from dagster_iceberg_spark.spark.failures import (
    ENGINE_ERRORS,
    MOVED_MARKER,
    OUTSIDE_END,
    OUTSIDE_MARKER,
    RECOGNISERS,
    VALUE_MARKER,
    inspect_failure,
    kind_of,
    translate,
)

ICEBERG = "org.apache.iceberg.exceptions."
SHADED = "org.apache.iceberg.shaded.com.fasterxml.jackson.core."
HIVE = "org.apache.hadoop.hive.metastore.api."
INCOMPATIBLE = "The following columns have types incompatible with the existing columns in their respective positions :"


PYTHON_TEXT = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "asset.py", line 3, in convert
    raise ValueError(x)
    ^^^^^^^^^^^^^^^^^^^
ValueError: no such conflict: Access Denied
of a second line
"""


class FakeThrowable:
    """A Java exception as py4j shows it."""

    def __init__(self, name: str, message: str | None, cause: "FakeThrowable | None" = None) -> None:
        self._name, self._message, self._cause = name, message, cause

    def getClass(self) -> "FakeThrowable":  # noqa: N802 - Java's name
        return self

    def getName(self) -> str:  # noqa: N802 - Java's name
        return self._name

    def getMessage(self) -> str | None:  # noqa: N802 - Java's name
        return self._message

    def getCause(self) -> "FakeThrowable | None":  # noqa: N802 - Java's name
        return self._cause


def java(*causes: tuple[str, str | None]) -> Py4JJavaError:
    """Return a classic session's error with these Java exceptions, the outermost first."""
    throwable = None
    for name, message in reversed(causes):
        throwable = FakeThrowable(name, message, throwable)
    error = Py4JJavaError.__new__(Py4JJavaError)
    error.java_exception = throwable
    return error


def iceberg(name: str, message: str | None, *causes: tuple[str, str | None]) -> Py4JJavaError:
    """Return a classic session's error with one of Iceberg's exceptions."""
    return java((f"{ICEBERG}{name}", message), *causes)


def connect(name: str, message: str) -> UnknownException:
    """Return a Spark Connect client's error for a Java exception."""
    return UnknownException(f"({name}) {message}\n\nJVM stacktrace:\n{name}: {message}\n\tat CommitFailedException.x")


def sqlite(message: str, action: str = "Unknown failure") -> Py4JJavaError:
    """Return a classic session's error from the SQLite catalog."""
    return java(("org.apache.iceberg.jdbc.UncheckedSQLException", action), ("org.sqlite.SQLiteException", message))


def postgresql(message: str) -> Py4JJavaError:
    """Return a classic session's error from a PostgreSQL catalog."""
    return iceberg("UncheckedSQLException", "Failed to connect", ("org.postgresql.util.PSQLException", message))


def connect_caused_by(*causes: tuple[str, str]) -> UnknownException:
    """Return a Connect client's error with causes only in the server's stack trace, which the client does not show."""
    stack = "".join(f"\nCaused by: {name}: {message}\n\tat a.B.c(B.java:1)" for name, message in causes)
    return UnknownException("(x.Y) Unknown failure", server_stacktrace=f"x.Y\n\tat a.B.c(B.java:1){stack}")


def spark(condition: str, message: str, kind: type[PySparkException] = SparkRuntimeException) -> PySparkException:
    return kind(message, errorClass=condition)


def outside(row: str) -> PySparkException:
    return spark("USER_RAISED_EXCEPTION", f"{OUTSIDE_MARKER}{row} SQLSTATE: P0001")


UNAVAILABLE = """<_MultiThreadedRendezvous of RPC that terminated with:
\tstatus = StatusCode.UNAVAILABLE
\tdetails = "failed to connect to all addresses; last error: Socket closed"
\tdebug_error_string = "UNAVAILABLE:failed to connect"
>"""

AZURE_REFUSES = """If you are using a StorageSharedKeyCredential, and the server returned an error message that ...
Status code 403, "<?xml version="1.0" encoding="UTF-8" standalone="yes"?>
<Error>
  <Code>AuthorizationFailure</Code>
  <Message>Server failed to authenticate the request. Make sure the value of the Authorization header is formed.
RequestId:c8354d70
Time:2026-11-22T16:15:29.284Z</Message>
</Error>\""""

FAILURES: dict[tuple[FailureKind, type[errors.IcebergSparkError]], list[Exception]] = {
    (FailureKind.ROW_OUTSIDE_PARTITION, errors.RowsOutsidePartitionError): [
        outside(f"d: ts=x{OUTSIDE_END}"),
        java(("org.apache.spark.SparkException", "Job aborted"), ("x.Y", f"{OUTSIDE_MARKER}d: a=1{OUTSIDE_END}")),
    ],
    (FailureKind.NULL_IN_REQUIRED_COLUMN, errors.NullValueError): [
        spark("NOT_NULL_ASSERT_VIOLATION", "NULL value appeared in non-nullable field: id"),
        java(("org.apache.spark.SparkException", "Job aborted: [NOT_NULL_ASSERT_VIOLATION] x")),
    ],
    (FailureKind.ROWS_CHANGED, errors.CommitConflictError): [
        java(("org.apache.spark.SparkException", "Job aborted"), ("x.Y", f"[USER_RAISED_EXCEPTION] {MOVED_MARKER}"))
    ],
    (FailureKind.MALFORMED_VALUE, errors.SchemaMismatchError): [
        spark("USER_RAISED_EXCEPTION", f"{VALUE_MARKER}uuid in the column 'u': x")
    ],
    (FailureKind.CHECKPOINT_GONE, errors.ConfigurationError): [
        spark("INTERNAL_ERROR", "No DataFrame with id 8f99ad24 is found in the session 1")
    ],
    (FailureKind.TYPE_UNKNOWN_TO_SPARK, errors.ConfigurationError): [
        java(("java.lang.UnsupportedOperationException", "Spark does not support time fields")),
        java(("java.lang.UnsupportedOperationException", "Cannot convert unsupported type to Spark: timestamp_ns")),
    ],
    (FailureKind.INCOMPATIBLE_VALUE, errors.SchemaMismatchError): [
        spark("CAST_OVERFLOW_IN_TABLE_INSERT", "overflow"),
        spark("INCOMPATIBLE_DATA_FOR_TABLE.CANNOT_SAFELY_CAST", "x", AnalysisException),
        spark("INSERT_COLUMN_ARITY_MISMATCH.TOO_MANY_DATA_COLUMNS", "x", AnalysisException),
        spark("NUMERIC_VALUE_OUT_OF_RANGE.WITHOUT_SUGGESTION", "the 17 cannot be represented as Decimal(38, 0)"),
    ],
    (FailureKind.HIVE_KEEPS_COLUMN_TYPES, errors.ConfigurationError): [
        iceberg("CommitStateUnknownException", "x", (f"{HIVE}InvalidOperationException", INCOMPATIBLE)),
        connect_caused_by((f"{ICEBERG}CommitStateUnknownException", INCOMPATIBLE)),
    ],
    (FailureKind.HIVE_NAME_INVALID, errors.ConfigurationError): [
        java(("x.Y", "Invalid Hive object"), (f"{HIVE}InvalidObjectException", "a-b is not a valid object name")),
        java(("x.Y", "Failed to create"), (f"{HIVE}InvalidObjectException", "a-b is not a valid database name")),
    ],
    (FailureKind.HIVE_LOCKS_MISSING, errors.ConfigurationError): [
        java(("x.Y", "Failed to acquire locks because the underlying metastore table 'HIVE_LOCKS' does not exist."))
    ],
    (FailureKind.HIVE_VERSION_UNSUPPORTED, errors.ConfigurationError): [
        java(
            ("java.lang.RuntimeException", "Failed to get table info from metastore db.t"),
            ("org.apache.thrift.TApplicationException", "Invalid method name: 'get_table'"),
        )
    ],
    (FailureKind.COMMIT_OUTCOME_UNKNOWN, errors.CommitOutcomeUnknownError): [
        iceberg("CommitStateUnknownException", "Cannot determine whether the commit was successful"),
        java(("x.Y", "failed"), (f"{ICEBERG}CommitStateUnknownException", None)),
        connect(f"{ICEBERG}CommitStateUnknownException", "x"),
        iceberg("RESTException", "Error occurred while processing POST request"),
        connect(f"{ICEBERG}RESTException", "Error occurred while processing POST request"),
    ],
    (FailureKind.STORE_CLIENT_MISSING, errors.SparkEnvironmentError): [
        spark("_LEGACY_ERROR_TEMP_2042", "Cannot initialize FileIO implementation x: Cannot find constructor for y"),
        java(("java.lang.NoClassDefFoundError", "software/amazon/awssdk/core/exception/SdkException")),
        java(("java.lang.NoClassDefFoundError", "com/google/cloud/storage/Storage")),
        java(("java.lang.NoClassDefFoundError", "com/azure/storage/file/datalake/DataLakeFileSystemClient")),
    ],
    (FailureKind.AWS_CREDENTIALS_MISSING, errors.ConfigurationError): [
        java(
            (
                "software.amazon.awssdk.core.exception.SdkClientException",
                "Unable to load credentials from any of the providers in the chain AwsCredentialsProviderChain(...)",
            )
        ),
        java(
            (
                "software.amazon.awssdk.core.exception.SdkClientException",
                "Unable to load region from any of the providers in the chain x",
            )
        ),
    ],
    (FailureKind.BUCKET_MISSING, errors.ConfigurationError): [
        java(
            (
                "software.amazon.awssdk.services.s3.model.NoSuchBucketException",
                "The specified bucket does not exist (Service: S3, Status Code: 404, Request ID: x)",
            )
        ),
        connect_caused_by(
            (
                "com.azure.storage.blob.models.BlobStorageException",
                'Status code 404, "<?xml ...?>\n  <Message>The specified container does not exist.\nRequestId:1',
            )
        ),
        java(
            (
                "com.google.cloud.storage.StorageException",
                "404 Not Found\nPOST http://127.0.0.1:1/upload/storage/v1/b/x",
            )
        ),
        connect(
            "com.google.cloud.storage.StorageException", "404 Not Found\nPOST http://127.0.0.1:1/upload/storage/v1"
        ),
    ],
    (FailureKind.CREDENTIALS_REFUSED_BY_AZURE, errors.ConfigurationError): [
        iceberg("RuntimeIOException", "Failed to write json to file: x", ("java.io.IOException", AZURE_REFUSES)),
        connect_caused_by(("com.azure.storage.blob.models.BlobStorageException", AZURE_REFUSES)),
        java(
            ("com.azure.core.exception.ClientAuthenticationException", "DefaultAzureCredential authentication failed")
        ),
    ],
    (FailureKind.CERTIFICATE_UNTRUSTED, errors.ConfigurationError): [
        iceberg(
            "RESTException",
            "Error occurred while processing POST request",
            (
                "javax.net.ssl.SSLHandshakeException",
                "PKIX path building failed: unable to find valid certification path",
            ),
        )
    ],
    (FailureKind.CREDENTIALS_REFUSED_BY_GOOGLE, errors.ConfigurationError): [
        java(
            (
                "com.google.cloud.storage.StorageException",
                "OAuth2Credentials instance does not support refreshing the access token. An instance with a new ...",
            )
        ),
        java(
            ("com.google.cloud.storage.StorageException", "401 Unauthorized\nPOST https://x"),
            ("com.google.api.client.http.HttpResponseException", "401 Unauthorized"),
        ),
        connect_caused_by(("com.google.api.client.http.HttpResponseException", "403 Forbidden\nPOST https://x")),
        java(("java.io.IOException", "Your default credentials were not found. To set up Application Default ...")),
    ],
    (FailureKind.CLOCK_SKEWED, errors.ConfigurationError): [
        java(
            (
                "software.amazon.awssdk.services.s3.model.S3Exception",
                "The difference between the request time and the current time is too large. (RequestTimeTooSkewed)",
            )
        ),
        java(("software.amazon.awssdk.services.glue.model.GlueException", "Signature expired: 1 is now earlier than")),
    ],
    (FailureKind.HADOOP_CLIENT_MISSING, errors.SparkEnvironmentError): [
        java(("org.apache.hadoop.fs.UnsupportedFileSystemException", 'No FileSystem for scheme "gs"')),
        java(
            (
                "java.lang.RuntimeException",
                "ClassNotFoundException: Class org.apache.hadoop.fs.azurebfs.SecureAzureBlobFileSystem not found",
            )
        ),
    ],
    (FailureKind.ICEBERG_RUNTIME_MISSING, errors.SparkEnvironmentError): [
        spark("CATALOG_NOT_FOUND", "The catalog `lake` not found", AnalysisException),
        java(
            (
                "org.apache.spark.SparkException",
                "Cannot find catalog plugin class for catalog 'lake': org.apache.iceberg.spark.SparkCatalog",
            )
        ),
        java(("java.lang.NoClassDefFoundError", "org/apache/spark/x")),
    ],
    (FailureKind.JDBC_DRIVER_MISSING, errors.SparkEnvironmentError): [
        iceberg(
            "UncheckedSQLException",
            "Failed to connect",
            ("java.sql.SQLException", "No suitable driver found for jdbc:sqlite:x"),
        )
    ],
    (FailureKind.SQL_EXTENSIONS_MISSING, errors.SparkEnvironmentError): [
        spark("PARSE_SYNTAX_ERROR", "Syntax error at or near 'WRITE'", ParseException)
    ],
    (FailureKind.CREDENTIALS_EXPIRED, errors.CredentialsExpiredError): [
        java(
            (
                "software.amazon.awssdk.services.s3.model.S3Exception",
                "The provided token has expired. (Service: S3, Status Code: 400, Error Code: ExpiredToken)",
            )
        ),
        java(("com.amazonaws.X", "The security token included in the request is expired")),
        iceberg("RESTException", "Unable to process (code: 419, type: AuthenticationTimeoutException): x"),
        connect(f"{ICEBERG}RESTException", "Unable to process (code: 419, type: null): x"),
    ],
    (FailureKind.BRANCHES_UNSUPPORTED, errors.ConfigurationError): [
        java(("java.lang.IllegalArgumentException", "Cannot use branch (does not exist): dev"))
    ],
    (FailureKind.CREDENTIALS_REFUSED, errors.CredentialsExpiredError): [
        iceberg("NotAuthorizedException", "Not authorized: no"),
        iceberg("ForbiddenException", "Forbidden: no"),
        postgresql('FATAL: password authentication failed for user "u"'),
        postgresql("The server requested SCRAM-based authentication, but no password was provided."),
        java(
            (
                "software.amazon.awssdk.services.s3.model.S3Exception",
                "The request signature we calculated does not match the signature you provided. (Service: S3, 403)",
            )
        ),
        java(
            (
                "software.amazon.awssdk.services.s3.model.S3Exception",
                "The AWS Access Key Id you provided does not exist in our records. (Service: S3, Status Code: 403)",
            )
        ),
        java(
            ("org.apache.iceberg.jdbc.UncheckedSQLException", "Failed to connect"),
            ("java.sql.SQLException", "Access denied for user 'u'@'localhost' (using password: YES)"),
        ),
    ],
    (FailureKind.SQLITE_FILE_DAMAGED, errors.InvestigationError): [
        sqlite("[SQLITE_NOTADB] File opened that is not a database file (file is not a database)"),
        sqlite("[SQLITE_CORRUPT] The database disk image is malformed (database disk image is malformed)"),
        sqlite("[SQLITE_READONLY_DBMOVED] The database file has been moved since it was opened"),
    ],
    (FailureKind.SQLITE_FILE_READ_ONLY, errors.ConfigurationError): [
        sqlite("[SQLITE_READONLY] Attempt to write a readonly database (attempt to write a readonly database)"),
        sqlite("[SQLITE_READONLY_DIRECTORY] Process does not have permission to create a journal file"),
        sqlite("[SQLITE_CANTOPEN] Unable to open the database file (unable to open database file)"),
        connect_caused_by(("org.sqlite.SQLiteException", "[SQLITE_READONLY] Attempt to write a readonly database")),
    ],
    (FailureKind.SQLITE_FILE_LOCKED, errors.CatalogUnavailableError): [
        sqlite("[SQLITE_BUSY] The database file is locked (database is locked)"),
        sqlite("[SQLITE_BUSY] x", action="Failed to execute: INSERT INTO iceberg_namespace_properties"),
        connect_caused_by(("org.sqlite.SQLiteException", "[SQLITE_BUSY] The database file is locked")),
    ],
    (FailureKind.DISK_FULL, errors.CatalogUnavailableError): [
        java(("java.io.UncheckedIOException", "Failed to flush"), ("java.io.IOException", "No space left on device")),
        java(("x.Y", "Failed"), ("java.io.FileNotFoundException", "/wh/x.avro (No space left on device)")),
        java(("x.Y", "Failed"), ("java.io.IOException", "File too large")),
        sqlite("[SQLITE_FULL] Insertion failed because database is full (database or disk is full)"),
    ],
    (FailureKind.PERMISSION_DENIED, errors.ConfigurationError): [
        java(("x.Y", "Failed to create file"), ("java.io.FileNotFoundException", "/wh/x.avro (Permission denied)")),
        java(("x.Y", "Failed to create file"), ("java.io.IOException", "Mkdirs failed to create file:/wh/db/t")),
        iceberg("NotFoundException", "Failed to open", ("java.io.FileNotFoundException", "/wh/x (Permission denied)")),
        java(("org.apache.hadoop.security.AccessControlException", "Permission denied: user=me, access=WRITE")),
        connect_caused_by(("java.io.FileNotFoundException", "/wh/db/t/metadata/x.avro (Permission denied)")),
    ],
    (FailureKind.AWS_ACCESS_DENIED, errors.ConfigurationError): [
        java(("software.amazon.awssdk.services.s3.model.S3Exception", "Access Denied (Service: S3, Status Code: 403)")),
        java(("software.amazon.awssdk.services.glue.model.AccessDeniedException", "User is not authorized to do it")),
    ],
    (FailureKind.HADOOP_USER_REFUSED, errors.CredentialsExpiredError): [
        java(("x.Y", "Failed"), ("org.apache.thrift.transport.TTransportException", "GSS initiate failed"))
    ],
    (FailureKind.METASTORE_PRIVILEGE_MISSING, errors.ConfigurationError): [
        java(("x.Y", "Failed"), (f"{HIVE}MetaException", "No privilege 'Select' found for inputs { database:db }"))
    ],
    (FailureKind.THROTTLED, errors.CatalogUnavailableError): [
        java(("s3.S3Exception", "Please reduce your request rate. (Service: S3, Status Code: 503)")),
        java(("s3.S3Exception", "null (Service: S3, Status Code: 503, Error Code: SlowDown)")),
        java(("glue.GlueException", "Rate exceeded (Service: Glue, Status Code: 400)")),
        java(("software.amazon.awssdk.services.dynamodb.model.ProvisionedThroughputExceededException", "x")),
        java(("com.azure.storage.blob.models.BlobStorageException", "Status code 503, ServerBusy")),
        java(("com.google.cloud.storage.StorageException", "rateLimitExceeded")),
        iceberg("RESTException", "Unable to process (code: 429, type: TooManyRequestsException): x"),
        connect(f"{ICEBERG}RESTException", "Unable to process (code: 429, type: null): x"),
    ],
    (FailureKind.NAMESPACE_MISSING, errors.ConfigurationError): [
        iceberg("NoSuchNamespaceException", "Namespace does not exist: db"),
        connect("", "[SCHEMA_NOT_FOUND] The schema `lake`.`db` cannot be found."),
    ],
    (FailureKind.COMMIT_CONFLICT, errors.CommitConflictError): [
        java(("software.amazon.awssdk.services.glue.model.ConcurrentModificationException", "Update failed")),
        java(("org.apache.iceberg.hive.LockException", "x"), ("org.apache.iceberg.hive.WaitingForLockException", "x")),
        iceberg("CommitFailedException", "Cannot commit db.t: metadata location x has changed from y"),
        connect(f"{ICEBERG}CommitFailedException", "Cannot commit"),
        iceberg("ValidationException", "Found conflicting files that can contain records matching x"),
        iceberg("ValidationException", "Found conflicting deleted files that can contain x"),
        connect(f"{ICEBERG}ValidationException", "Cannot delete file where some, but not all, rows match filter x"),
        iceberg("ValidationException", "Cannot determine history between starting snapshot 1 and 2"),
        java(
            (
                "org.apache.spark.SparkException",
                "Unsupported table change: Cannot add column, name already exists: extra",
            )
        ),
        iceberg("CommitFailedException", "Table metadata refresh is required"),
        sqlite("[SQLITE_ERROR] SQL error or missing database (duplicate column name: iceberg_type)"),
        iceberg(
            "UncheckedSQLException",
            "Cannot check and eventually update SQL schema",
            (
                "org.postgresql.util.PSQLException",
                'ERROR: column "iceberg_type" of relation "iceberg_tables" already exists',
            ),
        ),
        java(("java.lang.IllegalArgumentException", "Cannot add duplicate partition field null=day(ts)")),
        java(("java.lang.IllegalArgumentException", "Cannot find partition field to remove: x")),
        spark("FIELD_ALREADY_EXISTS", "x", AnalysisException),
    ],
    (FailureKind.TABLE_VANISHED, errors.CommitConflictError): [
        spark("TABLE_OR_VIEW_NOT_FOUND", "The table cannot be found", AnalysisException)
    ],
    (FailureKind.DATABASE_PERMISSION_DENIED, errors.ConfigurationError): [
        postgresql("ERROR: permission denied for schema public"),
        postgresql("ERROR: permission denied for table iceberg_tables"),
        postgresql('FATAL: permission denied for database "closed"'),
        postgresql('FATAL: role "me" is not permitted to log in'),
    ],
    (FailureKind.DATABASE_ADDRESS_WRONG, errors.ConfigurationError): [
        postgresql('FATAL: database "nowhere" does not exist'),
        postgresql('FATAL: no pg_hba.conf entry for host "h", no encryption'),
        postgresql("The server does not support SSL."),
        postgresql("Invalid sslmode value: sometimes"),
        postgresql('FATAL: unrecognized configuration parameter "bogus"'),
    ],
    (FailureKind.REQUEST_REFUSED, errors.ConfigurationError): [
        iceberg("BadRequestException", "Malformed request: Unknown warehouse 'x'"),
        iceberg("NoSuchWarehouseException", "Warehouse 'x' not found"),
        connect(f"{ICEBERG}BadRequestException", "Malformed request: no"),
    ],
    (FailureKind.NOT_A_REST_CATALOG, errors.CatalogUnavailableError): [
        iceberg("RESTException", "Unable to process (code: 404, type: null): <html>"),
        iceberg("RESTException", "Error occurred while processing GET request", (f"{SHADED}JsonParseException", "'<'")),
    ],
    (FailureKind.CATALOG_UNREACHABLE, errors.CatalogUnavailableError): [
        iceberg("RESTException", "Unable to process (code: 502, type: null): <html>"),
        postgresql("FATAL: the database system is starting up"),
        iceberg("ServiceUnavailableException", "Service failed: 503"),
        iceberg("ServiceFailureException", "Server error"),
        connect(f"{ICEBERG}RESTException", "Error occurred while processing GET request"),
        iceberg("UncheckedSQLException", "Failed to connect"),
        java(("x.Y", "failed"), ("java.net.ConnectException", "Connection refused")),
        java(("java.net.SocketTimeoutException", "Read timed out")),
        java(("java.net.UnknownHostException", "nowhere")),
        java(("java.net.NoRouteToHostException", "x")),
        java(("java.net.SocketException", "Connection reset")),
        java(("java.util.concurrent.TimeoutException", "x")),
        java(("x.Y", "failed"), ("org.apache.hc.core5.http.NoHttpResponseException", "x failed to respond")),
        java(("org.apache.http.conn.ConnectTimeoutException", "x")),
        java(("software.amazon.awssdk.core.exception.SdkClientException", "Unable to execute HTTP request")),
        java(("software.amazon.awssdk.core.exception.ApiCallTimeoutException", "x")),
        java(("software.amazon.awssdk.core.exception.ApiCallAttemptTimeoutException", "x")),
        java(("org.apache.thrift.transport.TTransportException", "x")),
    ],
    (FailureKind.FILE_MISSING, errors.InvestigationError): [
        iceberg("NotFoundException", "Failed to open input stream for file: file:/wh/x.avro"),
        java(("org.apache.spark.SparkException", "Job aborted"), (f"{ICEBERG}NotFoundException", "Failed to open x")),
        connect_caused_by((f"{ICEBERG}NotFoundException", "Failed to open input stream for file: file:/wh/x.parquet")),
    ],
    (FailureKind.METADATA_DAMAGED, errors.InvestigationError): [
        iceberg("RuntimeIOException", "Failed to open file: file:/wh/x.avro", ("java.io.EOFException", None)),
        java(("x.avro.AvroRuntimeException", "java.io.IOException: Invalid sync!")),
        connect(f"{ICEBERG}RuntimeIOException", "Failed to open file: file:/wh/x.avro"),
    ],
    (FailureKind.DATA_FILE_DAMAGED, errors.InvestigationError): [
        iceberg("RuntimeIOException", "Failed to fetch", ("java.io.EOFException", "Reached the end of stream with 5")),
        java(("java.lang.RuntimeException", "file:/wh/x.parquet is not a Parquet file. Expected magic number at tail")),
    ],
    (FailureKind.CONNECTION_LOST, errors.CommitOutcomeUnknownError): [
        SparkConnectGrpcException("<_MultiThreadedRendezvous of RPC that terminated with: UNAVAILABLE>"),
        SparkConnectGrpcException(UNAVAILABLE),
    ],
    (FailureKind.SESSION_ENDED, errors.CatalogUnavailableError): [
        SparkConnectException(errorClass="NO_ACTIVE_SESSION", messageParameters={}),
        SparkConnectGrpcException("[INVALID_HANDLE.SESSION_CHANGED] The handle x is invalid."),
        PySparkAssertionError("Received incorrect server side session identifier for request. (1 != 2)"),
    ],
    (FailureKind.PYTHON_FUNCTION_FAILED, errors.WriteFailedError): [PythonException(PYTHON_TEXT)],
    (FailureKind.ENGINE_FAILED, errors.WriteFailedError): [
        java(("java.lang.OutOfMemoryError", "Java heap space")),
        spark("DIVIDE_BY_ZERO", "Division by zero"),
        Py4JError("An error occurred while calling o1"),
    ],
}
"""Errors by their kind and by the error class that they become."""
CASES = [(kind, error, becomes) for (kind, becomes), raised in FAILURES.items() for error in raised]


@pytest.mark.parametrize(("kind", "error", "becomes"), CASES, ids=lambda value: getattr(value, "label", ""))
def test_an_engine_error_becomes_an_error_of_the_package(
    kind: FailureKind, error: Exception, becomes: type[errors.IcebergSparkError]
) -> None:
    assert kind_of(inspect_failure(error)) is kind
    assert type(translate(error, action="write", subject="db.t")) is becomes


@pytest.mark.parametrize(
    ("missing", "becomes"),
    [
        ("`lake`.`db`.`t`", errors.CommitConflictError),
        ("`lake`.`db`.`t`.`branch_audit`", errors.CommitConflictError),
        ("`lake`.`db`.`t2`", errors.ConfigurationError),
        ("`t`", errors.ConfigurationError),
        ("`other`.`db``s`.`t`", errors.ConfigurationError),
    ],
)
def test_only_the_written_table_can_have_vanished(missing: str, becomes: type[errors.IcebergSparkError]) -> None:
    text = f"The table or view {missing} cannot be found. Verify the spelling."
    error = spark("TABLE_OR_VIEW_NOT_FOUND", text, AnalysisException)
    found = translate(error, action="write", subject="db.t")
    assert (type(found), missing in str(found)) == (becomes, True)


def test_every_recognizer_applies_to_a_listed_error() -> None:
    first = {next((it for it in RECOGNISERS if it.recognises(inspect_failure(error))), None) for _, error, _ in CASES}
    assert first == {*RECOGNISERS, None}


def test_every_listed_error_is_an_engine_error() -> None:
    assert all(isinstance(error, ENGINE_ERRORS) for _, error, _ in CASES)


@pytest.mark.parametrize(
    ("names", "text", "kind"),
    [
        (
            (f"{ICEBERG}CommitStateUnknownException", f"{ICEBERG}CommitFailedException"),
            "x",
            FailureKind.COMMIT_OUTCOME_UNKNOWN,
        ),
        ((f"{ICEBERG}CommitFailedException", "java.net.ConnectException"), "x", FailureKind.COMMIT_CONFLICT),
        (
            (f"{ICEBERG}CommitStateUnknownException", "java.net.SocketTimeoutException"),
            "x",
            FailureKind.COMMIT_OUTCOME_UNKNOWN,
        ),
        (("x.Y", f"{ICEBERG}CommitFailedException"), OUTSIDE_MARKER + "{}", FailureKind.ROW_OUTSIDE_PARTITION),
        ((f"{ICEBERG}RESTException", f"{ICEBERG}NotAuthorizedException"), "x", FailureKind.CREDENTIALS_REFUSED),
        (
            (f"{ICEBERG}NotFoundException", "com.google.cloud.storage.StorageException"),
            "404 Not Found",
            FailureKind.FILE_MISSING,
        ),
    ],
)
def test_a_specific_sign_takes_precedence_over_a_broad_one(
    names: tuple[str, ...], text: str, kind: FailureKind
) -> None:
    assert kind_of(inspect_failure(java(*((name, text) for name in names)))) is kind


@pytest.mark.parametrize(
    ("traceback", "found"),
    [
        (PYTHON_TEXT, "ValueError: no such conflict: Access Denied"),
        (f"{PYTHON_TEXT}\nJVM stacktrace:\norg.apache.spark.api.python.PythonException: x", "ValueError: no such"),
        (
            f"{PYTHON_TEXT}\nDuring handling of the above exception:\n\n{PYTHON_TEXT}".replace("Value", "Key", 1),
            "Value",
        ),
    ],
)
def test_the_error_of_a_python_function_is_in_the_message(traceback: str, found: str) -> None:
    error = translate(PythonException(traceback), action="write", subject="db.t")
    assert f"found {found}" in str(error)
    wrapped = java(("org.apache.spark.SparkException", "Job aborted"), ("x.PythonException", traceback))
    assert found in str(translate(wrapped, action="write", subject="db.t"))


def test_a_line_that_announces_the_next_one_is_summarized_by_both() -> None:
    null = "[NOT_NULL_ASSERT_VIOLATION] NULL value appeared in non-nullable field:\n- field (class: int, name: id)"
    found = inspect_failure(PythonException(null)).summary
    assert found.endswith("NULL value appeared in non-nullable field: - field (class: int, name: id)")


def test_a_grpc_error_is_summarized_by_its_details() -> None:
    summary = inspect_failure(SparkConnectGrpcException(UNAVAILABLE)).summary
    assert summary == "UNAVAILABLE: failed to connect to all addresses; last error: Socket closed"


@pytest.mark.parametrize("action", ["prepare", "read", "open"])
def test_only_a_write_has_an_outcome_that_may_be_unknown(action: str) -> None:
    error = connect(f"{ICEBERG}CommitStateUnknownException", "x")
    assert type(translate(error, action=action, subject="t")) is errors.CatalogUnavailableError


@pytest.mark.parametrize("action", ["prepare", "read", "open"])
def test_only_a_write_can_find_expired_credentials(action: str) -> None:
    error = iceberg("NotAuthorizedException", "x")
    assert type(translate(error, action=action, subject="t")) is errors.ConfigurationError


def test_reading_a_missing_table_is_an_upstream_error() -> None:
    error = spark("TABLE_OR_VIEW_NOT_FOUND", "x", AnalysisException)
    assert type(translate(error, action="read", subject="t")) is errors.UpstreamMissingError


def test_the_message_shows_the_first_line_and_no_stack() -> None:
    error = connect(f"{ICEBERG}ValidationException", "\n  Found conflicting files: a\nmore")
    message = str(translate(error, action="write", subject="db.t"))
    assert message == (
        "Cannot write db.t: expected no other writer to change the table at the same time, found Found conflicting "
        "files: a. Hint: run the asset again."
    )


def test_the_server_s_stack_trace_is_ignored() -> None:
    assert kind_of(inspect_failure(connect("x.Y", "boom"))) is FailureKind.ENGINE_FAILED


@pytest.mark.parametrize("raised", [java, lambda *causes: connect(*causes[-1])], ids=["classic", "connect"])
def test_a_stack_trace_in_a_message_is_ignored(raised: Callable[..., Exception]) -> None:
    message = (
        "Could not connect to meta store using any of the URIs provided. Most recent failure: "
        "org.apache.thrift.transport.TTransportException: java.net.ConnectException: Connection refused\n"
        "\tat org.apache.thrift.transport.TSocket.open(TSocket.java:255)\n"
        "\tat org.apache.iceberg.spark.SparkCatalog.load(SparkCatalog.java:901)\n"
        "\t\tat jdk.proxy2/jdk.proxy2.$Proxy58.getTable(Unknown Source)"
    )
    error = raised(("java.lang.RuntimeException", "Failed to get table info"), (f"{HIVE}MetaException", message))
    assert kind_of(inspect_failure(error)) is FailureKind.CATALOG_UNREACHABLE
    assert "SparkCatalog" not in inspect_failure(error).text


def test_the_message_names_the_deepest_causes_without_their_wrappers() -> None:
    wrapped = ("java.util.concurrent.ExecutionException", "Job aborted due to stage failure")
    causes = (("a.A", "Failed to fetch file: x.parquet"), ("b.B", "Reached the end of stream with 5 bytes left"))
    awaited = ("org.apache.spark.SparkException", "Exception thrown in awaitResult: ")
    found = "found a.A: Failed to fetch file: x.parquet; b.B: Reached the end of stream with 5 bytes left."
    assert found in str(translate(java(awaited, wrapped, *causes), action="write", subject="t"))
    assert "Unknown failure; b.B:" in str(translate(connect_caused_by(*causes), action="write", subject="t"))


def test_secrets_are_removed_from_the_message() -> None:
    error = java(("x.Y", "no login for hunter2"))
    redacted = translate(error, action="write", subject="t", redact=lambda text: text.replace("hunter2", "***"))
    assert "hunter2" not in str(redacted)
    assert "found no login for ***" in str(redacted)


def test_causes_are_listed_with_their_classes_up_to_a_limit() -> None:
    failure = inspect_failure(java(("a.A", "outer"), ("b.B", None)))
    assert failure.text == "outer\n| caused by: b.B: b.B"
    assert failure.class_names == ("a.A", "b.B", "Py4JJavaError")
    circle = FakeThrowable("c.C", "again")
    circle._cause = circle
    error = java(("d.D", "x"))
    error.java_exception = circle
    assert len(inspect_failure(error).class_names) == 11


ROWS = {
    "instant": (
        "d: ts=1357084799999999 microseconds since 1970",
        "ts=2013-01-01T23:59:59.999999+00:00 in the run of d",
    ),
    "before 1970": ("d: ts=-1 microseconds since 1970", "ts=1969-12-31T23:59:59.999999+00:00 in the run of d"),
    "far away": (f"d: ts={10**18} microseconds since 1970", f"ts={10**18} microseconds since 1970 in the run of d"),
    "null": ("d: day=NULL", "day=NULL in the run of d"),
    "no instant": ("d: ts=NULL microseconds since 1970", "ts=NULL in the run of d"),
    "two columns": ("a|b: k=it's, n=7", "k=it's, n=7 in the run of a|b"),
    "a line break": ("d: k=x\ny", "k=x\ny in the run of d"),
}


@pytest.mark.parametrize("ending", [" SQLSTATE: P0001", "", "\n\nJVM stacktrace:\nx"])
@pytest.mark.parametrize(("row", "found"), ROWS.values(), ids=list(ROWS))
def test_the_row_outside_is_shown_with_its_values(row: str, found: str, ending: str) -> None:
    error = spark("USER_RAISED_EXCEPTION", f"{OUTSIDE_MARKER}{row}{OUTSIDE_END}{ending}")
    message = str(translate(error, action="write", subject="t"))
    assert message.startswith(
        f"Cannot write t: expected only rows of the run's partitions, found a row with {found}. Hint: filter"
    )


def test_the_row_outside_is_found_among_the_causes_of_a_classic_session() -> None:
    cause = f"[USER_RAISED_EXCEPTION] {OUTSIDE_MARKER}d: c=NULL{OUTSIDE_END} SQLSTATE: P0001"
    error = java(("a.A", "Job aborted"), ("b.B", cause))
    assert "found a row with c=NULL in the run of d." in str(translate(error, action="write", subject="t"))


@pytest.mark.parametrize("error", [RuntimeError("x"), ValueError("")])
def test_every_error_has_a_translation(error: Exception) -> None:
    message = str(translate(error, action="write", subject="t"))
    assert f"found {str(error) or 'no message'}" in message


def test_an_azure_error_is_summarized_with_its_code() -> None:
    refused = java(("java.io.IOException", "x"), ("com.azure.storage.blob.models.BlobStorageException", AZURE_REFUSES))
    assert "AuthorizationFailure: Server failed to authenticate the request." in inspect_failure(refused).summary
