"""What goes wrong while pyiceberg asks a catalog or reads a table's files, in one table."""

import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, NoRegionError
from pydantic import ValidationError
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    ForbiddenError,
    OAuthError,
    RESTError,
    UnauthorizedError,
)
from requests import HTTPError
from sqlalchemy.exc import SQLAlchemyError

from dagster_iceberg_spark.errors import (
    CatalogUnavailableError,
    ConfigurationError,
    CredentialsExpiredError,
    IcebergSparkError,
    InvestigationError,
)

_REFUSED_LOGINS: Final = (UnauthorizedError, ForbiddenError, OAuthError)
_REFUSED_SIGNATURES: Final = (
    "AccessDenied",
    "UnrecognizedClient",
    "InvalidSignature",
    "InvalidClientTokenId",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "INVALID_ACCESS_KEY_ID",
    "SIGNATURE_DOES_NOT_MATCH",
)
"""What AWS says of a signature, and pyarrow's S3 client in its own spelling."""
_UNANSWERED: Final = (SQLAlchemyError, RESTError, OSError, BotoCoreError, ClientError)
_NO_AVRO: Final = (UnicodeDecodeError, EOFError, SystemError, zlib.error)
"""What pyiceberg's decoder stumbles over in a manifest that is cut off or is none."""

_REFUSED_BY_AZURE: Final = (
    "AuthenticationFailed",
    "AuthorizationFailure",
    "AuthorizationPermissionMismatch",
    "InvalidAuthenticationInfo",
    "KeyBasedAuthenticationNotPermitted",
    "NoAuthenticationInformation",
    "failed to retrieve a token",  # the default chain
    "AADSTS",  # what Entra ID says of a client
)
_REFUSED_BY_GOOGLE: Final = ("access denied: gs://", "UNAUTHENTICATED", "PERMISSION_DENIED")
"""What pyarrow says of a file, and what Google's client says below it."""
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
"""What PostgreSQL and its client say, and MySQL."""
_EXTRAS: Final = ("adlfs", "azure", "psycopg2", "pymysql")
"""What pyiceberg imports when it opens such a store or catalog."""
_AZURE_ERRORS: Final = "azure.core.exceptions"

_CATALOG_ERRORS: Final = (AuthorizationExpiredError, *_REFUSED_LOGINS, *_UNANSWERED, *_NO_AVRO, ValueError)
"""What pyiceberg, the SQL driver and the store raise; not every ValueError, as pyarrow's `ArrowInvalid`, has a rule."""
_OF_THE_METASTORE: Final = {"thrift.Thrift": "TException", "kerberos": "GSSError"}
"""What the client of a Hive Metastore raises, by the modules that are there only where somebody has loaded them."""
_OF_AZURE: Final = {_AZURE_ERRORS: "AzureError"}

_PASSING_STATUSES: Final = (408, 409, 425, 429)
"""What a server answers to a request that it may take later; other statuses from 400 to 499 are of a wrong request."""

RESTORE_HINT: Final = (
    "bring the file back from a backup; where it is lost for good, roll the table back to a snapshot that does without "
    "it, or drop the table from the catalog and materialize its asset again."
)


@dataclass(frozen=True, slots=True)
class CatalogFailureRule:
    """A kind of error, what tells it, and what it becomes."""

    name: str
    applies: Callable[[Exception], bool]
    error: type[IcebergSparkError]
    expected: str
    hint: str | None = None


def _says(*words: str) -> Callable[[Exception], bool]:
    return lambda error: any(word in str(error) for word in words)


def _is_azure_s(error: Exception) -> bool:
    return any(kind.__module__ == _AZURE_ERRORS for kind in type(error).__mro__)


def _is(*classes: type[Exception]) -> Callable[[Exception], bool]:
    return lambda error: isinstance(error, classes)


def _is_wrong_request(error: Exception) -> bool:
    answer = error.__cause__.response if isinstance(error.__cause__, HTTPError) else None
    is_refused = answer is not None and 400 <= answer.status_code < 500 and answer.status_code not in _PASSING_STATUSES  # noqa: PLR2004
    return isinstance(error, RESTError) and is_refused


def catalog_errors() -> tuple[type[Exception], ...]:
    """Return what pyiceberg, its clients of catalogs and the store raise, as far as they are loaded."""
    optional = {**_OF_THE_METASTORE, **_OF_AZURE}
    loaded = (getattr(sys.modules.get(module), name, None) for module, name in optional.items())
    return (*_CATALOG_ERRORS, ModuleNotFoundError, *(error for error in loaded if error is not None))


def _is_of_the_metastore(error: Exception) -> bool:
    return any(kind.__name__ in _OF_THE_METASTORE.values() for kind in type(error).__mro__)


def _metastore_says(*words: str) -> Callable[[Exception], bool]:
    return lambda error: _is_of_the_metastore(error) and _says(*words)(error)


RULES: Final = (
    CatalogFailureRule(
        "expired credentials",
        lambda error: (
            isinstance(error, AuthorizationExpiredError)
            or _says("ExpiredToken", "EXPIRED_TOKEN", "Signature not valid in the specified time frame")(error)
        ),
        CredentialsExpiredError,
        "credentials that are valid still",
        "run it again; if that repeats, give the catalog or the store credentials that live longer.",
    ),
    CatalogFailureRule(
        "wrong clock",
        _says("RequestTimeTooSkewed", "REQUEST_TIME_TOO_SKEWED", "Signature expired", "Signature not yet current"),
        ConfigurationError,
        "a clock that is minutes from the store's at most",
        "set the clock of the machine that this process runs on.",
    ),
    CatalogFailureRule(
        "not authorised",
        _is(*_REFUSED_LOGINS),
        ConfigurationError,
        "credentials that it accepts",
        "check the catalog's credentials in the resource configuration.",
    ),
    CatalogFailureRule(
        "untrusted certificate",
        _says("CERTIFICATE_VERIFY_FAILED", "certificate verify failed"),
        ConfigurationError,
        "a certificate of an authority that this process trusts",
        "set `ca_bundle` of a REST catalog to a PEM file with that authority (the variables REQUESTS_CA_BUNDLE and "
        "CURL_CA_BUNDLE, where they are set, win over it), `sslrootcert` in a PostgreSQL URI, or, for a store, the "
        "variable SSL_CERT_FILE.",
    ),
    CatalogFailureRule(
        "missing AWS credentials",
        lambda error: isinstance(error, (NoCredentialsError, NoRegionError)),
        ConfigurationError,
        "AWS credentials and a region that boto3 finds",
        "set `credentials` and `region` in the resource configuration, or what boto3 reads them from.",
    ),
    CatalogFailureRule(
        "refused by AWS",
        lambda error: isinstance(error, (ClientError, OSError)) and _says(*_REFUSED_SIGNATURES)(error),
        ConfigurationError,
        "credentials that it accepts",
        "check the credentials of the catalog and of the store in the resource configuration.",
    ),
    CatalogFailureRule(
        "refused by S3 without a word",  # the answer to a HEAD has no body
        lambda error: isinstance(error, OSError) and _says("AWS Error ACCESS_DENIED")(error),
        ConfigurationError,
        "a store that lets this process read",
        "check the store's credentials and what they may do, its `region`, and the clock of this machine.",
    ),
    CatalogFailureRule(
        "refused by Azure",
        lambda error: _is_azure_s(error) and _says(*_REFUSED_BY_AZURE)(error),
        ConfigurationError,
        "credentials that it accepts",
        "check `account_key`, `sas_token` or the client of the store; a client needs a role on the container's data.",
    ),
    CatalogFailureRule(
        "refused by Google",
        lambda error: isinstance(error, OSError) and _says(*_REFUSED_BY_GOOGLE)(error),
        ConfigurationError,
        "credentials that it accepts",
        "check the `token` of the store, which may have expired, or what Google's default chain finds in its place.",
    ),
    CatalogFailureRule(
        "missing client",
        lambda error: isinstance(error, ModuleNotFoundError) and error.name in _EXTRAS,
        ConfigurationError,
        "the Python package that speaks to the store or the database",
        "install the extra that brings it, `dagster-iceberg-spark[azure]`, `[mysql]` or `[postgres]`.",
    ),
    CatalogFailureRule(
        "missing bucket",
        _says("NO_SUCH_BUCKET", "NoSuchBucket"),
        ConfigurationError,
        "a bucket or container that exists",
        "correct the catalog's `warehouse`, or the store's `endpoint` and `region`.",
    ),
    CatalogFailureRule(
        "refused by the database",  # PostgreSQL's client has no SQL state for a connection that never was
        _says("password authentication failed", "no password supplied", "Access denied for user"),
        ConfigurationError,
        "credentials that it accepts",
        "check the catalog's credentials in the resource configuration.",
    ),
    CatalogFailureRule(
        "no rights in the database",
        lambda error: (
            isinstance(error, SQLAlchemyError)
            and _says("permission denied for ", "is not permitted to log in", "command denied to user")(error)
        ),
        ConfigurationError,
        "a user that may use the catalog's database",
        "grant the user of the catalog's `uri` CONNECT and CREATE, and SELECT, INSERT, UPDATE and DELETE on the tables "
        "`iceberg_tables` and `iceberg_namespace_properties`.",
    ),
    CatalogFailureRule(
        "wrong address of the database",
        lambda error: isinstance(error, SQLAlchemyError) and _says(*_WRONG_DATABASE)(error),
        ConfigurationError,
        "a database and parameters that the server and its client know",
        "correct the catalog's `uri`: the database's name, `sslmode` and other parameters.",
    ),
    CatalogFailureRule(
        "wrong request",
        _is_wrong_request,
        ConfigurationError,
        "an Iceberg REST catalog that has the warehouse",
        "correct `uri`, `warehouse` and `prefix` of the catalog.",
    ),
    CatalogFailureRule(
        "another service",
        _is(ValidationError),
        ConfigurationError,
        "the JSON of an Iceberg REST catalog",
        "correct `uri` and `prefix` of the catalog.",
    ),
    CatalogFailureRule(
        "damaged catalog",
        _says("file is not a database", "database disk image is malformed"),
        InvestigationError,
        "a SQLite file in one piece",
        "bring the file back from a backup, then start the process anew.",
    ),
    CatalogFailureRule(
        "read-only catalog",
        _says("unable to open database file", "attempt to write a readonly database"),
        ConfigurationError,
        "a SQLite file that this process may open and write",
        "let the user that runs it write the file and the directory around it, which holds the journal.",
    ),
    CatalogFailureRule(
        "locked catalog",
        _says("database is locked"),
        CatalogUnavailableError,
        "a SQLite file that others lock for moments only",
        "run it again when the other process is done; many writers at once need PostgreSQL or a REST catalog.",
    ),
    CatalogFailureRule(
        "no permission",
        _is(PermissionError),
        ConfigurationError,
        "files that this process may read",
        "let the user that runs it read the table's directory.",
    ),
    CatalogFailureRule(
        "missing file",
        _is(FileNotFoundError),
        InvestigationError,
        "every file that the table's metadata names",
        f"if its snapshot has expired meanwhile, run it again; else {RESTORE_HINT}",
    ),
    CatalogFailureRule(
        "damaged manifest", _is(*_NO_AVRO), InvestigationError, "manifests that can be read to their end", RESTORE_HINT
    ),
    CatalogFailureRule(
        "damaged data file",
        _says(  # what pyarrow's reader says
            "Parquet magic bytes not found",
            "Parquet file size is",
            "Couldn't deserialize thrift",
            "Corrupt ",
            "Unexpected end of stream",
            "Invalid base64 input",  # of the columns, in the footer
        ),
        InvestigationError,
        "a data file that can be read to its end",
        "materialize the partition again that the file has rows of, which replaces the file; or bring it back from a "
        "backup, or roll the table back to a snapshot that does without it.",
    ),
    CatalogFailureRule(
        "refused by the metastore",
        _metastore_says("GSS", "SASL", "Kerberos", "AccessControlException", "Permission denied", "No privilege"),
        ConfigurationError,
        "a user that it lets in",
        "check `kerberos_principal` and that there is a ticket (`klist`), and what the user may do in the metastore.",
    ),
    CatalogFailureRule(
        "another Hive",
        _metastore_says("Invalid method name"),
        ConfigurationError,
        "a Hive Metastore that answers clients of Hive 2.3",
        "use one of Hive 2.3 to 4.0.0, or its REST endpoint with `RestCatalog`.",
    ),
    CatalogFailureRule(
        "no answer",
        lambda error: _is_of_the_metastore(error) or _is_azure_s(error) or isinstance(error, _UNANSWERED),
        CatalogUnavailableError,
        "an answer",
    ),
)
"""First match wins."""


def rule_for(error: Exception) -> CatalogFailureRule | None:
    """Return the first rule that applies; None: the error is nothing of the catalog's."""
    return next((rule for rule in RULES if rule.applies(error)), None)
