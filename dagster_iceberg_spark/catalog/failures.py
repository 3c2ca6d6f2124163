"""What goes wrong while pyiceberg asks a catalog or reads a table's files, in one table."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    ForbiddenError,
    OAuthError,
    RESTError,
    UnauthorizedError,
)
from sqlalchemy.exc import SQLAlchemyError

from dagster_iceberg_spark.errors import (
    CatalogUnavailableError,
    ConfigurationError,
    CredentialsExpiredError,
    IcebergSparkError,
    InvestigationError,
)

_REFUSED_LOGINS: Final = (UnauthorizedError, ForbiddenError, OAuthError)
_UNANSWERED: Final = (SQLAlchemyError, RESTError, OSError)
_NO_AVRO: Final = (UnicodeDecodeError, EOFError, SystemError, zlib.error)
"""What pyiceberg's decoder stumbles over in a manifest that is cut off or is none."""

CATALOG_ERRORS: Final = (AuthorizationExpiredError, *_REFUSED_LOGINS, *_UNANSWERED, *_NO_AVRO, ValueError)
"""What pyiceberg, the SQL driver and the store raise; not every ValueError, as pyarrow's `ArrowInvalid`, has a rule."""

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


def _is(*classes: type[Exception]) -> Callable[[Exception], bool]:
    return lambda error: isinstance(error, classes)


RULES: Final = (
    CatalogFailureRule(
        "expired credentials",
        lambda error: isinstance(error, AuthorizationExpiredError) or _says("ExpiredToken", "EXPIRED_TOKEN")(error),
        CredentialsExpiredError,
        "credentials that are valid still",
        "run it again; if that repeats, give the catalog or the store credentials that live longer.",
    ),
    CatalogFailureRule(
        "not authorised",
        _is(*_REFUSED_LOGINS),
        ConfigurationError,
        "credentials that it accepts",
        "check the catalog's credentials in the resource configuration.",
    ),
    CatalogFailureRule(
        "refused by PostgreSQL",  # whose client has no SQL state for a connection that never was
        _says("password authentication failed", "no password supplied"),
        ConfigurationError,
        "credentials that it accepts",
        "check the catalog's credentials in the resource configuration.",
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
        lambda error: isinstance(error, PermissionError) or _says("AWS Error ACCESS_DENIED")(error),
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
        ),
        InvestigationError,
        "data files that can be read to their end",
        RESTORE_HINT,
    ),
    CatalogFailureRule("no answer", _is(*_UNANSWERED), CatalogUnavailableError, "an answer"),
)
"""First match wins."""


def rule_for(error: Exception) -> CatalogFailureRule | None:
    """Return the first rule that applies; None: the error is nothing of the catalog's."""
    return next((rule for rule in RULES if rule.applies(error)), None)


def first_line(error: BaseException) -> str:
    """Return the first line of the error's message, or its class where it has none."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__
