"""Catalogs in a Hive Metastore."""

from typing import Final, Literal
from urllib.parse import urlsplit

from pydantic import Field

from dagster_iceberg_spark.catalog.description import CatalogDescription, EngineProperties
from dagster_iceberg_spark.config.catalog import BaseCatalog
from dagster_iceberg_spark.config.uri import as_uri, without_password
from dagster_iceberg_spark.errors import ConfigurationError

ANSWER_TIMEOUT_SECONDS: Final = 60
_PORT: Final = 9083
_CATALOG: Final = "dagster_iceberg_spark.catalog.hive.HiveCatalog"


class HiveCatalog(BaseCatalog):
    """A Hive Metastore.

    Example:
        >>> HiveCatalog(uri="thrift://metastore.example.com:9083", warehouse="s3://lake/warehouse").kind
        'hive'
    """

    kind: Literal["hive"] = Field(default="hive", description="A Hive Metastore.")
    uri: str = Field(
        description="Address of the metastore, `thrift://host:9083`; of several instances over one database all "
        "addresses, separated by commas: one that answers is used."
    )
    warehouse: str = Field(
        description="Directory or URI under which new namespaces are placed, such as `s3://lake/warehouse`. Namespaces "
        "that exist, as `default` does, have places of their own."
    )
    hive2_compatible: bool = Field(
        default=True,
        description="Whether pyiceberg names column types to the metastore as Hive 2 knows them, which Spark always "
        "does. Hive 2 refuses a change of a table whose column types it does not know.",
    )
    kerberos_principal: str | None = Field(
        default=None,
        description="Principal of the metastore where it asks for Kerberos, such as `hive/_HOST@EXAMPLE.COM`. Default: "
        "no Kerberos.",
    )

    def describe(self) -> CatalogDescription:
        """Return what Spark and pyiceberg need.

        Raises:
            ConfigurationError: An address is none of a metastore.
        """
        hosts = [self._host_of(address.strip()) for address in self.uri.split(",")]
        uri = ",".join(f"thrift://{f'[{host}]' if ':' in host else host}:{port}" for host, port in hosts)
        warehouse = as_uri(self.warehouse)
        common = {"uri": uri, "warehouse": warehouse}
        metastore = EngineProperties(
            spark={
                "type": "hive",
                **common,
                "hadoop.hive.metastore.client.socket.timeout": f"{ANSWER_TIMEOUT_SECONDS}s",
                **self._kerberos_for_spark(),
            },
            pyiceberg={
                "py-catalog-impl": _CATALOG,
                **common,
                "hive.hive2-compatible": str(self.hive2_compatible).lower(),
                **self._kerberos_for_pyiceberg(),
            },
        )
        return self._described(
            metastore,
            self._store_in(warehouse),
            kind="Hive Metastore",
            endpoint=uri,
            host=hosts[0],
            other_hosts=tuple(hosts[1:]),
            warehouse=warehouse,
        )

    def _host_of(self, address: str) -> tuple[str, int]:
        try:
            parts = urlsplit(address)
            host, port = parts.hostname, parts.port or _PORT
            is_one = parts.scheme == "thrift" and not parts.username and not parts.path.strip("/")
        except ValueError:
            host, port, is_one = None, _PORT, False
        if not is_one or not host:
            raise ConfigurationError.refusing(
                "use",
                f"the Hive Metastore {self.name!r}",
                expected="a `uri` of the form thrift://host:9083, or several with commas between",
                found=repr(without_password(self.uri)),
                hint="for a metastore's REST endpoint use `RestCatalog`.",
            )
        return host, port

    def _kerberos_for_spark(self) -> dict[str, str]:
        if self.kerberos_principal is None:
            return {}
        return {
            "hadoop.hive.metastore.sasl.enabled": "true",
            "hadoop.hive.metastore.kerberos.principal": self.kerberos_principal,
        }

    def _kerberos_for_pyiceberg(self) -> dict[str, str]:
        if self.kerberos_principal is None:
            return {}
        service = self.kerberos_principal.split("@")[0].split("/")[0]
        return {"hive.kerberos-authentication": "true", "hive.kerberos-service-name": service}
