"""Recognizes each kind of failure in the errors of Spark, Iceberg's Java libraries and their clients.

`failure_kinds.py` defines what a kind means for the user.
"""

import datetime as dt
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal

from pyspark.errors import PySparkException

from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.errors import IcebergSparkError
from dagster_iceberg_spark.failure_kinds import FailureKind
from dagster_iceberg_spark.spark import versions
from dagster_iceberg_spark.table.identifier import TableIdentifier, split_parts

try:
    from py4j.protocol import Py4JError
except ModuleNotFoundError:

    class Py4JError(Exception):  # type: ignore[no-redef]
        """Never raised: pyspark-client comes without a JVM."""


ENGINE_ERRORS: Final = (PySparkException, Py4JError)
"""The errors that Spark's public API raises, classic and Connect."""

_CONNECT_CLASS = re.compile(r"^\(([\w.$]+)\)\s*(.*)", re.DOTALL)
_STACKTRACE: Final = "\n\nJVM stacktrace:"
_CONNECT_CAUSE = re.compile(r"^Caused by: ([\w.$]+): (.*?)(?=\n\s+at |\nCaused by: |\Z)", re.MULTILINE | re.DOTALL)
_AZURE_SAYS = re.compile(r"<Code>(\w+)</Code>\s*<Message>([^<\n]*)")
_STACK_LINE = re.compile(r"^\t+at \S+\(.*\n?", re.MULTILINE)
"""A line of a stack trace in a message of Hive's client. Its class names are no sign of the failure."""
_GRPC = re.compile(r'status = StatusCode\.(?P<status>\w+)\s+details = "(?P<details>.*)"')
"""The status and details in the message of a grpc error, whose first line names a Python class."""
_PYTHON_ERROR = re.compile(r"^Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)", re.MULTILINE)
"""The line with the error of a Python function, after its traceback."""
_CAUSE: Final = "\n| caused by: "
_WRAPPERS: Final = ("Exception thrown in awaitResult", "Job aborted", "Writing job aborted")
"""Messages in which Spark wraps the error of a task. Without a cause, they are all that is known."""
_MAXIMUM_CAUSES: Final = 10
_MAXIMUM_LINE: Final = 400


@dataclass(frozen=True, slots=True)
class EngineFailure:
    """The facts about an engine's error."""

    class_names: tuple[str, ...]  # of the error and its causes, outermost first
    condition: str  # Spark's, such as `TABLE_OR_VIEW_NOT_FOUND`
    text: str  # the messages, without stack traces

    @property
    def summary(self) -> str:
        """The first lines of the message, unless it only wraps a cause, and of its deepest causes."""
        first, *causes = self.text.split(_CAUSE)
        parts = causes[-2:] if causes and first.startswith(_WRAPPERS) else (first, *causes[-1:])
        lines = [_first_line(part) for part in parts]
        return "; ".join(dict.fromkeys(line[:_MAXIMUM_LINE] for line in lines if line)) or "no message"

    def mentions(self, *needles: str) -> bool:
        """Return whether a class name or the text contains one of the needles."""
        return any(needle in self.text or any(needle in name for name in self.class_names) for needle in needles)


def inspect_failure(error: Exception) -> EngineFailure:
    """Return the facts about the error, whatever Spark wraps it in."""
    condition = versions.installed_version().condition_of(error) if isinstance(error, PySparkException) else None
    text = _STACK_LINE.sub("", _text_of(error))
    connect = _CONNECT_CLASS.match(text)
    causes = _connect_causes(error)
    # The client has one class for lost connections and for errors of the server that it has no class for.
    own = connect[1] if connect else type(error).__name__
    return EngineFailure(
        class_names=(*_java_names(error), *(name for name, _ in causes), own),
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
    first, *others = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    return f"{first} {others[0]}" if others and first.endswith(":") else first  # which announces the next one


def _text_of(error: Exception) -> str:
    if hasattr(error, "java_exception"):
        return _CAUSE.join(
            f"{name}: {message}" if index else message for index, (name, message) in enumerate(_java_causes(error))
        )
    text = str(error).split(_STACKTRACE, maxsplit=1)[0]
    grpc = _GRPC.search(text)
    return f"{grpc['status']}: {grpc['details']}" if grpc else text


def _java_names(error: Exception) -> Iterator[str]:
    if hasattr(error, "java_exception"):
        yield from (name for name, _ in _java_causes(error))


def _java_causes(error: Any) -> Iterator[tuple[str, str]]:
    throwable = error.java_exception
    for _ in range(_MAXIMUM_CAUSES):
        if throwable is None:
            return
        yield throwable.getClass().getName(), str(throwable.getMessage() or throwable.getClass().getName())
        throwable = throwable.getCause()


def _connect_causes(error: Exception) -> list[tuple[str, str]]:
    """Return the class and message of each cause. A Connect client has them only in the text of the server's stack."""
    stack_of = getattr(error, "getStackTrace", None)
    return _CONNECT_CAUSE.findall((stack_of and stack_of()) or "")


OUTSIDE_MARKER: Final = "dagster-iceberg-spark: row outside of the partition "
OUTSIDE_END: Final = " (end of the row)"
NULL_MARKER: Final = "dagster-iceberg-spark: NULL in the required column "
MOVED_MARKER: Final = "dagster-iceberg-spark: rows that others have changed since they were compared"
VALUE_MARKER: Final = "dagster-iceberg-spark: no value of the type "
MICROSECONDS: Final = " microseconds since 1970"

_OUTSIDE = re.compile(
    rf"{re.escape(OUTSIDE_MARKER)}(?P<partitions>.*?): (?P<row>.*?){re.escape(OUTSIDE_END)}", re.DOTALL
)
_INSTANT = re.compile(rf"(?<==)(-?\d+|NULL){MICROSECONDS}")
_MISSING = re.compile(r"The table or view (?P<name>`.+`) cannot be found")
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)


@dataclass(frozen=True, slots=True)
class Recogniser:
    """Recognizes a kind of failure by one or all of its signs.

    "anywhere" is in the name of a class or in a message. The others are the beginning of Spark's error condition, or of
    the name of a class.
    """

    kind: FailureKind
    signs: tuple[str, ...]
    needs_every_sign: bool = False
    place: Literal["anywhere", "condition", "class name"] = "anywhere"

    def recognises(self, failure: EngineFailure) -> bool:
        """Return whether the failure is of the kind."""
        if self.place == "condition":
            return failure.condition.startswith(self.signs)
        if self.place == "class name":
            return any(name.startswith(self.signs) for name in failure.class_names)
        return (all if self.needs_every_sign else any)(failure.mentions(sign) for sign in self.signs)


def _mention(kind: FailureKind, *signs: str) -> Recogniser:
    return Recogniser(kind, signs)


RECOGNISERS: Final = (
    _mention(
        FailureKind.SESSION_ENDED,
        "NO_ACTIVE_SESSION",
        "INVALID_HANDLE.SESSION_CHANGED",
        "Received incorrect server side session identifier",
    ),
    Recogniser(FailureKind.CONNECTION_LOST, ("SparkConnectGrpcException", "RetriesExceeded"), place="class name"),
    _mention(FailureKind.ROW_OUTSIDE_PARTITION, OUTSIDE_MARKER),
    _mention(FailureKind.ROWS_CHANGED, MOVED_MARKER),
    _mention(
        FailureKind.NULL_IN_REQUIRED_COLUMN,
        "NOT_NULL_ASSERT_VIOLATION",
        "value appeared in non-nullable field",
        NULL_MARKER,
    ),
    _mention(FailureKind.MALFORMED_VALUE, VALUE_MARKER),
    Recogniser(
        FailureKind.CHECKPOINT_GONE, ("No DataFrame with id ", " is found in the session"), needs_every_sign=True
    ),
    Recogniser(FailureKind.TYPE_UNKNOWN_TO_SPARK, ("Spark does not support ", " fields"), needs_every_sign=True),
    _mention(FailureKind.TYPE_UNKNOWN_TO_SPARK, "Cannot convert unsupported type to Spark"),
    _mention(
        FailureKind.INCOMPATIBLE_VALUE,
        "CAST_OVERFLOW_IN_TABLE_INSERT",
        "INCOMPATIBLE_DATA_FOR_TABLE",
        "INSERT_COLUMN_ARITY_MISMATCH",
        "NUMERIC_VALUE_OUT_OF_RANGE",
    ),
    # Its own message may contain any other sign.
    _mention(FailureKind.PYTHON_FUNCTION_FAILED, "An exception was thrown from the Python worker"),
    # Iceberg takes it for an answer that it did not understand.
    _mention(FailureKind.HIVE_KEEPS_COLUMN_TYPES, "types incompatible with the existing columns"),
    _mention(
        FailureKind.CERTIFICATE_UNTRUSTED,  # before anything was asked
        "PKIX path building failed",
        "PKIX path validation failed",
        "unable to find valid certification path",
    ),
    _mention(
        FailureKind.COMMIT_OUTCOME_UNKNOWN,
        "CommitStateUnknownException",
        "Error occurred while processing POST request",  # how the REST client reports a request without an answer
    ),
    _mention(
        FailureKind.STORE_CLIENT_MISSING,
        "Cannot initialize FileIO",
        "software/amazon/awssdk",  # as a NoClassDefFoundError writes a class
        "com/google/cloud/storage",
        "com/azure/storage",
    ),
    _mention(
        FailureKind.HADOOP_CLIENT_MISSING,
        "No FileSystem for scheme",
        "fs.azurebfs.AzureBlobFileSystem not found",
        "fs.azurebfs.SecureAzureBlobFileSystem not found",
        "fs.s3a.S3AFileSystem not found",
    ),
    _mention(
        FailureKind.ICEBERG_RUNTIME_MISSING,
        "CATALOG_NOT_FOUND",
        "Cannot find catalog plugin class",
        "org.apache.iceberg.spark.SparkCatalog",
        "ClassNotFoundException: org.apache.iceberg",
        "NoClassDefFoundError",
    ),
    _mention(FailureKind.JDBC_DRIVER_MISSING, "No suitable driver"),
    Recogniser(FailureKind.SQL_EXTENSIONS_MISSING, ("PARSE_SYNTAX_ERROR",), place="condition"),
    _mention(FailureKind.HIVE_NAME_INVALID, "is not a valid object name", "is not a valid database name"),
    _mention(FailureKind.HIVE_LOCKS_MISSING, "'HIVE_LOCKS' does not exist"),
    _mention(FailureKind.HIVE_VERSION_UNSUPPORTED, "TApplicationException: Invalid method name"),
    _mention(
        FailureKind.AWS_CREDENTIALS_MISSING,
        "Unable to load credentials from any of the providers",
        "Unable to load region from any of",
    ),
    _mention(
        FailureKind.BUCKET_MISSING,
        "NoSuchBucketException",
        "The specified bucket does not exist",
        "The specified container does not exist",
    ),
    _mention(FailureKind.CLOCK_SKEWED, "RequestTimeTooSkewed", "Signature expired", "Signature not yet current"),
    _mention(
        FailureKind.CREDENTIALS_EXPIRED,
        "ExpiredToken",
        "The security token included in the request is expired",
        "AuthenticationTimeoutException",
        "Signature not valid in the specified time frame",  # what Azure says of a shared access signature
        "(code: 419",
    ),
    _mention(
        FailureKind.CREDENTIALS_REFUSED_BY_AZURE,
        "<Code>AuthenticationFailed",
        "<Code>AuthorizationFailure",
        "<Code>AuthorizationPermissionMismatch",
        "<Code>InvalidAuthenticationInfo",
        "<Code>KeyBasedAuthenticationNotPermitted",
        "<Code>NoAuthenticationInformation",
        "com.azure.core.exception.ClientAuthenticationException",
        "com.azure.identity.CredentialUnavailableException",
    ),
    _mention(
        FailureKind.CREDENTIALS_REFUSED_BY_GOOGLE,
        "OAuth2Credentials instance does not support refreshing",  # so it says when a token is refused
        "com.google.api.client.http.HttpResponseException: 401",
        "com.google.api.client.http.HttpResponseException: 403",
        "Your default credentials were not found",
    ),
    _mention(FailureKind.BRANCHES_UNSUPPORTED, "Cannot use branch (does not exist)"),  # Nessie makes and forgets it
    _mention(
        FailureKind.CREDENTIALS_REFUSED,
        "NotAuthorizedException",
        "ForbiddenException",
        "password authentication failed",
        "no password was provided",
        "Access denied for user",  # MySQL's words
        "InvalidAccessKeyId",
        "SignatureDoesNotMatch",
        "The request signature we calculated does not match",  # S3's words for it, without the code
        "The AWS Access Key Id you provided does not exist",
        "The security token included in the request is invalid",
    ),
    _mention(FailureKind.HADOOP_USER_REFUSED, "GSS initiate failed"),
    _mention(FailureKind.METASTORE_PRIVILEGE_MISSING, "No privilege '"),
    _mention(FailureKind.SQLITE_FILE_DAMAGED, "SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_READONLY_DBMOVED"),
    _mention(FailureKind.SQLITE_FILE_READ_ONLY, "SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM"),
    _mention(FailureKind.SQLITE_FILE_LOCKED, "SQLITE_BUSY", "SQLITE_LOCKED"),
    _mention(
        FailureKind.DISK_FULL,
        "No space left on device",
        "Disk quota exceeded",
        "IOException: File too large",
        "SQLITE_FULL",
    ),
    _mention(FailureKind.AWS_ACCESS_DENIED, "Access Denied", ".model.AccessDeniedException"),
    _mention(
        FailureKind.PERMISSION_DENIED,
        "(Permission denied)",
        "(Operation not permitted)",
        "(Read-only file system)",
        "AccessDeniedException",
        "AccessControlException",
        "Mkdirs failed to create",  # Hadoop does not say why
    ),
    _mention(
        FailureKind.THROTTLED,
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
    _mention(FailureKind.NAMESPACE_MISSING, "NoSuchNamespaceException", "SCHEMA_NOT_FOUND"),
    _mention(
        FailureKind.COMMIT_CONFLICT,
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
        "could not be found in the latest snapshot",  # a manifest that another writer has replaced
        "Manifest is missing",
        "for replaced data file",  # to which another writer has added deletes
        "Cannot determine history between starting snapshot",
        "Table metadata refresh is required",
        "Cannot add column, name already exists",
        "Cannot add duplicate partition field",
        "Cannot find partition field to remove",
        "FIELD_ALREADY_EXISTS",
        "FIELDS_ALREADY_EXISTS",
    ),
    Recogniser(FailureKind.TABLE_VANISHED, ("TABLE_OR_VIEW_NOT_FOUND",), place="condition"),
    _mention(
        FailureKind.DATABASE_PERMISSION_DENIED,
        "ERROR: permission denied for ",
        "FATAL: permission denied for ",
        "is not permitted to log in",
        "command denied to user",  # MySQL's words
    ),
    _mention(
        FailureKind.DATABASE_ADDRESS_WRONG,
        'FATAL: database "',
        "FATAL: role ",
        "no pg_hba.conf entry",
        "The server does not support SSL",
        "Invalid sslmode value",
        "Could not open SSL root certificate file",
        "unrecognized configuration parameter",
        "Unknown database",  # MySQL's words, as those of the next
        "insecure transport are prohibited",
    ),
    _mention(
        FailureKind.REQUEST_REFUSED,
        "org.apache.iceberg.exceptions.BadRequestException",
        "org.apache.iceberg.exceptions.NoSuchWarehouseException",
    ),
    _mention(FailureKind.NOT_A_REST_CATALOG, "(code: 404", "(code: 405", "(code: 406"),
    Recogniser(
        FailureKind.NOT_A_REST_CATALOG,
        ("Error occurred while processing GET request", "jackson.core.JsonParseException"),
        needs_every_sign=True,
    ),
    _mention(
        FailureKind.CATALOG_UNREACHABLE,
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
    _mention(FailureKind.FILE_MISSING, "org.apache.iceberg.exceptions.NotFoundException"),
    # So Google's client says it where no file is missing.
    _mention(FailureKind.BUCKET_MISSING, "404 Not Found\nPOST ", "404 Not Found\nGET ", "404 Not Found\nPUT "),
    # A file that fails to open is a manifest that does not begin as Avro files do.
    _mention(FailureKind.METADATA_DAMAGED, "Failed to open file: ", "AvroRuntimeException"),
    _mention(FailureKind.DATA_FILE_DAMAGED, "Reached the end of stream with", "is not a Parquet file"),
)
"""The first match applies. The order is from specific to broad signs."""


def translate(error: Exception, *, action: str, subject: str, redact: Callable[[str], str] = str) -> IcebergSparkError:
    """Return the package's error for an engine's error, which is its cause."""
    failure = inspect_failure(error)
    kind = kind_of(failure)
    if kind is FailureKind.TABLE_VANISHED and action == "write" and _misses_another_table(failure, subject):
        kind = FailureKind.QUERY_TABLE_MISSING
    found = _outside_row(failure) if kind is FailureKind.ROW_OUTSIDE_PARTITION else failure.summary
    return kind.refusal(action, subject, redact(found))


@contextmanager
def translating(catalog: CatalogDescription, *, action: str, subject: str) -> Iterator[None]:
    """Raise the engine's errors in the block as the package's errors, without the catalog's secrets."""
    try:
        yield
    except ENGINE_ERRORS as error:
        raise translate(error, action=action, subject=subject, redact=catalog.redact) from error


def kind_of(failure: EngineFailure) -> FailureKind:
    """Return the kind of the first recogniser that applies."""
    return next((it.kind for it in RECOGNISERS if it.recognises(failure)), FailureKind.ENGINE_FAILED)


def is_unanswered(error: Exception) -> bool:
    """Return whether the Spark Connect server, not the catalog, did not respond."""
    return kind_of(inspect_failure(error)) is FailureKind.CONNECTION_LOST


def _misses_another_table(failure: EngineFailure, subject: str) -> bool:
    """Return whether the missing table is another one than the subject, with its branches."""
    match = _MISSING.search(failure.text)
    if match is None:
        return False
    missing, own = split_parts(match["name"]), TableIdentifier.parse(subject).parts
    return own not in (missing[first : first + len(own)] for first in range(len(missing)))


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
        return (_EPOCH + dt.timedelta(microseconds=int(microseconds))).isoformat()
    except OverflowError:
        return f"{microseconds}{MICROSECONDS}"
