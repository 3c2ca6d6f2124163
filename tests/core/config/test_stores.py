"""Rules for every kind of store."""

import re
from typing import Any

import pytest

from dagster_iceberg_spark import ConfigurationError, GcsStore, HadoopStore, SqlCatalog
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.config.catalog import StoreConfig


def described(warehouse: str, store: StoreConfig, **fields: Any) -> CatalogDescription:
    return SqlCatalog(uri="sqlite:////tmp/lake.db", warehouse=warehouse, store=store, **fields).describe()


@pytest.mark.parametrize(
    ("warehouse", "store", "expected"),
    [
        ("s3://lake/wh", GcsStore(), "a `warehouse` that is a URI of gs where `store` is GcsStore"),
        ("s3://lake/wh", HadoopStore(), "a `warehouse` that is a URI of hdfs or viewfs or file"),
    ],
)
def test_an_unsuitable_store_is_refused(warehouse: str, store: StoreConfig, expected: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(expected)):
        described(warehouse, store)


@pytest.mark.parametrize("store", [GcsStore(), HadoopStore()])
def test_a_property_that_the_store_sets_is_refused(store: StoreConfig) -> None:
    with pytest.raises(ConfigurationError, match="found 'io-impl'"):
        described("gs://lake/wh", store, properties={"io-impl": "com.example.Theirs"})
