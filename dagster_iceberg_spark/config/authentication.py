"""Logins to a REST catalog."""

from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field

from dagster_iceberg_spark.catalog.description import EngineProperties
from dagster_iceberg_spark.config.aws_credentials import AwsCredentials, named_keys
from dagster_iceberg_spark.config.configuration import Configuration, given
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
