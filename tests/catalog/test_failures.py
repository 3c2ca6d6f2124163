"""What the errors of pyiceberg, the SQL driver and the store become: one of each kind, as they were seen."""

import zlib

import pyarrow as pa
import pytest
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ServiceRequestError
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError, NoRegionError
from hive_metastore.ttypes import MetaException
from pydantic import BaseModel, ValidationError
from pyiceberg.catalog.rest import ConfigResponse, NamespaceResponse
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    BadRequestError,
    ForbiddenError,
    OAuthError,
    RESTError,
    ServerError,
    ServiceUnavailableError,
    UnauthorizedError,
)
from requests import HTTPError, Response
from requests.exceptions import SSLError
from sqlalchemy.exc import DatabaseError, OperationalError, ProgrammingError
from thrift.Thrift import TApplicationException
from thrift.transport.TTransport import TTransportException

from dagster_iceberg_spark import errors
from dagster_iceberg_spark.catalog.failures import RULES, catalog_errors, rule_for
from dagster_iceberg_spark.errors import IcebergSparkError


def sql(message: str, kind: type[DatabaseError] = OperationalError) -> DatabaseError:
    return kind("select 1", None, Exception(message))


def refused(status: int, message: str = "x", kind: type[RESTError] = RESTError) -> RESTError:
    error, answer = kind(message), Response()
    answer.status_code = status
    error.__cause__ = HTTPError(response=answer)
    return error


def malformed(kind: type[BaseModel], answer: str) -> ValidationError:
    with pytest.raises(ValidationError) as caught:
        kind.model_validate_json(answer)
    return caught.value


def aws(code: str, message: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": message}}, "GetTable")


FAILURES: dict[tuple[str, type[IcebergSparkError]], list[Exception]] = {
    ("expired credentials", errors.CredentialsExpiredError): [
        AuthorizationExpiredError("419"),
        OSError("When reading information for key 'x': AWS Error UNKNOWN (HTTP status 400): ExpiredToken"),
        aws("ExpiredTokenException", "The security token included in the request is expired"),
        HttpResponseError("ErrorCode:AuthenticationFailed\nSignature not valid in the specified time frame: ..."),
    ],
    ("not authorised", errors.ConfigurationError): [UnauthorizedError("no"), ForbiddenError("no"), OAuthError("no")],
    ("missing AWS credentials", errors.ConfigurationError): [NoCredentialsError(), NoRegionError()],
    ("refused by AWS", errors.ConfigurationError): [
        aws("AccessDeniedException", "User is not authorized to perform: glue:GetTable"),
        aws("UnrecognizedClientException", "The security token included in the request is invalid"),
        OSError("When reading information for key 'x': AWS Error INVALID_ACCESS_KEY_ID during HeadObject operation"),
        OSError("When reading information for key 'x': AWS Error SIGNATURE_DOES_NOT_MATCH during GetObject"),
    ],
    ("refused by Azure", errors.ConfigurationError): [
        HttpResponseError(
            "Operation returned an invalid status 'Server failed to authenticate the request. ...'\n"
            "ErrorCode:AuthorizationFailure"
        ),
        HttpResponseError("This request is not authorized ...\nErrorCode:AuthorizationPermissionMismatch"),
        ClientAuthenticationError("DefaultAzureCredential failed to retrieve a token from the included credentials."),
        ClientAuthenticationError("Authentication failed: AADSTS7000215: Invalid client secret provided."),
    ],
    ("untrusted certificate", errors.ConfigurationError): [
        SSLError(
            "Max retries exceeded (Caused by SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED]')"
        ),
    ],
    ("refused by Google", errors.ConfigurationError): [
        PermissionError("Cannot get file info, access denied: gs://lake/a"),
        OSError("google::cloud::Status(UNAUTHENTICATED: Permanent error, Invalid Credentials)"),
    ],
    ("missing client", errors.ConfigurationError): [
        ModuleNotFoundError("No module named 'adlfs'", name="adlfs"),
        ModuleNotFoundError("No module named 'pymysql'", name="pymysql"),
    ],
    ("missing bucket", errors.ConfigurationError): [
        OSError("When reading information for key 'x' in bucket 'y': AWS Error NO_SUCH_BUCKET during HeadObject"),
    ],
    ("refused by the database", errors.ConfigurationError): [
        sql('FATAL:  password authentication failed for user "me"'),
        sql("(1045, \"Access denied for user 'me'@'127.0.0.1' (using password: YES)\")"),
        sql("fe_sendauth: no password supplied"),
    ],
    ("no rights in the database", errors.ConfigurationError): [
        sql("permission denied for schema public", ProgrammingError),
        sql("permission denied for table iceberg_tables", ProgrammingError),
        sql('connection to server at "h", port 1 failed: FATAL:  permission denied for database "closed"'),
        sql('connection to server at "h", port 1 failed: FATAL:  role "me" is not permitted to log in'),
        sql("(1142, \"CREATE command denied to user 'me'@'h' for table 'iceberg_tables'\")"),
    ],
    ("wrong address of the database", errors.ConfigurationError): [
        sql('connection to server at "h", port 1 failed: FATAL:  database "nowhere" does not exist'),
        sql('connection to server at "h", port 1 failed: FATAL:  no pg_hba.conf entry for host "h", no encryption'),
        sql('connection to server at "h", port 1 failed: server does not support SSL, but SSL was required'),
        sql('connection to server at "h", port 1 failed: FATAL:  unrecognized configuration parameter "bogus"'),
        sql('invalid sslmode value: "sometimes"'),
        sql('invalid dsn: invalid connection option "foo"', ProgrammingError),
        sql("(1049, \"Unknown database 'nowhere'\")"),
    ],
    ("wrong request", errors.ConfigurationError): [
        refused(404, "RESTError 404: Received unexpected JSON Payload: <html>"),
        refused(404, "NotFoundException: Warehouse 'x' not found"),
        refused(400, "BadRequestException: Unknown warehouse 'x'", BadRequestError),
        refused(405),
    ],
    ("another service", errors.ConfigurationError): [
        malformed(ConfigResponse, "<!DOCTYPE html>"),
        malformed(NamespaceResponse, '{"hello": "world"}'),
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
    ("no permission", errors.ConfigurationError): [PermissionError(13, "Failed to open local file")],
    ("refused by S3 without a word", errors.ConfigurationError): [
        OSError("When reading information for key 'x': AWS Error ACCESS_DENIED during HeadObject operation"),
    ],
    ("wrong clock", errors.ConfigurationError): [
        OSError("AWS Error REQUEST_TIME_TOO_SKEWED during GetObject operation: The difference is too large."),
        aws("InvalidSignatureException", "Signature expired: 20240101T000000Z is now earlier than 20240101T000500Z"),
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
    ("refused by the metastore", errors.ConfigurationError): [
        MetaException("Got exception: org.apache.hadoop.security.AccessControlException Permission denied: user=me"),
        MetaException("No privilege 'Select' found for inputs { database:db, table:t}"),
        TTransportException(TTransportException.NOT_OPEN, "Bad SASL negotiation status: 4 (GSS initiate failed)"),
    ],
    ("another Hive", errors.ConfigurationError): [
        TApplicationException(TApplicationException.UNKNOWN_METHOD, "Invalid method name: 'get_table'"),
    ],
    ("no answer", errors.CatalogUnavailableError): [
        TTransportException(TTransportException.NOT_OPEN, "Could not connect to any of [('127.0.0.1', 9083)]"),
        TTransportException(TTransportException.END_OF_FILE, "unexpected end of file"),
        MetaException("javax.jdo.JDODataStoreException: Communications link failure"),
        sql("could not connect to server"),
        ServerError("x"),
        OSError("AWS Error NETWORK_CONNECTION during HeadObject operation"),
        ConnectionResetError("x"),
        RESTError("RESTError 429: TooManyRequestsException: x"),
        *(refused(status) for status in (408, 409, 425, 429, 500, 502)),
        ServiceUnavailableError("x"),
        OSError("AWS Error SLOW_DOWN during GetObject operation: Please reduce your request rate."),
        TimeoutError("timed out"),
        ServiceRequestError("Cannot connect to host account.blob.core.windows.net:443 ssl:default"),
        EndpointConnectionError(endpoint_url="https://glue.eu-west-1.amazonaws.com"),
        aws("ThrottlingException", "Rate exceeded"),
    ],
}
"""Errors by the rule that they fall under and the error that they become."""
CASES = [(rule, error, kind) for (rule, kind), raised in FAILURES.items() for error in raised]


@pytest.mark.parametrize(("rule", "error", "kind"), CASES, ids=lambda value: value if isinstance(value, str) else "")
def test_an_error_of_the_catalog_becomes_one_of_the_package(
    rule: str, error: Exception, kind: type[IcebergSparkError]
) -> None:
    found = rule_for(error)
    assert isinstance(error, catalog_errors())
    assert found is not None
    assert (found.name, found.error) == (rule, kind)


def test_every_rule_has_an_error_that_shows_it() -> None:
    assert {rule for rule, _ in FAILURES} == {rule.name for rule in RULES}


def test_what_is_no_failure_of_the_catalog_has_no_rule() -> None:
    assert rule_for(ModuleNotFoundError("No module named 'theirs'", name="theirs")) is None
    assert (
        rule_for(pa.ArrowInvalid("Casting from timestamp[us] to timestamp[ns] would result in out of bounds")) is None
    )
