"""Spark's and pyiceberg's properties for a store on Azure, and its credentials."""

import re
from typing import Any

import pytest

from dagster_iceberg_spark import AdlsStore, ConfigurationError, RestCatalog, SqlCatalog
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.versions import ICEBERG_AZURE_BUNDLE, SQLITE_JDBC

HOST = "account.dfs.core.windows.net"
WAREHOUSE = f"abfss://lake@{HOST}/wh"
EMULATOR = "http://127.0.0.1:10000/account"
CLIENT = {"tenant_id": "t", "client_id": "c", "client_secret": "hushhush"}


def described(warehouse: str = WAREHOUSE, **fields: Any) -> CatalogDescription:
    return SqlCatalog(uri="sqlite:////tmp/lake.db", warehouse=warehouse, store=AdlsStore(**fields)).describe()


def store_properties(description: CatalogDescription) -> tuple[dict[str, str], dict[str, Any]]:
    """The store's properties for Spark and for pyiceberg."""
    spark = {**description.spark_properties, **description.spark_secrets}
    known = (spark, description.pyiceberg_properties)
    of_spark, of_pyiceberg = ({key: value for key, value in item.items() if "adls" in key} for item in known)
    return of_spark, of_pyiceberg


@pytest.mark.parametrize("warehouse", [WAREHOUSE, WAREHOUSE.replace("abfss", "abfs")])
def test_adls_uses_iceberg_s_client_and_fsspec(warehouse: str) -> None:
    """Without credentials, both clients use Azure's default credential chain."""
    description = described(warehouse)
    assert description.spark_properties["io-impl"] == "org.apache.iceberg.azure.adlsv2.ADLSFileIO"
    assert description.pyiceberg_properties["py-io-impl"] == "pyiceberg.io.fsspec.FsspecFileIO"
    assert description.packages == (SQLITE_JDBC, ICEBERG_AZURE_BUNDLE)
    assert store_properties(description) == ({}, {"adls.account-name": "account"})
    assert (description.is_local, description.needs_region) == (False, False)


LOGINS: dict[str, tuple[dict[str, str], dict[str, str], dict[str, str]]] = {
    "key": (
        {"account_key": "hushhush"},
        {"adls.auth.shared-key.account.name": "account", "adls.auth.shared-key.account.key": "hushhush"},
        {"adls.account-key": "hushhush"},
    ),
    "signature": (
        {"sas_token": "?sv=1&sig=hushhush"},
        {f"adls.sas-token.{HOST}": "sv=1&sig=hushhush"},
        {"adls.sas-token": "sv=1&sig=hushhush"},
    ),
    "client": (CLIENT, {}, {"adls.tenant-id": "t", "adls.client-id": "c", "adls.client-secret": "hushhush"}),
    "connection string": (
        {"connection_string": "DefaultEndpointsProtocol=https;AccountName=account;AccountKey=hush==;"},
        {"adls.auth.shared-key.account.name": "account", "adls.auth.shared-key.account.key": "hush=="},
        {"adls.account-key": "hush=="},
    ),
    "connection string with a signature": (
        {"connection_string": f"BlobEndpoint={EMULATOR}/;SharedAccessSignature=sv=1&sig=hush;AccountName=account"},
        {f"adls.connection-string.{HOST}": EMULATOR, f"adls.sas-token.{HOST}": "sv=1&sig=hush"},
        {
            "adls.sas-token": "sv=1&sig=hush",
            "adls.connection-string": f"BlobEndpoint={EMULATOR};AccountName=account;"
            "SharedAccessSignature=sv=1&sig=hush",
        },
    ),
    "emulator": (
        {"endpoint": EMULATOR, "account_key": "hush=="},
        {
            "adls.auth.shared-key.account.name": "account",
            "adls.auth.shared-key.account.key": "hush==",
            f"adls.connection-string.{HOST}": EMULATOR,
        },
        {
            "adls.account-key": "hush==",
            "adls.connection-string": f"BlobEndpoint={EMULATOR};AccountName=account;AccountKey=hush==",
        },
    ),
    "private endpoint": (
        {"endpoint": "https://account.privatelink.blob.core.windows.net"},
        {f"adls.connection-string.{HOST}": "https://account.privatelink.blob.core.windows.net"},
        {"adls.account-host": "account.privatelink.blob.core.windows.net"},
    ),
}


@pytest.mark.parametrize(("fields", "spark", "pyiceberg"), LOGINS.values(), ids=list(LOGINS))
def test_credentials_reach_both_engines_and_are_never_shown(
    fields: dict[str, str], spark: dict[str, str], pyiceberg: dict[str, str]
) -> None:
    store: dict[str, Any] = dict(fields)
    description = described(**store)
    assert store_properties(description) == (spark, {"adls.account-name": "account", **pyiceberg})
    shown = f"{description!r}{description.spark_properties}{AdlsStore(**store)!r}"
    secrets = [*description.spark_secrets.values(), fields.get("client_secret", "")]
    assert "hush" not in shown + description.redact(" ".join(secrets))


def test_every_field_reaches_an_engine() -> None:
    shown = {name for fields, _, _ in LOGINS.values() for name in fields}
    assert shown | {"kind", "account_name"} == set(AdlsStore.model_fields)


def test_client_credentials_become_system_properties() -> None:
    description = described(**CLIENT)
    assert description.system_properties == {
        "AZURE_TENANT_ID": "t",
        "AZURE_CLIENT_ID": "c",
        "AZURE_CLIENT_SECRET": "hushhush",
    }
    assert described().system_properties == {}
    assert "hushhush" in description.secrets
    assert description.identity != described(**{**CLIENT, "client_secret": "other"}).identity


def test_a_sas_token_is_redacted_in_every_encoding() -> None:
    description = described(sas_token="sv=1&sig=hush%2Fhush%3D")
    assert description.redact("sig=hush%2Fhush%3D and hush/hush=") == "sig=******** and ********"


def test_a_sovereign_cloud_s_host_comes_from_the_warehouse() -> None:
    description = described("abfss://lake@account.dfs.core.chinacloudapi.cn/wh")
    assert description.pyiceberg_properties["adls.account-host"] == "account.blob.core.chinacloudapi.cn"


def test_a_warehouse_given_by_name_takes_the_account_from_the_store() -> None:
    store = AdlsStore(account_name="account", account_key="hushhush")
    description = RestCatalog(uri="http://h", warehouse="lake", store=store).describe()
    assert store_properties(description)[0]["adls.auth.shared-key.account.name"] == "account"
    without = RestCatalog(uri="http://h", warehouse="lake", store=AdlsStore()).describe()
    assert store_properties(without) == ({}, {})


@pytest.mark.parametrize(
    ("warehouse", "fields", "message"),
    [
        ("s3://lake/wh", {}, "expected a `warehouse` that is a URI of abfs or abfss where `store` is AdlsStore"),
        ("wasbs://lake@a.blob.core.windows.net/", {}, "expected a `warehouse` that is a URI of abfs or abfss"),
        ("abfss://lake/wh", {}, "of the form abfss://<container>@<account>.dfs.core.windows.net/<path>, found"),
        (WAREHOUSE, {"account_name": "other"}, "expected the account that the `warehouse` names"),
        (WAREHOUSE, {"client_id": "c"}, "expected `tenant_id`, `client_id` and `client_secret` together"),
        (WAREHOUSE, {"account_key": "k", "sas_token": "s"}, "expected one of `account_key`, `sas_token`"),
        (WAREHOUSE, {"endpoint": EMULATOR}, "expected `account_key` or `sas_token` at an endpoint without TLS"),
        (WAREHOUSE, {"connection_string": "a=b", "endpoint": EMULATOR}, "expected `connection_string` alone"),
        (WAREHOUSE, {"connection_string": "hush=="}, "with an account and its key or signature, found none"),
        (WAREHOUSE, {"connection_string": "AccountName=a"}, "found `AccountName`"),
    ],
)
def test_an_unsuitable_store_is_refused(warehouse: str, fields: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(message)) as caught:
        described(warehouse, **fields)
    assert "hush" not in str(caught.value)


def test_a_key_without_an_account_is_refused() -> None:
    catalog = RestCatalog(uri="http://h", warehouse="lake", store=AdlsStore(account_key="hushhush"))
    with pytest.raises(ConfigurationError, match="expected `account_name`, which the warehouse does not name"):
        catalog.describe()
