"""Catalogs that speak Iceberg's REST protocol, their logins, and presets for some services."""

import ssl
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field
from typing_extensions import Self

from dagster_iceberg_spark.catalog.description import CatalogDescription, EngineProperties, split_secrets
from dagster_iceberg_spark.config.catalog import Catalog
from dagster_iceberg_spark.config.configuration import (
    Configuration,
    Properties,
    given,
    host_of,
    parts_of,
    without_password,
)
from dagster_iceberg_spark.config.stores import AwsCredentials, S3Store, named_keys
from dagster_iceberg_spark.timeouts import CLIENT_ANSWER_TIMEOUT_SECONDS, CLIENT_CONNECT_TIMEOUT_SECONDS
from dagster_iceberg_spark.versions import ICEBERG_AWS_BUNDLE

DEFAULT_SCOPE: Final = "catalog"
"""The default of Iceberg's clients (OAuth2Properties.CATALOG_SCOPE)."""


class NoAuthentication(Configuration):
    """No login, or one that `properties` describe."""

    kind: Literal["none"] = Field(default="none", description="No authentication.")

    def describe(self) -> EngineProperties:
        """Return what both engines need."""
        return EngineProperties()


class BearerToken(Configuration):
    """A token that the engines send as it is."""

    kind: Literal["bearer"] = Field(default="bearer", description="A token that the engines send as it is.")
    token: str = Field(description="The token, which is not renewed. Use EnvVar.")

    def describe(self) -> EngineProperties:
        """Return what both engines need."""
        secret = {"token": self.token}
        # Iceberg would exchange the token for another one before it expires, which few services support.
        spark = {"rest.auth.type": "oauth2", "token-refresh-enabled": "false"}
        return EngineProperties(spark=spark, spark_secrets=secret, pyiceberg_secrets=secret)


class OAuth2(Configuration):
    """OAuth2 client credentials: the engines request a token with an id and a secret, and a new one when it expires."""

    kind: Literal["oauth2"] = Field(default="oauth2", description="OAuth2 client credentials.")
    client_id: str = Field(description="Client id.")
    client_secret: str = Field(description="Client secret. Use EnvVar.")
    server_uri: str | None = Field(
        default=None,
        description="URI of the token endpoint, such as `https://id.example.com/oauth2/token`. Default: the "
        "catalog's own endpoint, `v1/oauth/tokens`.",
    )
    scope: str = Field(default=DEFAULT_SCOPE, description="Scope of the token, such as `PRINCIPAL_ROLE:ALL`.")
    audience: str | None = Field(default=None, description="Audience of the token.")
    resource: str | None = Field(default=None, description="Resource of the token.")

    def describe(self) -> EngineProperties:
        """Return what both engines need."""
        request = {
            **given({"oauth2-server-uri": self.server_uri, "audience": self.audience, "resource": self.resource}),
            "scope": self.scope,
        }
        secret = {"credential": f"{self.client_id}:{self.client_secret}"}
        return EngineProperties(
            # RFC 6749, 4.4.3: client credentials come without a refresh token; the client requests a new token instead.
            spark={"rest.auth.type": "oauth2", "token-exchange-enabled": "false", **request},
            spark_secrets=secret,
            pyiceberg=request,
            pyiceberg_secrets=secret,
            hidden=(self.client_secret,),
        )


class BasicAuthentication(Configuration):
    """A user name and a password."""

    kind: Literal["basic"] = Field(default="basic", description="A user name and a password.")
    username: str = Field(description="User name.")
    password: str = Field(description="Password. Use EnvVar.")

    def describe(self) -> EngineProperties:
        """Return what both engines need."""
        return EngineProperties(
            spark={"rest.auth.type": "basic", "rest.auth.basic.username": self.username},
            spark_secrets={"rest.auth.basic.password": self.password},
            pyiceberg={"auth": {"type": "basic", "basic": {"username": self.username, "password": self.password}}},
        )


class SigV4(Configuration):
    """AWS Signature Version 4, for the REST endpoints of Glue and S3 Tables, and for catalogs behind an API gateway."""

    kind: Literal["sigv4"] = Field(default="sigv4", description="AWS Signature Version 4.")
    region: str | None = Field(default=None, description="Region of the service. Default: the one that boto3 finds.")
    service: str = Field(
        default="execute-api", description="Name of the service in the signature, such as `glue` or `s3tables`."
    )
    credentials: AwsCredentials = Field(
        default=AwsCredentials(), description="Credentials that sign requests, also to a store that has none."
    )

    def describe(self) -> EngineProperties:
        """Return what both engines need."""
        identity = self.credentials.identity()
        signing = {"rest.signing-name": self.service, **given({"rest.signing-region": self.region})}
        return EngineProperties(
            spark={"rest.auth.type": "sigv4", "rest.auth.sigv4.delegate-auth-type": "none", **signing},
            spark_secrets=named_keys("rest", identity.fixed_keys),
            pyiceberg={"rest.sigv4-enabled": "true", **signing},
            packages=(ICEBERG_AWS_BUNDLE,),
            aws=identity,
        )


AuthenticationConfig: TypeAlias = Annotated[
    NoAuthentication | BearerToken | OAuth2 | BasicAuthentication | SigV4, Field(discriminator="kind")
]

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
    headers: Properties = Field(default={}, description="Headers of every request, such as `Polaris-Realm`.")
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
        return cls(**{"uri": uri, "warehouse": account_id, **_signature("glue", region, credentials), **fields})

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
        return cls(**{"uri": uri, "warehouse": table_bucket, **_signature("s3tables", region, credentials), **fields})

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
        described = self._describe(
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


def _signature(service: str, region: str, credentials: AwsCredentials | None) -> dict[str, Any]:
    known = credentials or AwsCredentials()
    return {
        "authentication": SigV4(region=region, service=service, credentials=known),
        "store": S3Store(region=region, credentials=known),
    }
