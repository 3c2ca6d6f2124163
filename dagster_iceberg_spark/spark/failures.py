"""What the engine's errors mean, in one table: the border where foreign errors become the package's own."""

import datetime as dt
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

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

ENGINE_ERRORS: Final = (PySparkException, Py4JError)
"""What a call of Spark's public API raises, classic and Connect."""

OUTSIDE_MARKER: Final = "dagster-iceberg-spark: row outside of the partition "
OUTSIDE_END: Final = " (end of the row)"
NULL_MARKER: Final = "dagster-iceberg-spark: NULL in the required column "
MOVED_MARKER: Final = "dagster-iceberg-spark: rows that others have changed since they were compared"
VALUE_MARKER: Final = "dagster-iceberg-spark: no value of the type "
MICROSECONDS: Final = " microseconds since 1970"

_CONNECT_CLASS = re.compile(r"^\(([\w.$]+)\)\s*(.*)", re.DOTALL)
_STACKTRACE: Final = "\n\nJVM stacktrace:"
_CONNECT_CAUSE = re.compile(r"^Caused by: ([\w.$]+): (.*?)(?=\n\s+at |\nCaused by: |\Z)", re.MULTILINE | re.DOTALL)
_AZURE_SAYS = re.compile(r"<Code>(\w+)</Code>\s*<Message>([^<\n]*)")
_STACK_LINE = re.compile(r"^\t+at \S+\(.*\n?", re.MULTILINE)
"""Of the stacks that Hive's client writes into its messages: what they pass through is no sign of anything."""
_GRPC = re.compile(r'status = StatusCode\.(?P<status>\w+)\s+details = "(?P<details>.*)"')
"""In what grpc says of an error of its own; the first line names a Python class."""
_PYTHON_ERROR = re.compile(r"^Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)", re.MULTILINE)
"""The line that tells the error of a Python function, after where it was raised."""
_CAUSE: Final = "\n| caused by: "
_WRAPPERS: Final = ("Exception thrown in awaitResult", "Job aborted", "Writing job aborted")
"""What Spark says around the error of a task; where it has no cause it is all that is known."""
_MAXIMUM_CAUSES: Final = 10
_MAXIMUM_LINE: Final = 400
_OUTSIDE = re.compile(
    rf"{re.escape(OUTSIDE_MARKER)}(?P<partitions>.*?): (?P<row>.*?){re.escape(OUTSIDE_END)}", re.DOTALL
)
_INSTANT = re.compile(rf"(?<==)(-?\d+|NULL){MICROSECONDS}")
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)


@dataclass(frozen=True, slots=True)
class EngineFailure:
    """What can be told of an engine's error.

    Args:
        class_names: Java classes of the error and its causes, outermost first.
        condition: Spark's error condition, such as `TABLE_OR_VIEW_NOT_FOUND`.
        text: The messages, without stack traces.
    """

    class_names: tuple[str, ...]
    condition: str
    text: str

    @property
    def summary(self) -> str:
        """The first lines of the message, unless it only wraps, and of its two deepest causes."""
        first, *causes = self.text.split(_CAUSE)
        parts = causes[-2:] if causes and first.startswith(_WRAPPERS) else (first, *causes[-1:])
        lines = [_first_line(part) for part in parts]
        return "; ".join(dict.fromkeys(line[:_MAXIMUM_LINE] for line in lines if line)) or "no message"

    def mentions(self, *needles: str) -> bool:
        """Say whether a class name or the text contains one of the needles."""
        return any(needle in self.text or any(needle in name for name in self.class_names) for needle in needles)


@dataclass(frozen=True, slots=True)
class _Condition:
    """Tells a failure by the beginning of Spark's error condition."""

    signs: tuple[str, ...]

    def __call__(self, failure: EngineFailure) -> bool:
        return failure.condition.startswith(self.signs)


@dataclass(frozen=True, slots=True)
class _Mention:
    """Tells a failure by what the names of its classes, or its messages, contain."""

    signs: tuple[str, ...]

    def __call__(self, failure: EngineFailure) -> bool:
        return failure.mentions(*self.signs)


@dataclass(frozen=True, slots=True)
class _ClassName:
    """Tells a failure by the beginning of the name of a class."""

    signs: tuple[str, ...]

    def __call__(self, failure: EngineFailure) -> bool:
        return any(name.startswith(self.signs) for name in failure.class_names)


@dataclass(frozen=True, slots=True)
class _Every:
    """Tells a failure by several signs that it has together."""

    signs: tuple[str, ...]

    def __call__(self, failure: EngineFailure) -> bool:
        return all(failure.mentions(sign) for sign in self.signs)


@dataclass(frozen=True, slots=True)
class FailureRule:
    """A kind of engine error, what tells it, and what it becomes."""

    name: str
    applies: _Condition | _Mention | _ClassName | _Every
    error: type[IcebergSparkError]
    expected: str
    hint: str | None = None

    @property
    def needs_every_sign(self) -> bool:
        """Whether one of the signs does not do."""
        return isinstance(self.applies, _Every)


def _condition(*signs: str) -> _Condition:
    return _Condition(signs)


def _mention(*signs: str) -> _Mention:
    return _Mention(signs)


NO_NAMESPACE: Final = "missing namespace"
WRONG_ADDRESS: Final = "another service"
_REST_CATALOG: Final = ("the answers of an Iceberg REST catalog", "correct `uri` and `prefix` of the catalog.")
_UNANSWERED: Final = FailureRule(
    "connection lost",
    _ClassName(("SparkConnectGrpcException", "RetriesExceeded")),
    CommitOutcomeUnknownError,
    "an answer of the Spark Connect server",
)
RULES: Final = (
    FailureRule(
        "session ended",
        _mention(
            "NO_ACTIVE_SESSION",
            "INVALID_HANDLE.SESSION_CHANGED",
            "Received incorrect server side session identifier",
        ),
        CatalogUnavailableError,
        "a Spark Connect server that has not been started anew meanwhile",
        "run the asset again: it gets another session.",
    ),
    _UNANSWERED,
    FailureRule(
        "row outside",
        _mention(OUTSIDE_MARKER),
        RowsOutsidePartitionError,
        "only rows of the run's partitions",
        'filter the DataFrame, or set `iceberg/rows_outside_partition` to "drop" to leave such rows out and count '
        "them.",
    ),
    FailureRule(
        "rows changed meanwhile",
        _mention(MOVED_MARKER),
        CommitConflictError,
        "the rows that the batch was compared with",
        "run the asset again.",
    ),
    FailureRule(
        "null in required column",
        _mention("NOT_NULL_ASSERT_VIOLATION", NULL_MARKER),
        NullValueError,
        "no NULL in a required column",
        "fill or filter the column in the asset.",
    ),
    FailureRule(
        "value of no such type",
        _mention(VALUE_MARKER),
        SchemaMismatchError,
        "uuids as texts such as 'f79c3e09-677c-4bbd-a479-3f349cb785e7', and binary values of the length of a fixed",
        "correct the column in the asset.",
    ),
    FailureRule(
        "type that Spark lacks",
        _Every(("Spark does not support ", " fields")),
        ConfigurationError,
        "a table of types that Spark has",
        "load it as a pyarrow.Table, or another type that takes no JVM; no asset of this IO manager can write it.",
    ),
    FailureRule(
        "value does not fit",
        _mention("CAST_OVERFLOW_IN_TABLE_INSERT", "INCOMPATIBLE_DATA_FOR_TABLE", "INSERT_COLUMN_ARITY_MISMATCH"),
        SchemaMismatchError,
        "values that the table's column types hold",
        "cast the column in the asset.",
    ),
    FailureRule(
        "Python function",  # with a message of its own, which may contain any other sign
        _mention("An exception was thrown from the Python worker"),
        WriteFailedError,
        "that the DataFrame's own Python functions return",
        "the error's cause shows where it was raised.",
    ),
    FailureRule(
        "column types that Hive keeps",  # which Iceberg takes for an answer that it did not understand
        _mention("types incompatible with the existing columns"),
        ConfigurationError,
        "a Hive Metastore that lets the type of the column in a place change, as it does where one is dropped or moved",
        "set `hive.metastore.disallow.incompatible.col.type.changes` to `false` where the metastore runs.",
    ),
    FailureRule(
        "untrusted certificate",  # before anything was asked
        _mention("PKIX path building failed", "PKIX path validation failed", "unable to find valid certification path"),
        ConfigurationError,
        "a certificate of an authority that Spark's JVM trusts",
        "import the authority into a trust store (`keytool -importcert`), and start the JVM, or the Spark Connect "
        "server, with `-Djavax.net.ssl.trustStore=<path>` in `spark.driver.extraJavaOptions` and "
        "`spark.executor.extraJavaOptions`. `ca_bundle` of a REST catalog is for reads without a JVM.",
    ),
    FailureRule(
        "unknown outcome",
        # The REST client reports a request without an answer by its method alone.
        _mention("CommitStateUnknownException", "Error occurred while processing POST request"),
        CommitOutcomeUnknownError,
        "an answer to the commit",
    ),
    FailureRule(
        "missing client of the store",
        _mention(
            "Cannot initialize FileIO",
            "software/amazon/awssdk",  # as a NoClassDefFoundError writes a class
            "com/google/cloud/storage",
            "com/azure/storage",
        ),
        SparkEnvironmentError,
        "the client of the object store in the session",
        f"a JVM that runs already loads no more jars: start it with `spark.jars.packages` holding {ICEBERG_AWS_BUNDLE} "
        f"for S3, {ICEBERG_GCP_BUNDLE} for GCS, {ICEBERG_AZURE_BUNDLE} for ADLS, or let the resource start it.",
    ),
    FailureRule(
        "missing file system",
        _mention(
            "No FileSystem for scheme",
            "fs.azurebfs.AzureBlobFileSystem not found",
            "fs.azurebfs.SecureAzureBlobFileSystem not found",
            "fs.s3a.S3AFileSystem not found",
        ),
        SparkEnvironmentError,
        "Hadoop's client of the warehouse's scheme in the session",
        "say with the catalog's `store` that Iceberg's own client is meant (`AdlsStore`, `GcsStore`, `S3Store`), or "
        "add Hadoop's to `spark.jars.packages`.",
    ),
    FailureRule(
        "missing runtime",
        _mention(
            "CATALOG_NOT_FOUND",
            "Cannot find catalog plugin class",
            "org.apache.iceberg.spark.SparkCatalog",
            "ClassNotFoundException: org.apache.iceberg",
            "NoClassDefFoundError",
        ),
        SparkEnvironmentError,
        "Iceberg's runtime for Spark 4.1 and the catalog's JDBC driver in the session",
        f"start the session with `spark.jars.packages` holding {ICEBERG_SPARK_RUNTIME}, or let the resource start it.",
    ),
    FailureRule(
        "missing driver",
        _mention("No suitable driver"),
        SparkEnvironmentError,
        "the catalog's JDBC driver in the session",
        "add the driver's Maven coordinate to `spark.jars.packages` of the session.",
    ),
    FailureRule(
        "missing extensions",
        _condition("PARSE_SYNTAX_ERROR"),
        SparkEnvironmentError,
        "a session with Iceberg's SQL extensions",
        f"set spark.sql.extensions to {ICEBERG_EXTENSIONS} when the session starts.",
    ),
    FailureRule(
        "name that Hive does not take",
        _mention("is not a valid object name", "is not a valid database name"),
        ConfigurationError,
        "a name of letters, digits and underscores in a Hive Metastore",
        "name the table by `iceberg/table` and its namespace by `schema`.",
    ),
    FailureRule(
        "missing locks",
        _mention("'HIVE_LOCKS' does not exist"),
        ConfigurationError,
        "the tables of locks in the Hive Metastore's database",
        "initialise its schema with Hive's `schematool`.",
    ),
    FailureRule(
        "another Hive",
        _mention("TApplicationException: Invalid method name"),
        ConfigurationError,
        "a Hive Metastore that answers clients of Hive 2.3",
        "use one of Hive 2.3 to 4.0.0, or its REST endpoint with `RestCatalog`.",
    ),
    FailureRule(
        "missing AWS credentials",
        _mention("Unable to load credentials from any of the providers", "Unable to load region from any of"),
        ConfigurationError,
        "AWS credentials and a region that Spark finds",
        "set `credentials` and `region` of the store; on a cluster or a Spark Connect server, give its nodes a role.",
    ),
    FailureRule(
        "missing bucket",
        _mention(
            "NoSuchBucketException", "The specified bucket does not exist", "The specified container does not exist"
        ),
        ConfigurationError,
        "a bucket or container that exists",
        "create it, or correct the catalog's `warehouse`, or the store's `endpoint` and `region`.",
    ),
    FailureRule(
        "wrong clock",
        _mention("RequestTimeTooSkewed", "Signature expired", "Signature not yet current"),
        ConfigurationError,
        "a clock that is minutes from the store's at most",
        "set the clock of the machine that Spark runs on.",
    ),
    FailureRule(
        "expired credentials",
        _mention(
            "ExpiredToken",
            "The security token included in the request is expired",
            "AuthenticationTimeoutException",
            "Signature not valid in the specified time frame",  # what Azure says of a shared access signature
            "(code: 419",
        ),
        CredentialsExpiredError,
        "credentials that are valid until the commit",
        "run the asset again; if that repeats, give the catalog or the store credentials that outlive the write.",
    ),
    FailureRule(
        "refused by Azure",
        _mention(
            "<Code>AuthenticationFailed",
            "<Code>AuthorizationFailure",
            "<Code>AuthorizationPermissionMismatch",
            "<Code>InvalidAuthenticationInfo",
            "<Code>KeyBasedAuthenticationNotPermitted",
            "<Code>NoAuthenticationInformation",
            "com.azure.core.exception.ClientAuthenticationException",
            "com.azure.identity.CredentialUnavailableException",
        ),
        ConfigurationError,
        "credentials that the store accepts",
        "check `account_key`, `sas_token` or the client of the store; a client needs a role on the container's data.",
    ),
    FailureRule(
        "refused by Google",
        _mention(
            "OAuth2Credentials instance does not support refreshing",  # so it says when a token is refused
            "com.google.api.client.http.HttpResponseException: 401",
            "com.google.api.client.http.HttpResponseException: 403",
            "Your default credentials were not found",
        ),
        ConfigurationError,
        "credentials that the store accepts",
        "check the `token` of the store, which may have expired, or what Google's default chain finds in its place.",
    ),
    FailureRule(
        "no branches",  # Nessie makes one, and forgets it
        _mention("Cannot use branch (does not exist)"),
        ConfigurationError,
        "a catalog that keeps the branches of tables",
        "leave `iceberg/branch` out; a branch of Nessie's own stands in the catalog's `uri`.",
    ),
    FailureRule(
        "not authorised",
        _mention(
            "NotAuthorizedException",
            "ForbiddenException",
            "password authentication failed",
            "no password was provided",
            "Access denied for user",  # MySQL's words
            "InvalidAccessKeyId",
            "SignatureDoesNotMatch",
            "The request signature we calculated does not match",  # S3's words for it, without the code
            "The AWS Access Key Id you provided does not exist",
            "GSS initiate failed",  # Kerberos
        ),
        ConfigurationError,
        "credentials that the catalog accepts",
        "check the catalog's credentials in the resource configuration.",
    ),
    FailureRule(
        "damaged catalog",
        _mention("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_READONLY_DBMOVED"),
        InvestigationError,
        "the catalog's SQLite file in one piece, where it was when it was opened",
        "bring the file back from a backup, then start the process anew.",
    ),
    FailureRule(
        "read-only catalog",
        _mention("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM"),
        ConfigurationError,
        "a SQLite file that Spark may write",
        "let the user that runs Spark write the catalog's file and the directory around it, which holds the "
        "journal, then start the process anew.",
    ),
    FailureRule(
        "locked catalog",
        _mention("SQLITE_BUSY", "SQLITE_LOCKED"),
        CatalogUnavailableError,
        "a SQLite file that others lock for moments only",
        "run the asset again when the other process is done; many writers at once need PostgreSQL or a REST catalog.",
    ),
    FailureRule(
        "full disk",
        _mention("No space left on device", "Disk quota exceeded", "IOException: File too large", "SQLITE_FULL"),
        CatalogUnavailableError,
        "room for the files of the write",
        "free some, then run the asset again.",
    ),
    FailureRule(
        "no permission",
        _mention(
            "(Permission denied)",
            "(Operation not permitted)",
            "(Read-only file system)",
            "AccessDeniedException",
            "AccessControlException",
            "Access Denied",
            "Mkdirs failed to create",  # Hadoop does not say why
        ),
        ConfigurationError,
        "files and directories that Spark may use",
        "let the user that runs Spark read and write there; a directory also needs room to be made.",
    ),
    FailureRule(
        "throttled",
        _mention(
            "SlowDown",
            "Please reduce your request rate",  # what S3 says
            "TooManyRequests",
            "Throttling",
            "Rate exceeded",
            "RequestLimitExceeded",
            "ThroughputExceeded",
            "ServerBusy",
            "rateLimitExceeded",
            "(code: 429",
        ),
        CatalogUnavailableError,
        "a catalog and a store that take so many requests",
        "run the asset again, with fewer beside it.",
    ),
    FailureRule(
        NO_NAMESPACE,
        _mention("NoSuchNamespaceException", "SCHEMA_NOT_FOUND"),
        ConfigurationError,
        "a namespace that is there",
        "create it, or set `auto_create_namespace` of the IO manager.",
    ),
    FailureRule(
        "commit conflict",
        _mention(
            "CommitFailedException",
            "ConcurrentModificationException",  # Glue's
            "WaitingForLockException",  # the Hive metastore's
            "INSERT INTO iceberg_namespace_properties",  # two writers make a SQL catalog's namespace at once
            "duplicate column name: iceberg_type",  # two open a new SQL catalog at once, SQLite's words
            'column "iceberg_type" of relation',  # and PostgreSQL's
            "Deadlock found when trying to get lock",  # of two transactions MySQL ends one
            "Found conflicting",
            "Cannot delete file where some, but not all, rows match filter",
            "Missing required files to delete",
            "Cannot determine history between starting snapshot",
            "Table metadata refresh is required",
            "Cannot add column, name already exists",
            "Cannot add duplicate partition field",
            "Cannot find partition field to remove",
            "FIELD_ALREADY_EXISTS",
            "FIELDS_ALREADY_EXISTS",
        ),
        CommitConflictError,
        "a table that no other writer changes meanwhile",
        "run the asset again.",
    ),
    FailureRule(
        "table vanished",
        _condition("TABLE_OR_VIEW_NOT_FOUND"),
        CommitConflictError,
        "the table that was there a moment ago",
        "run the asset again.",
    ),
    FailureRule(
        "no rights in the database",
        _mention(
            "ERROR: permission denied for ",
            "FATAL: permission denied for ",
            "is not permitted to log in",
            "command denied to user",  # MySQL's words
        ),
        ConfigurationError,
        "a user that may use the catalog's database",
        "grant the user of the catalog's `uri` CONNECT and CREATE, and SELECT, INSERT, UPDATE and DELETE on the tables "
        "`iceberg_tables` and `iceberg_namespace_properties`.",
    ),
    FailureRule(
        "wrong address of the database",
        _mention(
            'FATAL: database "',
            "FATAL: role ",
            "no pg_hba.conf entry",
            "The server does not support SSL",
            "Invalid sslmode value",
            "Could not open SSL root certificate file",
            "unrecognized configuration parameter",
            "Unknown database",  # MySQL's words, as the next ones
            "insecure transport are prohibited",
        ),
        ConfigurationError,
        "a database and parameters that the server and its client know",
        "correct the catalog's `uri`: the database's name, `sslmode` and other parameters.",
    ),
    FailureRule(
        "wrong request",
        _mention(
            "org.apache.iceberg.exceptions.BadRequestException",
            "org.apache.iceberg.exceptions.NoSuchWarehouseException",
        ),
        ConfigurationError,
        "a request that the REST catalog takes",
        "correct `uri`, `warehouse` and `prefix` of the catalog, or what the message names.",
    ),
    FailureRule(WRONG_ADDRESS, _mention("(code: 404", "(code: 405", "(code: 406"), ConfigurationError, *_REST_CATALOG),
    FailureRule(
        WRONG_ADDRESS,
        _Every(("Error occurred while processing GET request", "jackson.core.JsonParseException")),
        ConfigurationError,
        *_REST_CATALOG,
    ),
    FailureRule(
        "catalog unavailable",
        _mention(
            "ServiceUnavailableException",
            "ServiceFailureException",
            "RESTException",
            "UncheckedSQLException",
            "java.net.ConnectException",
            "java.net.NoRouteToHostException",
            "java.net.SocketException",
            "java.net.SocketTimeoutException",
            "java.net.UnknownHostException",
            "java.util.concurrent.TimeoutException",
            "ConnectTimeoutException",
            "NoHttpResponseException",
            "SdkClientException",  # the AWS SDK's own, before and after a request
            "ApiCallTimeoutException",
            "ApiCallAttemptTimeoutException",
            "TTransportException",  # the Hive metastore's
        ),
        CatalogUnavailableError,
        "a catalog that answers",
        "run the asset again when the catalog is back.",
    ),
    FailureRule(
        "missing file",
        _mention("org.apache.iceberg.exceptions.NotFoundException"),
        InvestigationError,
        "every file that the table's metadata names",
        "if its snapshot has expired meanwhile, run the asset again; else bring the file back, let the user that runs "
        "Spark see its directory, or roll the table back to a snapshot that does without it.",
    ),
    FailureRule(
        "missing place",
        # What Google's client says where it is no file that is missing.
        _mention("404 Not Found\nPOST ", "404 Not Found\nGET ", "404 Not Found\nPUT "),
        ConfigurationError,
        "a bucket or container that exists",
        "create it, or correct the catalog's `warehouse` or the store's `endpoint`.",
    ),
    FailureRule(
        "damaged file",
        _mention(
            "Failed to open file: ",  # of manifests, when they do not begin as Avro files do
            "Reached the end of stream with",
            "AvroRuntimeException",
            "is not a Parquet file",
        ),
        InvestigationError,
        "files that can be read to their end",
        "bring the file back from a backup, or roll the table back to a snapshot that does without it.",
    ),
)
"""First match wins: from what can only mean one thing to what is broad."""

_OTHER: Final = FailureRule("other", _mention(), WriteFailedError, "that the engine writes the DataFrame")
ALL_RULES: Final = (*RULES, _OTHER)
"""With what is left."""


def translated(error: Exception, *, action: str, subject: str, redact: Callable[[str], str] = str) -> IcebergSparkError:
    """Return the package's error for an engine's; raise it from the engine's own.

    Args:
        error: What Spark raised.
        action: What was being done: "write", "read".
        subject: The table.
        redact: Removes secrets from a text.
    """
    failure = inspect_failure(error)
    rule = rule_for(failure)
    found = _outside_row(failure) if rule.error is RowsOutsidePartitionError else failure.summary
    expected = "that the engine reads the table" if rule is _OTHER and action == "read" else rule.expected
    return kind_of(rule, action).refusing(action, subject, expected=expected, found=redact(found), hint=rule.hint)


def kind_of(rule: FailureRule, action: str) -> type[IcebergSparkError]:
    """Return the class that an error becomes, for what was being done: "write", "read" and so on."""
    if action == "read" and rule.name == "table vanished":
        return UpstreamMissingError
    if action == "write" and rule.name == "not authorised":
        return CredentialsExpiredError  # the table was looked at, and prepared, a moment before
    if action == "write" and rule.name == WRONG_ADDRESS:
        return CatalogUnavailableError  # likewise: something stands in for the service
    if action != "write" and rule.error is CommitOutcomeUnknownError:
        return CatalogUnavailableError  # whatever else is asked of a catalog may be asked again
    return rule.error


def is_unanswered(error: Exception) -> bool:
    """Say whether it was the Spark Connect server that did not answer, and not the catalog."""
    return rule_for(inspect_failure(error)) is _UNANSWERED


def rule_for(failure: EngineFailure) -> FailureRule:
    """Return the first rule that applies."""
    return next((rule for rule in RULES if rule.applies(failure)), _OTHER)


def inspect_failure(error: Exception) -> EngineFailure:
    """Return what can be told of the error, whatever Spark wraps it in."""
    condition = error.getCondition() if isinstance(error, PySparkException) else None
    text = _STACK_LINE.sub("", _text_of(error))
    connect = _CONNECT_CLASS.match(text)
    causes = _connect_causes(error)
    names = (*_java_names(error), *((connect[1],) if connect else ()), *(name for name, _ in causes))
    return EngineFailure(
        class_names=(*names, type(error).__name__),
        condition=condition or "",
        text=_CAUSE.join([connect[2] if connect else text, *(f"{name}: {message}" for name, message in causes)]),
    )


def _first_line(text: str) -> str:
    python = _PYTHON_ERROR.findall(text)
    if python:
        return str(python[-1])
    azure = _AZURE_SAYS.search(text)
    if azure is not None:
        return f"{azure[1]}: {azure[2]}"
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _text_of(error: Exception) -> str:
    if isinstance(error, Py4JJavaError):
        return _CAUSE.join(
            f"{name}: {message}" if index else message for index, (name, message) in enumerate(_java_causes(error))
        )
    text = str(error).split(_STACKTRACE, maxsplit=1)[0]
    grpc = _GRPC.search(text)
    return f"{grpc['status']}: {grpc['details']}" if grpc else text


def _java_names(error: Exception) -> Iterator[str]:
    if isinstance(error, Py4JJavaError):
        yield from (name for name, _ in _java_causes(error))


def _java_causes(error: Py4JJavaError) -> Iterator[tuple[str, str]]:
    throwable = error.java_exception
    for _ in range(_MAXIMUM_CAUSES):
        if throwable is None:
            return
        yield throwable.getClass().getName(), str(throwable.getMessage() or throwable.getClass().getName())
        throwable = throwable.getCause()


def _connect_causes(error: Exception) -> list[tuple[str, str]]:
    """Return the causes by class and message: a Connect client has them in the text of the server's stack only."""
    stack_of = getattr(error, "getStackTrace", None)
    return _CONNECT_CAUSE.findall((stack_of and stack_of()) or "")


def _outside_row(failure: EngineFailure) -> str:
    match = _OUTSIDE.search(failure.text)
    if match is None:
        return failure.summary
    row = _INSTANT.sub(lambda instant: _utc_text(instant[1]), match["row"])
    return f"a row with {row} in the run of {match['partitions']}"


def _utc_text(microseconds: str) -> str:
    if microseconds == "NULL":
        return microseconds
    try:
        instant = _EPOCH + dt.timedelta(microseconds=int(microseconds))
    except OverflowError:
        return f"{microseconds}{MICROSECONDS}"
    return instant.isoformat()
