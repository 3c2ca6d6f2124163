"""The configuration of a session's own catalog."""

import pytest

from dagster_iceberg_spark.config.catalogs import SparkCatalogByName
from dagster_iceberg_spark.config.stores import S3Store
from dagster_iceberg_spark.errors import ConfigurationError


def test_a_session_s_catalog_accepts_no_store() -> None:
    with pytest.raises(ConfigurationError, match="the session has one already"):
        SparkCatalogByName(name="prod", store=S3Store()).describe()
