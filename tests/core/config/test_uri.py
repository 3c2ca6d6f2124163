"""Paths and URIs."""

import pytest

from dagster_iceberg_spark.config.configuration import as_uri, without_password


@pytest.mark.parametrize(
    ("warehouse", "uri"),
    [
        ("s3://b/p", "s3://b/p"),
        ("file:///a/b", "file:///a/b"),
        ("/a/b", "file:///a/b"),
        ("abfss://c@a/x", "abfss://c@a/x"),
    ],
)
def test_a_warehouse_is_a_uri(warehouse: str, uri: str) -> None:
    assert as_uri(warehouse) == uri


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("postgresql://me:hush@h/db", "postgresql://me:********@h/db"),
        ("postgres//me:hush@h/db", "postgres//********@h/db"),
        ("postgresql:/me:hush@h/db", "postgresql:/********@h/db"),
        ("me:hu@sh@h/db", "********@h/db"),
        ("postgresql//h/db?password=hush", "postgresql//h/db?password=********"),
        ("abfss://c@a/x", "abfss://c@a/x"),
        ("/data/@home/lake", "/data/@home/lake"),
    ],
)
def test_a_password_stays_hidden_also_in_a_misspelt_uri(uri: str, shown: str) -> None:
    assert without_password(uri) == shown
