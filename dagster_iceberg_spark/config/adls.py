"""Azure Data Lake Storage, for Iceberg's own client and for the one that pyiceberg uses."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import parse_qsl, urlsplit

from pydantic import Field
from typing_extensions import Self

from dagster_iceberg_spark.catalog.description import EngineProperties
from dagster_iceberg_spark.config.base import Configuration, without_password
from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.pyiceberg_fixes.adls_paths import FILE_IO
from dagster_iceberg_spark.versions import ICEBERG_AZURE_BUNDLE

ADLS_SCHEMES: Final = ("abfs", "abfss")
"""pyiceberg opens neither `wasb` nor `wasbs` with this client."""
_PUBLIC_SUFFIX: Final = ".dfs.core.windows.net"
_PARTS: Final = ("AccountName", "AccountKey", "SharedAccessSignature", "BlobEndpoint", "UseDevelopmentStorage")
"""Parts of a connection string."""
_FORM: Final = "abfss://<container>@<account>.dfs.core.windows.net/<path>"


class AdlsStore(Configuration):
    """Azure Data Lake Storage. Without a key, a SAS token or a client: what Azure's default chain finds.

    Example:
        >>> AdlsStore(account_name="lake").kind
        'adls'
    """

    kind: Literal["adls"] = Field(default="adls", description="Azure Data Lake Storage.")
    account_name: str | None = Field(
        default=None, description="Storage account. Default: the one that the warehouse's host names."
    )
    account_key: str | None = Field(default=None, description="Key of the account. Use EnvVar.")
    sas_token: str | None = Field(default=None, description="Shared access signature. It is not renewed. Use EnvVar.")
    tenant_id: str | None = Field(default=None, description="Tenant of the client, with its id and secret.")
    client_id: str | None = Field(default=None, description="Id of the client (service principal).")
    client_secret: str | None = Field(default=None, description="Secret of the client. Use EnvVar.")
    connection_string: str | None = Field(
        default=None, description="Connection string, as Azure shows it: in place of all other fields. Use EnvVar."
    )
    endpoint: str | None = Field(
        default=None,
        description="Endpoint of the account's blobs, such as `http://127.0.0.1:10000/devstoreaccount1`, an "
        "emulator's. Default: Azure's, by the warehouse's host.",
    )

    def describe(self, warehouse: str | None = None) -> EngineProperties:
        """Return what both engines need.

        Args:
            warehouse: Where new tables go, if it is known to be a place.

        Raises:
            ConfigurationError: Fields contradict each other or the warehouse, or the account is not known.
        """
        if self.connection_string is not None:
            return self._read(self.connection_string).describe(warehouse)
        self._require_one_login()
        place = _Place.of(warehouse, self.account_name)
        signature = None if self.sas_token is None else self.sas_token.removeprefix("?")
        if place.account is None and (self.account_key or signature or self.endpoint):
            raise self._refusal("`account_name`, which the warehouse does not name", found="none")
        endpoint = None if self.endpoint is None else self.endpoint.rstrip("/")
        return EngineProperties(
            spark={
                "io-impl": "org.apache.iceberg.azure.adlsv2.ADLSFileIO",
                # So Iceberg calls what it takes for the endpoint (AzureProperties.applyClientConfiguration).
                **({f"adls.connection-string.{place.host}": endpoint} if endpoint else {}),
                **({"adls.auth.shared-key.account.name": str(place.account)} if self.account_key else {}),
            },
            spark_secrets={
                **({"adls.auth.shared-key.account.key": self.account_key} if self.account_key else {}),
                **({f"adls.sas-token.{place.host}": signature} if signature else {}),
            },
            pyiceberg={
                "py-io-impl": FILE_IO,
                **({"adls.account-name": place.account} if place.account else {}),
                **({"adls.tenant-id": self.tenant_id, "adls.client-id": self.client_id} if self.client_id else {}),
                **self._account_host(place, endpoint),
            },
            pyiceberg_secrets={
                **({"adls.account-key": self.account_key} if self.account_key else {}),
                **({"adls.sas-token": signature} if signature else {}),
                **({"adls.client-secret": self.client_secret} if self.client_secret else {}),
                **self._connection(place, endpoint, signature),
            },
            hidden=tuple(value for name, value in parse_qsl(signature or "") if name == "sig"),
            system_properties=self._environment,
            packages=(ICEBERG_AZURE_BUNDLE,),
        )

    @property
    def _environment(self) -> Mapping[str, str]:
        """What the default chain of Azure's client for Java reads: Iceberg has no property for a client's secret."""
        if self.tenant_id is None or self.client_id is None or self.client_secret is None:
            return {}
        return {
            "AZURE_TENANT_ID": self.tenant_id,
            "AZURE_CLIENT_ID": self.client_id,
            "AZURE_CLIENT_SECRET": self.client_secret,
        }

    @staticmethod
    def _account_host(place: "_Place", endpoint: str | None) -> Mapping[str, str]:
        if endpoint is not None:
            return {"adls.account-host": endpoint.removeprefix("https://")} if endpoint.startswith("https://") else {}
        if place.host is None or place.host.endswith(_PUBLIC_SUFFIX):
            return {}
        return {"adls.account-host": place.host.replace(".dfs.", ".blob.", 1)}

    def _connection(self, place: "_Place", endpoint: str | None, signature: str | None) -> Mapping[str, str]:
        """Return the only way in which pyiceberg's client is told an endpoint without TLS."""
        if endpoint is None or endpoint.startswith("https://"):
            return {}
        parts = {
            "BlobEndpoint": endpoint,
            "AccountName": str(place.account),
            **({"AccountKey": self.account_key} if self.account_key else {}),
            **({"SharedAccessSignature": signature} if signature else {}),
        }
        return {"adls.connection-string": ";".join(f"{name}={value}" for name, value in parts.items())}

    def _read(self, text: str) -> Self:
        """Return the store that a connection string describes (Azure Storage, "Configure connection strings")."""
        beside = [name for name, value in self if value is not None and name not in ("kind", "connection_string")]
        if beside:
            raise self._refusal("`connection_string` alone", found=", ".join(f"`{name}`" for name in beside))
        parts = (item.partition("=") for item in text.strip().split(";"))
        named = {name.strip().lower(): value.strip() for name, _, value in parts}
        endpoint = named.get("blobendpoint")
        account = named.get("accountname") or (urlsplit(endpoint or "").hostname or "").split(".")[0]
        if not account or not ("accountkey" in named or "sharedaccesssignature" in named):
            found = ", ".join(f"`{name}`" for name in _PARTS if name.lower() in named)
            raise self._refusal("a connection string with an account and its key or signature", found=found or "none")
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
            raise self._refusal("`tenant_id`, `client_id` and `client_secret` together", found=self._given)
        if sum(map(bool, (self.account_key, self.sas_token, self.client_id))) > 1:
            raise self._refusal("one of `account_key`, `sas_token` and `client_secret`", found=self._given)
        if self.endpoint and not self.endpoint.startswith("https://") and not (self.account_key or self.sas_token):
            raise self._refusal("`account_key` or `sas_token` at an endpoint without TLS", found=self._given)

    @property
    def _given(self) -> str:
        return ", ".join(f"`{name}`" for name, value in self if value is not None and name != "kind")

    @staticmethod
    def _refusal(expected: str, *, found: str) -> ConfigurationError:
        return ConfigurationError.refusing("use", "the ADLS store", expected=expected, found=found)


@dataclass(frozen=True, slots=True)
class _Place:
    """The account and its host, as the warehouse and the configuration name them."""

    account: str | None
    host: str | None

    @classmethod
    def of(cls, warehouse: str | None, account: str | None) -> Self:
        if warehouse is None:
            return cls(account, None if account is None else f"{account}{_PUBLIC_SUFFIX}")
        container, _, host = urlsplit(warehouse).netloc.rpartition("@")
        named = host.split(".")[0]
        if not container or not named:
            raise ConfigurationError.refusing(
                "use",
                "the ADLS store",
                expected=f"a `warehouse` of the form {_FORM}",
                found=repr(without_password(warehouse)),
            )
        if account not in (None, named):
            raise ConfigurationError.refusing(
                "use",
                "the ADLS store",
                expected="the account that the `warehouse` names",
                found=f"`account_name` {account!r} and {warehouse!r}",
            )
        return cls(named, host)
