"""Descriptions of catalogs."""

import pytest

from dagster_iceberg_spark.catalog.description import CatalogDescription, holds_secret

SECRETIVE = CatalogDescription(
    name="lake",
    kind="REST catalog",
    endpoint="http://h",
    spark_properties={"type": "rest"},
    spark_secrets={"token": "hunter2"},
    pyiceberg_properties={"type": "rest", "token": "hunter2"},
    secrets=("hunter2", "a.b*", "xy"),
)


def test_the_text_of_a_description_shows_no_secret() -> None:
    assert "hunter2" not in repr(SECRETIVE) + str(SECRETIVE)
    assert str(SECRETIVE) == "REST catalog 'lake' at http://h"


def test_secrets_are_redacted_but_very_short_ones_are_not() -> None:
    assert SECRETIVE.redact("hunter2 hunter2") == "******** ********"
    assert SECRETIVE.redact("a.b* aXbb xy") == "******** aXbb xy"


def test_the_identity_of_a_description_includes_its_secrets() -> None:
    other = CatalogDescription(
        "lake", "REST catalog", "http://h", {"type": "rest"}, {"token": "other"}, {"type": "rest"}
    )
    assert other.identity != SECRETIVE.identity
    assert other.identity is other.identity, "computed once, since every load of a table needs it"


@pytest.mark.parametrize(
    "name",
    [
        "adls.auth.shared-key.account.key",
        "adls.sas-token.account.dfs.core.windows.net",
        "adls.connection-string.account.dfs.core.windows.net",
        "fs.azure.sas.container.account",
        "gcs.oauth2.token",
        "gcs.decryption-key",
        "account-key",
        "connection-string",
    ],
)
def test_names_of_secrets_are_recognized(name: str) -> None:
    assert holds_secret(name)


@pytest.mark.parametrize(
    "name", ["adls.account-name", "gcs.project-id", "adls.auth.shared-key.account.name", "io-impl"]
)
def test_names_of_non_secrets_are_recognized(name: str) -> None:
    assert not holds_secret(name)
