"""Paths and URIs."""

import pytest

from dagster_iceberg_spark.config.uri import as_uri


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
