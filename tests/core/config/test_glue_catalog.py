"""Spark's and pyiceberg's properties for a Glue catalog."""

import pytest

from dagster_iceberg_spark.config.catalogs import GlueCatalog
from dagster_iceberg_spark.config.stores import AwsCredentials, S3Store
from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.versions import ICEBERG_AWS_BUNDLE


def test_glue_reaches_both_engines_and_shares_credentials_with_the_store() -> None:
    keys = AwsCredentials(access_key_id="AKIAEXAMPLE", secret_access_key="hushhush")
    description = GlueCatalog(
        warehouse="s3://lake/wh", region="eu-west-1", catalog_id="123456789012", credentials=keys
    ).describe()
    common = {"type": "glue", "warehouse": "s3://lake/wh", "client.region": "eu-west-1", "glue.id": "123456789012"}
    assert description.spark_properties.items() >= common.items()
    assert description.pyiceberg_properties.items() >= common.items()
    assert description.spark_secrets["s3.secret-access-key"] == "hushhush"
    assert (description.host, description.packages) == (None, (ICEBERG_AWS_BUNDLE,))
    assert not description.is_local, "requests to it still have a timeout"
    elsewhere = GlueCatalog(warehouse="s3://lake/wh", endpoint="http://127.0.0.1:5000").describe()
    assert (elsewhere.host, str(elsewhere)) == (("127.0.0.1", 5000), "Glue catalog 'lake' at http://127.0.0.1:5000")
    with pytest.raises(ConfigurationError, match=r"'client.region' .* expected one value, found 'a' and 'b'"):
        GlueCatalog(warehouse="s3://lake/wh", region="a", store=S3Store(region="b")).describe()
    with pytest.raises(ConfigurationError, match="one identity that signs"):
        GlueCatalog(
            warehouse="s3://lake/wh", credentials=keys, store=S3Store(credentials=AwsCredentials(profile="p"))
        ).describe()
