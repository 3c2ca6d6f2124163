"""Catalogs that speak Iceberg's REST protocol, with presets for some services."""

import ssl
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field
from typing_extensions import Self

from dagster_iceberg_spark.catalog.description import CatalogDescription, EngineProperties, split_secrets
from dagster_iceberg_spark.config.authentication import (
    AuthenticationConfig,
    BearerToken,
    NoAuthentication,
    OAuth2,
    SigV4,
)
from dagster_iceberg_spark.config.aws_credentials import AwsCredentials
from dagster_iceberg_spark.config.catalog import Catalog
from dagster_iceberg_spark.config.configuration import given
from dagster_iceberg_spark.config.s3_store import S3Store
from dagster_iceberg_spark.config.uri import host_of, parts_of, without_password
from dagster_iceberg_spark.timeouts import CLIENT_ANSWER_TIMEOUT_SECONDS, CLIENT_CONNECT_TIMEOUT_SECONDS

_ACCESS_DELEGATION: Final = "header.X-Iceberg-Access-Delegation"
"""Iceberg's REST specification, parameter `data-access`."""
_VENDED: Final = {"access_delegation": "vended-credentials"}
_REMOTE_SIGNING: Final = EngineProperties(
    spark={"s3.remote-signing-enabled": "true", "signer.endpoint": "v1/aws/s3/sign"},
    pyiceberg={"py-io-impl": "dagster_iceberg_spark.pyiceberg_fixes.remote_signing.SigningFileIO"},
)
"""The endpoint is pyiceberg's default, and was Iceberg's before 1.12. A catalog may name another for a table."""


class RestCatalog(Catalog):
    """A catalog that speaks Iceberg's REST protocol.

    Example:
        >>> RestCatalog(uri="http://127.0.0.1:8181").kind
        'rest'
    """

    kind: Literal["rest"] = Field(default="rest", description="A catalog that speaks Iceberg's REST protocol.")
    uri: str = Field(description="Base URI of the service, such as `https://catalog.example.com/api`.")
    warehouse: str | None = Field(default=None, description="Name or location of the warehouse, if there are several.")
    authentication: AuthenticationConfig = Field(
        default=NoAuthentication(), description="How Spark and pyiceberg log in to the catalog."
    )
    access_delegation: Literal["none", "vended-credentials", "remote-signing"] = Field(
        default="none",
        description="How the catalog delegates access to the files: `vended-credentials` hands out credentials with "
        "each table, `remote-signing` signs each request to S3. With `none`, the `store` has its own credentials.",
    )
    prefix: str | None = Field(default=None, description="Prefix of the paths, if the service does not announce it.")
    headers: dict[str, str] = Field(default={}, description="Headers of every request, such as `Polaris-Realm`.")
    atomic_transactions: bool = Field(
        default=False,
        description="Whether the server commits several tables at one instant (endpoint `transactions/commit`). A "
        "release then publishes all tables or none. Not every server that has the endpoint does.",
    )
    ca_bundle: str | None = Field(
        default=None,
        description="Path of a PEM file with the service's certificate authorities, if these are private. It is for "
        "reads without a JVM: the JVM of Spark has its own trust store.",
    )

    @classmethod
    def polaris(
        cls, uri: str, *, catalog: str, client_id: str, client_secret: str, role: str = "ALL", **fields: Any
    ) -> Self:
        """Return a catalog of Apache Polaris, or of Snowflake Open Catalog.

        Args:
            uri: `https://polaris.example.com/api/catalog`.
            catalog: Name of the catalog in Polaris.
            client_id: Id of the principal.
            client_secret: Secret of the principal; use EnvVar.
            role: Principal role of the token; `ALL`: every role of the principal.
            fields: Further fields, such as `store=S3Store()`, or `headers={"Polaris-Realm": "lake"}`.
        """
        login = OAuth2(client_id=client_id, client_secret=client_secret, scope=f"PRINCIPAL_ROLE:{role}")
        return cls(**{"uri": uri, "warehouse": catalog, "authentication": login, **_VENDED, **fields})

    @classmethod
    def nessie(cls, uri: str, *, warehouse: str | None = None, **fields: Any) -> Self:
        """Return a catalog of Project Nessie.

        Nessie shows only the newest snapshot of a table. The package finds older ones in Nessie's own history if a
        commit depends on them.

        Args:
            uri: `http://nessie.example.com:19120/iceberg`; with a branch, `.../iceberg/dev`.
            warehouse: Name of the warehouse, if the server has several.
            fields: Further fields, such as `store=S3Store()` or `authentication=BearerToken(...)`.
        """
        return cls(**{"uri": uri, "warehouse": warehouse, **_VENDED, **fields})

    @classmethod
    def lakekeeper(
        cls, uri: str, *, warehouse: str, client_id: str, client_secret: str, server_uri: str, **fields: Any
    ) -> Self:
        """Return a catalog of Lakekeeper.

        Args:
            uri: `https://lakekeeper.example.com/catalog`.
            warehouse: Name of the warehouse.
            client_id: Id of the client at the identity provider.
            client_secret: Secret of the client; use EnvVar.
            server_uri: Token endpoint of the identity provider.
            fields: Further fields, such as `store=S3Store()`.
        """
        login = OAuth2(client_id=client_id, client_secret=client_secret, server_uri=server_uri, scope="lakekeeper")
        return cls(**{"uri": uri, "warehouse": warehouse, "authentication": login, **_VENDED, **fields})

    @classmethod
    def unity(cls, uri: str, *, catalog: str, token: str, **fields: Any) -> Self:
        """Return a catalog of Databricks' Unity Catalog.

        Args:
            uri: `https://<workspace>/api/2.1/unity-catalog/iceberg-rest`.
            catalog: Name of the catalog.
            token: Personal access token; use EnvVar.
            fields: Further fields, such as `store=S3Store()`. For a service principal, `authentication=OAuth2(...)`
                with the workspace's `oidc/v1/token` and the scope `all-apis`.
        """
        login = BearerToken(token=token)
        return cls(**{"uri": uri, "warehouse": catalog, "authentication": login, **_VENDED, **fields})

    @classmethod
    def glue(cls, *, region: str, account_id: str, credentials: AwsCredentials | None = None, **fields: Any) -> Self:
        """Return the REST endpoint of AWS Glue's Data Catalog.

        Args:
            region: The region.
            account_id: Account of the catalog; for a nested catalog, `<account>:<catalog>`.
            credentials: Credentials that sign requests. Default: those that boto3 finds.
            fields: Further fields.
        """
        uri = f"https://glue.{region}.amazonaws.com/iceberg"
        return cls(**{"uri": uri, "warehouse": account_id, **_signed("glue", region, credentials), **fields})

    @classmethod
    def s3_tables(
        cls, *, region: str, table_bucket: str, credentials: AwsCredentials | None = None, **fields: Any
    ) -> Self:
        """Return the REST endpoint of Amazon S3 Tables.

        Args:
            region: The region.
            table_bucket: ARN of the table bucket.
            credentials: Credentials that sign requests. Default: those that boto3 finds.
            fields: Further fields.
        """
        uri = f"https://s3tables.{region}.amazonaws.com/iceberg"
        return cls(**{"uri": uri, "warehouse": table_bucket, **_signed("s3tables", region, credentials), **fields})

    def describe(self) -> CatalogDescription:
        """Return what Spark and pyiceberg need."""
        parts = parts_of(self.uri)
        if parts is None or parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
            expected = "a `uri` that starts with http:// or https://, without user and password"
            raise self._refusal(expected, found=repr(without_password(self.uri)), kind="REST catalog")
        common = {"type": "rest", "uri": self.uri, **given({"warehouse": self.warehouse, "prefix": self.prefix})}
        timeouts = {
            "rest.client.connection-timeout-ms": str(CLIENT_CONNECT_TIMEOUT_SECONDS * 1000),
            "rest.client.socket-timeout-ms": str(CLIENT_ANSWER_TIMEOUT_SECONDS * 1000),
        }
        described = self._described(
            EngineProperties(spark={**common, **timeouts}, pyiceberg=common),
            self._headers,
            self._trust,
            self._login,
            _REMOTE_SIGNING if self.access_delegation == "remote-signing" else EngineProperties(),
            kind="REST catalog",
            endpoint=self.uri,
            host=host_of(self.uri),
        )
        return replace(described, has_transactions=self.atomic_transactions)

    @property
    def _default_store(self) -> S3Store:
        login = self.authentication
        return S3Store(region=login.region, credentials=login.credentials) if isinstance(login, SigV4) else S3Store()

    @property
    def _is_vended(self) -> bool:
        return self.access_delegation != "none"

    @property
    def _login(self) -> EngineProperties:
        login = self.authentication
        if isinstance(login, OAuth2) and login.server_uri is None:
            login = login.model_copy(update={"server_uri": f"{self.uri.rstrip('/')}/v1/oauth/tokens"})
        return login.describe()

    @property
    def _trust(self) -> EngineProperties:
        if self.ca_bundle is None:
            return EngineProperties()
        path = Path(self.ca_bundle).absolute()
        try:
            ssl.create_default_context(cafile=path)
        except OSError as error:
            expected, found = "a PEM file with certificates at `ca_bundle`", f"{str(path)!r}: {error.strerror or error}"
            raise self._refusal(expected, found=found, kind="REST catalog") from error
        return EngineProperties(pyiceberg={"ssl": {"cabundle": str(path)}})

    @property
    def _headers(self) -> EngineProperties:
        headers = {f"header.{name}": value for name, value in self.headers.items()}
        if self._is_vended:
            headers[_ACCESS_DELEGATION] = self.access_delegation
        shown, secret = split_secrets(headers)
        # By default pyiceberg requests keys with every request. None removes the header.
        removed = {} if _ACCESS_DELEGATION in headers else {_ACCESS_DELEGATION: None}
        return EngineProperties(
            spark=shown, spark_secrets=secret, pyiceberg={**removed, **shown}, pyiceberg_secrets=secret
        )


def _signed(service: str, region: str, credentials: AwsCredentials | None) -> dict[str, Any]:
    known = credentials or AwsCredentials()
    return {
        "authentication": SigV4(region=region, service=service, credentials=known),
        "store": S3Store(region=region, credentials=known),
    }
