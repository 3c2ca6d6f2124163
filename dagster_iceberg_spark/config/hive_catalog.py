"""Hive Metastore."""

from typing import Literal

from pydantic import Field

from dagster_iceberg_spark.catalog.description import (
    HIVE_CATALOG,
    METASTORE_PORT,
    CatalogDescription,
    EngineProperties,
)
from dagster_iceberg_spark.config.catalog import Catalog
from dagster_iceberg_spark.config.uri import as_uri, parts_of, without_password
from dagster_iceberg_spark.timeouts import CLIENT_ANSWER_TIMEOUT_SECONDS


class HiveCatalog(Catalog):
    """A Hive Metastore.

    Example:
        >>> HiveCatalog(uri="thrift://metastore.example.com:9083", warehouse="s3://lake/warehouse").kind
        'hive'
    """

    kind: Literal["hive"] = Field(default="hive", description="A Hive Metastore.")
    uri: str = Field(
        description="URI of the metastore, `thrift://host:9083`. If several instances share a database, list all their "
        "URIs, separated by commas. The engines use one that answers."
    )
    warehouse: str = Field(
        description="Directory or URI under which new namespaces go, such as `s3://lake/warehouse`. Existing "
        "namespaces, such as `default`, have their own locations."
    )
    hive2_compatible: bool = Field(
        default=True,
        description="Whether pyiceberg gives the metastore the column types of Hive 2, as Spark always does. Hive 2 "
        "rejects changes of a table with column types that it does not know.",
    )
    kerberos_principal: str | None = Field(
        default=None, description="Kerberos principal, such as `hive/_HOST@EXAMPLE.COM`. Default: no Kerberos."
    )

    def describe(self) -> CatalogDescription:
        """Return what Spark and pyiceberg need."""
        hosts = [self._host_of(address.strip()) for address in self.uri.split(",")]
        uri = ",".join(f"thrift://{f'[{host}]' if ':' in host else host}:{port}" for host, port in hosts)
        warehouse = as_uri(self.warehouse)
        common = {"uri": uri, "warehouse": warehouse}
        metastore = EngineProperties(
            spark={
                "type": "hive",
                **common,
                "hadoop.hive.metastore.client.socket.timeout": f"{CLIENT_ANSWER_TIMEOUT_SECONDS}s",
            },
            pyiceberg={
                "py-catalog-impl": HIVE_CATALOG,
                **common,
                "hive.hive2-compatible": str(self.hive2_compatible).lower(),
            },
        )
        return self._described(
            metastore,
            self._kerberos,
            kind="Hive Metastore",
            endpoint=uri,
            host=hosts[0],
            other_hosts=tuple(hosts[1:]),
            warehouse=warehouse,
        )

    def _host_of(self, address: str) -> tuple[str, int]:
        parts = parts_of(address)
        host = None if parts is None or parts.username or parts.path.strip("/") else parts.hostname
        if parts is None or parts.scheme != "thrift" or not host:
            raise self._refusal(
                "a `uri` of the form thrift://host:9083, or several, separated by commas",
                found=repr(without_password(self.uri)),
                hint="for a metastore's REST endpoint, use `RestCatalog`.",
                kind="Hive Metastore",
            )
        return host, parts.port or METASTORE_PORT

    @property
    def _kerberos(self) -> EngineProperties:
        if self.kerberos_principal is None:
            return EngineProperties()
        service = self.kerberos_principal.split("@")[0].split("/")[0]
        return EngineProperties(
            spark={
                "hadoop.hive.metastore.sasl.enabled": "true",
                "hadoop.hive.metastore.kerberos.principal": self.kerberos_principal,
            },
            pyiceberg={"hive.kerberos-authentication": "true", "hive.kerberos-service-name": service},
        )
