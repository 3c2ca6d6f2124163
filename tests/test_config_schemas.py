"""What the tests change in Dagster, for speed, is still needed."""

from dagster_iceberg_spark import IcebergSparkResource
from tests import config_schemas


def test_dagster_still_derives_the_schema_of_a_resource_each_time() -> None:
    assert config_schemas.infer(IcebergSparkResource) is not config_schemas.infer(IcebergSparkResource)
