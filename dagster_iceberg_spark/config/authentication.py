"""How a REST catalog is told who asks."""

from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field

from dagster_iceberg_spark.catalog.description import EngineProperties
from dagster_iceberg_spark.config.aws_credentials import AwsCredentials, named_keys
from dagster_iceberg_spark.config.configuration import Configuration
from dagster_iceberg_spark.versions import ICEBERG_AWS_BUNDLE

DEFAULT_SCOPE: Final = "catalog"
"""What Iceberg's clients ask for where nothing else is said (OAuth2Properties.CATALOG_SCOPE)."""


class NoAuthentication(Configuration):
    """The catalog asks nobody who they are, or `properties` say it."""

    kind: Literal["none"] = Field(default="none", description="No authentication.")

    def describe(self) -> EngineProperties:
        """Return what both engines need."""
        return EngineProperties()


class BearerToken(Configuration):
    """A token that is sent as it is."""

    kind: Literal["bearer"] = Field(default="bearer", description="A token that is sent as it is.")
    token: str = Field(description="The token. It is not renewed. Use EnvVar.")

    def describe(self) -> EngineProperties:
        """Return what both engines need."""
        secret = {"token": self.token}
        # Iceberg would exchange the token for another one before it expires; few services take that.
        spark = {"rest.auth.type": "oauth2", "token-refresh-enabled": "false"}
        return EngineProperties(spark=spark, spark_secrets=secret, pyiceberg_secrets=secret)


class OAuth2(Configuration):
    """OAuth2 client credentials: a token is asked for with an id and a secret, and again before it expires."""

    kind: Literal["oauth2"] = Field(default="oauth2", description="OAuth2 client credentials.")
    client_id: str = Field(description="Id of the client.")
    client_secret: str = Field(description="Secret of the client. Use EnvVar.")
    server_uri: str | None = Field(
        default=None,
        description="Where tokens are handed out, such as `https://id.example.com/oauth2/token`. Default: the "
        "catalog's own endpoint `v1/oauth/tokens`.",
    )
    scope: str = Field(default=DEFAULT_SCOPE, description="Scope of the token, such as `PRINCIPAL_ROLE:ALL`.")
    audience: str | None = Field(default=None, description="Audience of the token.")
    resource: str | None = Field(default=None, description="Resource of the token.")

    def describe(self) -> EngineProperties:
        """Return what both engines need."""
        asked = {
            **({"oauth2-server-uri": self.server_uri} if self.server_uri else {}),
            "scope": self.scope,
            **({"audience": self.audience} if self.audience else {}),
            **({"resource": self.resource} if self.resource else {}),
        }
        secret = {"credential": f"{self.client_id}:{self.client_secret}"}
        return EngineProperties(
            # RFC 6749, 4.4.3: no refresh token comes with client credentials, a new token is asked for instead.
            spark={"rest.auth.type": "oauth2", "token-exchange-enabled": "false", **asked},
            spark_secrets=secret,
            pyiceberg=asked,
            pyiceberg_secrets=secret,
            hidden=(self.client_secret,),
        )


class BasicAuthentication(Configuration):
    """A user's name and password."""

    kind: Literal["basic"] = Field(default="basic", description="A user's name and password.")
    username: str = Field(description="Name of the user.")
    password: str = Field(description="Password of the user. Use EnvVar.")

    def describe(self) -> EngineProperties:
        """Return what both engines need."""
        return EngineProperties(
            spark={"rest.auth.type": "basic", "rest.auth.basic.username": self.username},
            spark_secrets={"rest.auth.basic.password": self.password},
            pyiceberg={"auth": {"type": "basic", "basic": {"username": self.username, "password": self.password}}},
        )


class SigV4(Configuration):
    """Requests signed as AWS's are: for Glue's and S3 Tables' REST endpoints, and behind an API gateway."""

    kind: Literal["sigv4"] = Field(default="sigv4", description="Requests signed as AWS's are.")
    region: str | None = Field(default=None, description="Region of the service. Default: what boto3 finds.")
    service: str = Field(
        default="execute-api", description="Name that the service signs under, such as `glue` or `s3tables`."
    )
    credentials: AwsCredentials = Field(default=AwsCredentials(), description="Who signs requests.")

    def describe(self) -> EngineProperties:
        """Return what both engines need."""
        identity = self.credentials.identity()
        region = {"rest.signing-region": self.region} if self.region else {}
        name = {"rest.signing-name": self.service}
        return EngineProperties(
            spark={"rest.auth.type": "sigv4", "rest.auth.sigv4.delegate-auth-type": "none", **region, **name},
            spark_secrets=named_keys("rest", identity.fixed_keys),
            pyiceberg={"rest.sigv4-enabled": "true", **region, **name},
            packages=(ICEBERG_AWS_BUNDLE,),
            aws=identity,
        )


AuthenticationConfig: TypeAlias = Annotated[
    NoAuthentication | BearerToken | OAuth2 | BasicAuthentication | SigV4, Field(discriminator="kind")
]
