"""Recognizes each kind of failure in the errors of pyiceberg and its clients of catalogs and stores.

`failure_kinds.py` defines what a kind means for the user.
"""

import sys
import zlib
from collections.abc import Callable
from typing import Final, TypeAlias

from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, NoRegionError
from pydantic import ValidationError
from pyiceberg.exceptions import AuthorizationExpiredError, ForbiddenError, OAuthError, RESTError, UnauthorizedError
from requests import HTTPError
from sqlalchemy.exc import SQLAlchemyError

from dagster_iceberg_spark.failure_kinds import FailureKind

_REFUSED_LOGINS: Final = (UnauthorizedError, ForbiddenError, OAuthError)
_REFUSED_SIGNATURES: Final = (
    "UnrecognizedClient",
    "InvalidSignature",
    "InvalidClientTokenId",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "INVALID_ACCESS_KEY_ID",
    "SIGNATURE_DOES_NOT_MATCH",
)
"""AWS's codes for a rejected signature, also in the spelling of pyarrow's S3 client."""
_EXPIRED: Final = ("ExpiredToken", "EXPIRED_TOKEN", "Signature not valid in the specified time frame")
_UNANSWERED: Final = (SQLAlchemyError, RESTError, OSError, BotoCoreError, ClientError)
_NO_AVRO: Final = (UnicodeDecodeError, EOFError, SystemError, zlib.error)
"""The errors of pyiceberg's decoder for a file that is truncated or is not a manifest."""
_NO_PARQUET: Final = (
    "Parquet magic bytes not found",
    "Parquet file size is",
    "Couldn't deserialize thrift",
    "Corrupt ",
    "Unexpected end of stream",
    "Invalid base64 input",  # of the columns, in the footer
)
"""Pyarrow's messages for a file that is truncated or is not a data file."""

_REFUSED_BY_AZURE: Final = (
    "AuthenticationFailed",
    "AuthorizationFailure",
    "AuthorizationPermissionMismatch",
    "InvalidAuthenticationInfo",
    "KeyBasedAuthenticationNotPermitted",
    "NoAuthenticationInformation",
    "failed to retrieve a token",  # the default chain
    "AADSTS",  # Entra ID, about a client
)
_REFUSED_BY_GOOGLE: Final = ("access denied: gs://", "UNAUTHENTICATED", "PERMISSION_DENIED")
"""Pyarrow's message about a file, and the messages of Google's client."""
_WRONG_DATABASE: Final = (
    'FATAL:  database "',
    "FATAL:  role ",
    "no pg_hba.conf entry",
    "server does not support SSL",
    "invalid sslmode value",
    "root certificate file",
    "invalid dsn",
    "unrecognized configuration parameter",
    "Unknown database",
    "insecure transport are prohibited",
)
"""Messages of PostgreSQL, its client, and MySQL."""
_EXTRAS: Final = ("adlfs", "azure", "psycopg2", "pymysql")
"""The packages that pyiceberg imports when it opens such a store or catalog."""
_AZURE_ERRORS: Final = "azure.core.exceptions"

_CATALOG_ERRORS: Final = (AuthorizationExpiredError, *_REFUSED_LOGINS, *_UNANSWERED, *_NO_AVRO, TypeError, ValueError)
"""The errors of pyiceberg, the SQL driver and the store. Not every ValueError or TypeError has a kind."""
_OF_THE_METASTORE: Final = {"thrift.Thrift": "TException", "kerberos": "GSSError"}
"""The errors of a Hive Metastore's client, by modules that may not be loaded."""

_ANOTHER_SERVICE: Final = (404, 405, 406)
"""Status codes of a server that is not a REST catalog, in a response without the catalog's JSON."""
_TOO_MANY_REQUESTS: Final = 429
_REFUSALS: Final = frozenset(range(400, 500)) - {408, 409, 425, _TOO_MANY_REQUESTS}
"""Status codes for an invalid request. After other codes, the server may accept the request later."""
_THROTTLED: Final = ("SLOW_DOWN", "SlowDown", "Throttling", "TooManyRequests", "Rate exceeded", "RequestLimitExceeded")

Recognises: TypeAlias = Callable[[Exception], bool]


def _says(*words: str) -> Recognises:
    return lambda error: any(word in str(error) for word in words)


def _is(*classes: type[Exception]) -> Recognises:
    return lambda error: isinstance(error, classes)


def _is_and_says(classes: tuple[type[Exception], ...], *words: str) -> Recognises:
    return lambda error: isinstance(error, classes) and _says(*words)(error)


def _is_azure_s(error: Exception) -> bool:
    return any(kind.__module__ == _AZURE_ERRORS for kind in type(error).__mro__)


def _status_of(error: Exception) -> int | None:
    """Return the HTTP status of a REST catalog's response."""
    answer = error.__cause__.response if isinstance(error.__cause__, HTTPError) else None
    return answer.status_code if isinstance(error, RESTError) and answer is not None else None


def _is_of_another_service(error: Exception) -> bool:
    """Return whether the response names no error, which every error response of a REST catalog does."""
    return _status_of(error) in _ANOTHER_SERVICE and "Exception: " not in str(error)


def _is_throttled(error: Exception) -> bool:
    return _status_of(error) == _TOO_MANY_REQUESTS or _says(*_THROTTLED)(error)


def _is_unanswered(error: Exception) -> bool:
    return _is_of_the_metastore(error) or _is_azure_s(error) or isinstance(error, _UNANSWERED)


def catalog_errors() -> tuple[type[Exception], ...]:
    """Return the error classes of pyiceberg and its clients of catalogs and stores, if they are loaded."""
    optional = {**_OF_THE_METASTORE, _AZURE_ERRORS: "AzureError"}
    loaded = (getattr(sys.modules.get(module), name, None) for module, name in optional.items())
    return (*_CATALOG_ERRORS, ModuleNotFoundError, *(error for error in loaded if error is not None))


def _is_of_the_metastore(error: Exception) -> bool:
    return any(kind.__name__ in _OF_THE_METASTORE.values() for kind in type(error).__mro__)


def _metastore_says(*words: str) -> Recognises:
    return lambda error: _is_of_the_metastore(error) and _says(*words)(error)


RECOGNISERS: Final[tuple[tuple[FailureKind, Recognises], ...]] = (
    (FailureKind.CREDENTIALS_EXPIRED, _is(AuthorizationExpiredError)),
    (FailureKind.CREDENTIALS_EXPIRED, _says(*_EXPIRED)),
    (
        FailureKind.CLOCK_SKEWED,
        _says("RequestTimeTooSkewed", "REQUEST_TIME_TOO_SKEWED", "Signature expired", "Signature not yet current"),
    ),
    (FailureKind.CREDENTIALS_REFUSED, _is(*_REFUSED_LOGINS)),
    (FailureKind.CERTIFICATE_UNTRUSTED, _says("CERTIFICATE_VERIFY_FAILED", "certificate verify failed")),
    (FailureKind.AWS_CREDENTIALS_MISSING, _is(NoCredentialsError, NoRegionError)),
    (FailureKind.CREDENTIALS_REFUSED, _is_and_says((ClientError, OSError), *_REFUSED_SIGNATURES)),
    # The response to a HEAD has no body.
    (FailureKind.AWS_ACCESS_DENIED, _is_and_says((ClientError, OSError), "AccessDenied", "AWS Error ACCESS_DENIED")),
    (FailureKind.CREDENTIALS_REFUSED_BY_AZURE, lambda error: _is_azure_s(error) and _says(*_REFUSED_BY_AZURE)(error)),
    (FailureKind.CREDENTIALS_REFUSED_BY_GOOGLE, _is_and_says((OSError,), *_REFUSED_BY_GOOGLE)),
    (FailureKind.PYTHON_CLIENT_MISSING, lambda error: isinstance(error, ModuleNotFoundError) and error.name in _EXTRAS),
    (FailureKind.BUCKET_MISSING, _says("NO_SUCH_BUCKET", "NoSuchBucket")),
    (
        FailureKind.CREDENTIALS_REFUSED,  # PostgreSQL's client has no SQL state if no connection was established
        _says("password authentication failed", "no password supplied", "Access denied for user"),
    ),
    (
        FailureKind.DATABASE_PERMISSION_DENIED,
        _is_and_says(
            (SQLAlchemyError,), "permission denied for ", "is not permitted to log in", "command denied to user"
        ),
    ),
    (FailureKind.DATABASE_ADDRESS_WRONG, _is_and_says((SQLAlchemyError,), *_WRONG_DATABASE)),
    (FailureKind.NOT_A_REST_CATALOG, lambda error: isinstance(error, ValidationError) or _is_of_another_service(error)),
    (FailureKind.REQUEST_REFUSED, lambda error: _status_of(error) in _REFUSALS),
    (FailureKind.SQLITE_FILE_DAMAGED, _says("file is not a database", "database disk image is malformed")),
    (FailureKind.SQLITE_FILE_READ_ONLY, _says("unable to open database file", "attempt to write a readonly database")),
    (FailureKind.SQLITE_FILE_LOCKED, _says("database is locked")),
    (FailureKind.PERMISSION_DENIED, _is(PermissionError)),
    (FailureKind.FILE_MISSING, _is(FileNotFoundError)),
    (FailureKind.METADATA_DAMAGED, _is(*_NO_AVRO)),
    (FailureKind.PARTITION_SPEC_UNREADABLE, _is_and_says((TypeError,), "Type not recognized: decimal_")),
    (FailureKind.DATA_FILE_DAMAGED, _says(*_NO_PARQUET)),
    (FailureKind.PERMISSION_DENIED, _metastore_says("AccessControlException", "Permission denied")),
    (FailureKind.HADOOP_USER_REFUSED, _metastore_says("GSS", "SASL", "Kerberos")),
    (FailureKind.METASTORE_PRIVILEGE_MISSING, _metastore_says("No privilege")),
    (FailureKind.HIVE_VERSION_UNSUPPORTED, _metastore_says("Invalid method name")),
    (FailureKind.THROTTLED, lambda error: _is_unanswered(error) and _is_throttled(error)),
    (FailureKind.CATALOG_UNREACHABLE, _is_unanswered),
)
"""The first match applies."""


def kind_of(error: Exception) -> FailureKind | None:
    """Return the kind of the first matching recogniser, or None if the error does not come from the catalog."""
    return next((kind for kind, recognises in RECOGNISERS if recognises(error)), None)
