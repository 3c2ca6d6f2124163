"""The stores of data files: Amazon S3 and services with the same API, and Azure Data Lake Storage."""

from typing import ClassVar, Final, Literal
from urllib.parse import parse_qsl, urlsplit

from pydantic import Field
from typing_extensions import Self

from dagster_iceberg_spark.catalog.description import DEFAULT_REGION, AwsIdentity, AwsKeys, EngineProperties
from dagster_iceberg_spark.config.configuration import Configuration, given, without_password
from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.pyiceberg_fixes.adls_paths import FILE_IO
from dagster_iceberg_spark.versions import ICEBERG_AWS_BUNDLE, ICEBERG_AZURE_BUNDLE


class AwsCredentials(Configuration):
    """Credentials for AWS. Default: those that boto3 finds (environment, profile, SSO, container, instance).

    Example:
        >>> AwsCredentials(profile="lake").profile
        'lake'
    """

    access_key_id: str | None = Field(default=None, description="Access key id. Use EnvVar.")
    secret_access_key: str | None = Field(default=None, description="Secret access key. Use EnvVar.")
    session_token: str | None = Field(
        default=None, description="Session token of temporary keys, which are not renewed. Use EnvVar."
    )
    profile: str | None = Field(
        default=None, description="Profile in the AWS configuration files. Default: AWS_PROFILE, or `default`."
    )
    role_arn: str | None = Field(
        default=None, description="ARN of a role to assume with these credentials. It is renewed before it expires."
    )
    external_id: str | None = Field(default=None, description="External id that the role's trust policy requires.")
    role_session_name: str | None = Field(default=None, description="Name of the role's session in CloudTrail.")

    @property
    def is_given(self) -> bool:
        """Whether any field is set."""
        return any(value is not None for _, value in self)

    def identity(self) -> AwsIdentity:
        """Return the identity that signs."""
        self._require((self.access_key_id is None) == (self.secret_access_key is None), "both keys or neither")
        self._require(self.session_token is None or self.access_key_id is not None, "`session_token` with its keys")
        self._require(self.profile is None or self.access_key_id is None, "either keys or a `profile`")
        detailed = self.external_id is not None or self.role_session_name is not None
        self._require(self.role_arn is not None or not detailed, "the role's `role_arn`")
        keys = (
            AwsKeys(self.access_key_id, self.secret_access_key, self.session_token)
            if self.access_key_id is not None and self.secret_access_key is not None
            else None
        )
        return AwsIdentity(
            keys=keys,
            profile=self.profile,
            role_arn=self.role_arn,
            external_id=self.external_id,
            role_session_name=self.role_session_name,
        )

    def _require(self, is_right: bool, expected: str) -> None:  # noqa: FBT001 - the condition is what is asked
        if not is_right:
            found = ", ".join(f"`{name}`" for name, value in self if value is not None)
            raise ConfigurationError.refusing("use", "the AWS credentials", expected=expected, found=found)


def named_keys(prefix: str, keys: AwsKeys | None) -> dict[str, str]:
    """Return keys as Iceberg's properties with a prefix: `s3` or `rest`."""
    if keys is None:
        return {}
    return {
        f"{prefix}.access-key-id": keys.access_key_id,
        f"{prefix}.secret-access-key": keys.secret_access_key,
        **given({f"{prefix}.session-token": keys.session_token}),
    }


class S3Store(Configuration):
    """Amazon S3, or a service with the same API.

    Example:
        >>> S3Store(endpoint="http://127.0.0.1:9000", path_style_access=True, region="us-east-1").kind
        's3'
    """

    schemes: ClassVar = ("s3", "s3a", "s3n")

    kind: Literal["s3"] = Field(default="s3", description="Amazon S3, or a service with the same API.")
    endpoint: str | None = Field(
        default=None, description="Endpoint of the service, such as `http://127.0.0.1:9000`. Default: Amazon's."
    )
    path_style_access: bool = Field(
        default=False,
        description="Whether requests name the bucket in the path. Most services other than Amazon's require it.",
    )
    region: str | None = Field(default=None, description="Region. Default: the catalog's, or the one that boto3 finds.")
    credentials: AwsCredentials = Field(
        default=AwsCredentials(), description="Credentials that sign requests. Default: the catalog's, or boto3's."
    )
    encryption: Literal["default", "s3", "kms", "dsse-kms"] = Field(
        default="default", description="Server-side encryption of Spark's files. `default`: the bucket's setting."
    )
    kms_key_id: str | None = Field(
        default=None, description="Key for `kms` and `dsse-kms`, by id or ARN. Default: AWS's own key for S3."
    )

    def describe(self, *, is_vended: bool = False) -> EngineProperties:
        """Return what both engines need. If the catalog vends the credentials, none are looked for here."""
        if self.kms_key_id is not None and self.encryption not in ("kms", "dsse-kms"):
            raise ConfigurationError.refusing(
                "use",
                "the S3 store",
                expected="`encryption` to be `kms` or `dsse-kms` where `kms_key_id` is set",
                found=repr(self.encryption),
            )
        is_signed_here = self.credentials.is_given or not is_vended
        identity = self.credentials.identity() if is_signed_here else None
        secrets = {} if identity is None else named_keys("s3", identity.fixed_keys)
        common = given(
            {
                "s3.endpoint": self.endpoint,
                "client.region": self.region or (DEFAULT_REGION if identity is None and self.endpoint else None),
            }
        )
        is_virtual = self.endpoint and not self.path_style_access
        return EngineProperties(
            spark={
                "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
                **common,
                **({"s3.path-style-access": "true"} if self.path_style_access else {}),
                **({"s3.sse.type": self.encryption} if self.encryption != "default" else {}),
                **given({"s3.sse.key": self.kms_key_id}),
            },
            spark_secrets=secrets,
            pyiceberg={**common, **({"s3.force-virtual-addressing": "true"} if is_virtual else {})},
            pyiceberg_secrets=secrets,
            packages=(ICEBERG_AWS_BUNDLE,),
            aws=identity,
        )


_PUBLIC_SUFFIX: Final = ".dfs.core.windows.net"
_PARTS: Final = ("AccountName", "AccountKey", "SharedAccessSignature", "BlobEndpoint", "UseDevelopmentStorage")
"""Parts of a connection string (Azure Storage, "Configure connection strings")."""
_FORM: Final = "abfss://<container>@<account>.dfs.core.windows.net/<path>"


class AdlsStore(Configuration):
    """Azure Data Lake Storage. Without a key, a SAS token or a client, it uses Azure's default credential chain.

    Example:
        >>> AdlsStore(account_name="lake").kind
        'adls'
    """

    schemes: ClassVar = ("abfs", "abfss")
    """pyiceberg's client opens neither `wasb` nor `wasbs`."""

    kind: Literal["adls"] = Field(default="adls", description="Azure Data Lake Storage.")
    account_name: str | None = Field(
        default=None, description="Storage account. Default: that of the warehouse's host."
    )
    account_key: str | None = Field(default=None, description="Account key. Use EnvVar.")
    sas_token: str | None = Field(default=None, description="Shared access signature. It is not renewed. Use EnvVar.")
    tenant_id: str | None = Field(default=None, description="Tenant, with `client_id` and `client_secret`.")
    client_id: str | None = Field(default=None, description="Id of the client (service principal).")
    client_secret: str | None = Field(default=None, description="Secret of the client. Use EnvVar.")
    connection_string: str | None = Field(
        default=None, description="Connection string from the Azure portal, in place of all other fields. Use EnvVar."
    )
    endpoint: str | None = Field(
        default=None,
        description="Blob endpoint of the account, such as an emulator's `http://127.0.0.1:10000/devstoreaccount1`. "
        "Default: Azure's, for the warehouse's host.",
    )

    def describe(self, warehouse: str | None = None) -> EngineProperties:
        """Return what both engines need. The warehouse is None if only the catalog's service knows it."""
        if self.connection_string is not None:
            return self._read(self.connection_string).describe(warehouse)
        self._require_one_login()
        account, host = _place(warehouse, self.account_name)
        signature = self.sas_token and self.sas_token.removeprefix("?")
        if account is None and (self.account_key or signature or self.endpoint):
            raise _refusal("`account_name`, which the warehouse does not name", found="none")
        endpoint = self.endpoint.rstrip("/") if self.endpoint else None
        return EngineProperties(
            spark={
                "io-impl": "org.apache.iceberg.azure.adlsv2.ADLSFileIO",
                # Despite its name, Iceberg reads an endpoint from it (AzureProperties.applyClientConfiguration).
                **given({f"adls.connection-string.{host}": endpoint}),
                **({"adls.auth.shared-key.account.name": str(account)} if self.account_key else {}),
            },
            spark_secrets=given(
                {"adls.auth.shared-key.account.key": self.account_key, f"adls.sas-token.{host}": signature}
            ),
            pyiceberg=given(
                {
                    "py-io-impl": FILE_IO,
                    "adls.account-name": account,
                    "adls.account-host": _account_host(host, endpoint),
                    "adls.tenant-id": self.tenant_id,
                    "adls.client-id": self.client_id,
                }
            ),
            pyiceberg_secrets=given(
                {
                    "adls.account-key": self.account_key,
                    "adls.sas-token": signature,
                    "adls.client-secret": self.client_secret,
                    "adls.connection-string": self._connection(account, endpoint, signature),
                }
            ),
            hidden=tuple(value for name, value in parse_qsl(signature or "") if name == "sig"),
            # For the default chain of Azure's Java SDK: Iceberg has no property for a client's secret.
            system_properties=given(
                {
                    "AZURE_TENANT_ID": self.tenant_id,
                    "AZURE_CLIENT_ID": self.client_id,
                    "AZURE_CLIENT_SECRET": self.client_secret,
                }
            ),
            packages=(ICEBERG_AZURE_BUNDLE,),
        )

    def _connection(self, account: str | None, endpoint: str | None, signature: str | None) -> str | None:
        """Return a connection string: pyiceberg's client takes an endpoint without TLS in no other way."""
        if endpoint is None or endpoint.startswith("https://"):
            return None
        parts = {
            "BlobEndpoint": endpoint,
            "AccountName": account,
            "AccountKey": self.account_key,
            "SharedAccessSignature": signature,
        }
        return ";".join(f"{name}={value}" for name, value in given(parts).items())

    def _read(self, text: str) -> Self:
        """Return the store that a connection string describes."""
        beside = self._given("connection_string")
        if beside:
            raise _refusal("`connection_string` alone", found=beside)
        parts = (item.partition("=") for item in text.strip().split(";"))
        named = {name.strip().lower(): value.strip() for name, _, value in parts}
        endpoint = named.get("blobendpoint")
        account = named.get("accountname") or (urlsplit(endpoint or "").hostname or "").split(".")[0]
        if not account or not ("accountkey" in named or "sharedaccesssignature" in named):
            found = ", ".join(f"`{name}`" for name in _PARTS if name.lower() in named)
            raise _refusal("a connection string with an account and its key or signature", found=found or "none")
        return self.model_copy(
            update={
                "connection_string": None,
                "account_name": account,
                "account_key": named.get("accountkey"),
                "sas_token": named.get("sharedaccesssignature"),
                "endpoint": endpoint,
            }
        )

    def _require_one_login(self) -> None:
        client = (self.tenant_id, self.client_id, self.client_secret)
        if any(client) and not all(client):
            raise _refusal("`tenant_id`, `client_id` and `client_secret` together", found=self._given())
        if sum(map(bool, (self.account_key, self.sas_token, self.client_id))) > 1:
            raise _refusal("one of `account_key`, `sas_token` and `client_secret`", found=self._given())
        if self.endpoint and not self.endpoint.startswith("https://") and not (self.account_key or self.sas_token):
            raise _refusal("`account_key` or `sas_token` at an endpoint without TLS", found=self._given())

    def _given(self, *left_out: str) -> str:
        return ", ".join(f"`{name}`" for name, value in self if value is not None and name not in ("kind", *left_out))


def _place(warehouse: str | None, account: str | None) -> tuple[str | None, str | None]:
    """Return the account and its host, which the warehouse or the configuration names."""
    if warehouse is None:
        return account, None if account is None else f"{account}{_PUBLIC_SUFFIX}"
    container, _, host = urlsplit(warehouse).netloc.rpartition("@")
    named = host.split(".")[0]
    if not container or not named:
        raise _refusal(f"a `warehouse` of the form {_FORM}", found=repr(without_password(warehouse)))
    if account not in (None, named):
        found = f"`account_name` {account!r} and {warehouse!r}"
        raise _refusal("the account that the `warehouse` names", found=found)
    return named, host


def _account_host(host: str | None, endpoint: str | None) -> str | None:
    if endpoint is not None:
        return endpoint.removeprefix("https://") if endpoint.startswith("https://") else None
    return None if host is None or host.endswith(_PUBLIC_SUFFIX) else host.replace(".dfs.", ".blob.", 1)


def _refusal(expected: str, *, found: str) -> ConfigurationError:
    return ConfigurationError.refusing("use", "the ADLS store", expected=expected, found=found)
