"""What tests of assets import. The fixture `lake` comes with the package, as a plugin of pytest."""

from dagster_iceberg_spark.features.testing.assertion import assert_rows
from dagster_iceberg_spark.features.testing.lake import Lake

__all__ = ["Lake", "assert_rows"]
