"""Spark's and pyiceberg's properties for a Hive Metastore."""

import pytest

from dagster_iceberg_spark.config.catalogs import HiveCatalog
from dagster_iceberg_spark.errors import ConfigurationError


def test_a_hive_metastore_reaches_both_engines() -> None:
    description = HiveCatalog(uri="thrift://a.example.com, thrift://[::1]:9084/", warehouse="/wh").describe()
    common = {"uri": "thrift://a.example.com:9083,thrift://[::1]:9084", "warehouse": "file:///wh"}
    client = {"hadoop.hive.metastore.client.socket.timeout": "60s"}
    assert description.spark_properties == {"type": "hive", **common, **client}
    ours = {
        "py-catalog-impl": "dagster_iceberg_spark.catalog.clients.hive.HiveCatalog",
        "hive.hive2-compatible": "true",
    }
    assert description.pyiceberg_properties == {**ours, **common}
    assert (description.host, description.other_hosts) == (("a.example.com", 9083), (("::1", 9084),))
    assert (description.warehouse, description.packages) == ("file:///wh", ())
    assert str(description) == "Hive Metastore 'lake' at thrift://a.example.com:9083,thrift://[::1]:9084"
    newer = HiveCatalog(uri="thrift://h", warehouse="s3://lake/wh", hive2_compatible=False).describe()
    assert newer.pyiceberg_properties["hive.hive2-compatible"] == "false"
    assert newer.spark_properties["io-impl"] == "org.apache.iceberg.aws.s3.S3FileIO"


def test_a_metastore_s_principal_reaches_both_engines() -> None:
    principal = "metastore/_HOST@EXAMPLE.COM"
    description = HiveCatalog(uri="thrift://h", warehouse="/w", kerberos_principal=principal).describe()
    spark, pyiceberg = description.spark_properties, description.pyiceberg_properties
    assert spark["hadoop.hive.metastore.sasl.enabled"] == "true"
    assert spark["hadoop.hive.metastore.kerberos.principal"] == principal
    assert pyiceberg["hive.kerberos-authentication"] == "true"
    assert pyiceberg["hive.kerberos-service-name"] == "metastore"


@pytest.mark.parametrize("uri", ["thrift://[::1:9083", "thrift://:9083", "http://m:9083", "thrift://m:port", "m:9083"])
def test_an_invalid_metastore_address_is_refused(uri: str) -> None:
    with pytest.raises(ConfigurationError, match="thrift://host:9083"):
        HiveCatalog(uri=uri, warehouse="/wh").describe()
