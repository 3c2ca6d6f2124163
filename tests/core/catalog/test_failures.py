"""Classifying errors of pyiceberg, the SQL driver and the store. Each kind has an example that was observed."""

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

from dagster_iceberg_spark.catalog.failures import RECOGNISERS, catalog_errors, kind_of
from dagster_iceberg_spark.failure_kinds import FailureKind


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


FAILURES: dict[FailureKind, list[Exception]] = {
    FailureKind.CREDENTIALS_EXPIRED: [
        AuthorizationExpiredError("419"),
        OSError("When reading information for key 'x': AWS Error UNKNOWN (HTTP status 400): ExpiredToken"),
        aws("ExpiredTokenException", "The security token included in the request is expired"),
        HttpResponseError("ErrorCode:AuthenticationFailed\nSignature not valid in the specified time frame: ..."),
    ],
    FailureKind.AWS_CREDENTIALS_MISSING: [NoCredentialsError(), NoRegionError()],
    FailureKind.CREDENTIALS_REFUSED: [
        UnauthorizedError("no"),
        ForbiddenError("no"),
        OAuthError("no"),
        aws("UnrecognizedClientException", "The security token included in the request is invalid"),
        OSError("When reading information for key 'x': AWS Error INVALID_ACCESS_KEY_ID during HeadObject operation"),
        OSError("When reading information for key 'x': AWS Error SIGNATURE_DOES_NOT_MATCH during GetObject"),
        sql('FATAL:  password authentication failed for user "me"'),
        sql("(1045, \"Access denied for user 'me'@'127.0.0.1' (using password: YES)\")"),
        sql("fe_sendauth: no password supplied"),
    ],
    FailureKind.CREDENTIALS_REFUSED_BY_AZURE: [
        HttpResponseError(
            "Operation returned an invalid status 'Server failed to authenticate the request. ...'\n"
            "ErrorCode:AuthorizationFailure"
        ),
        HttpResponseError("This request is not authorized ...\nErrorCode:AuthorizationPermissionMismatch"),
        ClientAuthenticationError("DefaultAzureCredential failed to retrieve a token from the included credentials."),
        ClientAuthenticationError("Authentication failed: AADSTS7000215: Invalid client secret provided."),
    ],
    FailureKind.CERTIFICATE_UNTRUSTED: [
        SSLError(
            "Max retries exceeded (Caused by SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED]')"
        )
    ],
    FailureKind.CREDENTIALS_REFUSED_BY_GOOGLE: [
        PermissionError("Cannot get file info, access denied: gs://lake/a"),
        OSError("google::cloud::Status(UNAUTHENTICATED: Permanent error, Invalid Credentials)"),
    ],
    FailureKind.PYTHON_CLIENT_MISSING: [
        ModuleNotFoundError("No module named 'adlfs'", name="adlfs"),
        ModuleNotFoundError("No module named 'pymysql'", name="pymysql"),
    ],
    FailureKind.BUCKET_MISSING: [
        OSError("When reading information for key 'x' in bucket 'y': AWS Error NO_SUCH_BUCKET during HeadObject")
    ],
    FailureKind.DATABASE_PERMISSION_DENIED: [
        sql("permission denied for schema public", ProgrammingError),
        sql("permission denied for table iceberg_tables", ProgrammingError),
        sql('connection to server at "h", port 1 failed: FATAL:  permission denied for database "closed"'),
        sql('connection to server at "h", port 1 failed: FATAL:  role "me" is not permitted to log in'),
        sql("(1142, \"CREATE command denied to user 'me'@'h' for table 'iceberg_tables'\")"),
    ],
    FailureKind.DATABASE_ADDRESS_WRONG: [
        sql('connection to server at "h", port 1 failed: FATAL:  database "nowhere" does not exist'),
        sql('connection to server at "h", port 1 failed: FATAL:  no pg_hba.conf entry for host "h", no encryption'),
        sql('connection to server at "h", port 1 failed: server does not support SSL, but SSL was required'),
        sql('connection to server at "h", port 1 failed: FATAL:  unrecognized configuration parameter "bogus"'),
        sql('invalid sslmode value: "sometimes"'),
        sql('invalid dsn: invalid connection option "foo"', ProgrammingError),
        sql("(1049, \"Unknown database 'nowhere'\")"),
    ],
    FailureKind.REQUEST_REFUSED: [
        refused(404, "NotFoundException: Warehouse 'x' not found"),
        refused(400, "BadRequestException: Unknown warehouse 'x'", BadRequestError),
    ],
    FailureKind.NOT_A_REST_CATALOG: [
        refused(404, "RESTError 404: Received unexpected JSON Payload: <html>"),
        refused(405),
        malformed(ConfigResponse, "<!DOCTYPE html>"),
        malformed(NamespaceResponse, '{"hello": "world"}'),
    ],
    FailureKind.SQLITE_FILE_DAMAGED: [
        sql("file is not a database", DatabaseError),
        sql("database disk image is malformed", DatabaseError),
    ],
    FailureKind.SQLITE_FILE_READ_ONLY: [
        sql("unable to open database file"),
        sql("attempt to write a readonly database"),
    ],
    FailureKind.SQLITE_FILE_LOCKED: [sql("database is locked")],
    FailureKind.PERMISSION_DENIED: [
        PermissionError(13, "Failed to open local file"),
        MetaException("Got exception: org.apache.hadoop.security.AccessControlException Permission denied: user=me"),
    ],
    FailureKind.AWS_ACCESS_DENIED: [
        aws("AccessDeniedException", "User is not authorized to perform: glue:GetTable"),
        OSError("When reading information for key 'x': AWS Error ACCESS_DENIED during HeadObject operation"),
    ],
    FailureKind.CLOCK_SKEWED: [
        OSError("AWS Error REQUEST_TIME_TOO_SKEWED during GetObject operation: The difference is too large."),
        aws("InvalidSignatureException", "Signature expired: 20240101T000000Z is now earlier than 20240101T000500Z"),
    ],
    FailureKind.FILE_MISSING: [FileNotFoundError(2, "Failed to open local file")],
    FailureKind.METADATA_DAMAGED: [
        UnicodeDecodeError("utf-8", b"\xc1", 0, 1, "invalid start byte"),
        SystemError("Negative size passed to PyBytes_FromStringAndSize"),
        EOFError("x"),
        zlib.error("Error -3 while decompressing data"),
    ],
    FailureKind.PARTITION_SPEC_UNREADABLE: [TypeError("Type not recognized: decimal_20_0")],
    FailureKind.DATA_FILE_DAMAGED: [
        pa.ArrowInvalid("Could not open Parquet input source: Parquet magic bytes not found in footer."),
        pa.ArrowInvalid("Parquet file size is 3 bytes, smaller than the minimum file footer (8 bytes)"),
        OSError("Couldn't deserialize thrift: TProtocolException: Invalid data"),
        OSError("Corrupt snappy compressed data."),
    ],
    FailureKind.HADOOP_USER_REFUSED: [
        TTransportException(TTransportException.NOT_OPEN, "Bad SASL negotiation status: 4 (GSS initiate failed)")
    ],
    FailureKind.METASTORE_PRIVILEGE_MISSING: [
        MetaException("No privilege 'Select' found for inputs { database:db, table:t}")
    ],
    FailureKind.HIVE_VERSION_UNSUPPORTED: [
        TApplicationException(TApplicationException.UNKNOWN_METHOD, "Invalid method name: 'get_table'")
    ],
    FailureKind.THROTTLED: [
        RESTError("RESTError 429: TooManyRequestsException: x"),
        refused(429),
        OSError("AWS Error SLOW_DOWN during GetObject operation: Please reduce your request rate."),
        aws("ThrottlingException", "Rate exceeded"),
    ],
    FailureKind.CATALOG_UNREACHABLE: [
        TTransportException(TTransportException.NOT_OPEN, "Could not connect to any of [('127.0.0.1', 9083)]"),
        TTransportException(TTransportException.END_OF_FILE, "unexpected end of file"),
        MetaException("javax.jdo.JDODataStoreException: Communications link failure"),
        sql("could not connect to server"),
        ServerError("x"),
        OSError("AWS Error NETWORK_CONNECTION during HeadObject operation"),
        ConnectionResetError("x"),
        *(refused(status) for status in (408, 409, 425, 500, 502)),
        ServiceUnavailableError("x"),
        TimeoutError("timed out"),
        ServiceRequestError("Cannot connect to host account.blob.core.windows.net:443 ssl:default"),
        EndpointConnectionError(endpoint_url="https://glue.eu-west-1.amazonaws.com"),
    ],
}
"""Errors by their kind."""
CASES = [(kind, error) for kind, raised in FAILURES.items() for error in raised]


@pytest.mark.parametrize(("kind", "error"), CASES, ids=lambda value: getattr(value, "label", ""))
def test_a_catalog_error_is_classified(kind: FailureKind, error: Exception) -> None:
    assert isinstance(error, catalog_errors())
    assert kind_of(error) is kind


def test_every_recognizer_applies_to_a_listed_error() -> None:
    first = {next(recogniser for recogniser in RECOGNISERS if recogniser[1](error)) for _, error in CASES}
    assert first == set(RECOGNISERS)


def test_an_error_that_is_not_the_catalog_s_has_no_kind() -> None:
    assert kind_of(ModuleNotFoundError("No module named 'theirs'", name="theirs")) is None
    assert kind_of(pa.ArrowInvalid("Casting from timestamp[us] to timestamp[ns] would result in out of bounds")) is None
