"""The versions that the package is tested with fit together."""

import pyspark
import pytest

from dagster_iceberg_spark import versions


@pytest.mark.parametrize(
    "name", ["ICEBERG_SPARK_RUNTIME", "ICEBERG_AZURE_BUNDLE", "ICEBERG_GCP_BUNDLE", "SQLITE_JDBC", "POSTGRESQL_JDBC"]
)
def test_a_coordinate_has_group_artifact_and_fixed_version(name: str) -> None:
    group, artifact, version = getattr(versions, name).split(":")
    assert "." in group
    assert artifact
    assert version[0].isdigit()
    assert not any(word in version.lower() for word in ("snapshot", "latest", "[", "+"))


def test_the_iceberg_runtime_matches_the_installed_spark() -> None:
    artifact = versions.ICEBERG_SPARK_RUNTIME.split(":")[1]
    assert artifact == f"iceberg-spark-runtime-{'.'.join(pyspark.__version__.split('.')[:2])}_2.13"
