"""What the errors of pyiceberg, the SQL driver and the store become: one of each kind, as they were seen."""

import zlib

import pyarrow as pa
import pytest
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    ForbiddenError,
    OAuthError,
    RESTError,
    ServerError,
    ServiceUnavailableError,
    UnauthorizedError,
)
from sqlalchemy.exc import DatabaseError, OperationalError

from dagster_iceberg_spark import errors
from dagster_iceberg_spark.catalog.failures import CATALOG_ERRORS, RULES, rule_for
from dagster_iceberg_spark.errors import IcebergSparkError


def sql(message: str, kind: type[DatabaseError] = OperationalError) -> DatabaseError:
    return kind("select 1", None, Exception(message))


FAILURES: dict[tuple[str, type[IcebergSparkError]], list[Exception]] = {
    ("expired credentials", errors.CredentialsExpiredError): [
        AuthorizationExpiredError("419"),
        OSError("When reading information for key 'x': AWS Error UNKNOWN (HTTP status 400): ExpiredToken"),
    ],
    ("not authorised", errors.ConfigurationError): [UnauthorizedError("no"), ForbiddenError("no"), OAuthError("no")],
    ("refused by PostgreSQL", errors.ConfigurationError): [
        sql('FATAL:  password authentication failed for user "me"'),
        sql("fe_sendauth: no password supplied"),
    ],
    ("damaged catalog", errors.InvestigationError): [
        sql("file is not a database", DatabaseError),
        sql("database disk image is malformed", DatabaseError),
    ],
    ("read-only catalog", errors.ConfigurationError): [
        sql("unable to open database file"),
        sql("attempt to write a readonly database"),
    ],
    ("locked catalog", errors.CatalogUnavailableError): [sql("database is locked")],
    ("no permission", errors.ConfigurationError): [
        PermissionError(13, "Failed to open local file"),
        OSError("When reading information for key 'x': AWS Error ACCESS_DENIED during HeadObject operation"),
    ],
    ("missing file", errors.InvestigationError): [FileNotFoundError(2, "Failed to open local file")],
    ("damaged manifest", errors.InvestigationError): [
        UnicodeDecodeError("utf-8", b"\xc1", 0, 1, "invalid start byte"),
        SystemError("Negative size passed to PyBytes_FromStringAndSize"),
        EOFError("x"),
        zlib.error("Error -3 while decompressing data"),
    ],
    ("damaged data file", errors.InvestigationError): [
        pa.ArrowInvalid("Could not open Parquet input source: Parquet magic bytes not found in footer."),
        pa.ArrowInvalid("Parquet file size is 3 bytes, smaller than the minimum file footer (8 bytes)"),
        OSError("Couldn't deserialize thrift: TProtocolException: Invalid data"),
        OSError("Corrupt snappy compressed data."),
    ],
    ("no answer", errors.CatalogUnavailableError): [
        sql("could not connect to server"),
        ServerError("x"),
        OSError("AWS Error NETWORK_CONNECTION during HeadObject operation"),
        ConnectionResetError("x"),
        RESTError("RESTError 429: TooManyRequestsException: x"),
        ServiceUnavailableError("x"),
        OSError("AWS Error SLOW_DOWN during GetObject operation: Please reduce your request rate."),
        TimeoutError("timed out"),
    ],
}
"""Errors by the rule that they fall under and the error that they become."""
CASES = [(rule, error, kind) for (rule, kind), raised in FAILURES.items() for error in raised]


@pytest.mark.parametrize(("rule", "error", "kind"), CASES, ids=lambda value: value if isinstance(value, str) else "")
def test_an_error_of_the_catalog_becomes_one_of_the_package(
    rule: str, error: Exception, kind: type[IcebergSparkError]
) -> None:
    found = rule_for(error)
    assert isinstance(error, CATALOG_ERRORS)
    assert found is not None
    assert (found.name, found.error) == (rule, kind)


def test_every_rule_has_an_error_that_shows_it() -> None:
    assert {rule for rule, _ in FAILURES} == {rule.name for rule in RULES}


def test_what_is_no_failure_of_the_catalog_has_no_rule() -> None:
    assert (
        rule_for(pa.ArrowInvalid("Casting from timestamp[us] to timestamp[ns] would result in out of bounds")) is None
    )
