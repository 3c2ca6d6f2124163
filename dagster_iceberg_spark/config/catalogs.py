"""The choice of a catalog, and the catalogs that need few settings."""

import atexit
import shutil
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import Field

from dagster_iceberg_spark.catalog.description import (
    HADOOP_CATALOG,
    HIVE_CATALOG,
    METASTORE_PORT,
    CatalogDescription,
    EngineProperties,
    holds_secret,
)
from dagster_iceberg_spark.config.catalog import Catalog, make_directory
from dagster_iceberg_spark.config.configuration import (
    Properties,
    as_uri,
    given,
    host_of,
    parts_of,
    scheme_of,
    without_password,
)
from dagster_iceberg_spark.config.rest_catalog import RestCatalog
from dagster_iceberg_spark.config.sql_catalog import EmbeddedCatalog, SqlCatalog, describe_in
from dagster_iceberg_spark.config.stores import AwsCredentials, S3Store
from dagster_iceberg_spark.timeouts import CLIENT_ANSWER_TIMEOUT_SECONDS
from dagster_iceberg_spark.versions import ICEBERG_AWS_BUNDLE


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
        return self._describe(
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


_DYNAMODB_LOCK: Final = "org.apache.iceberg.aws.dynamodb.DynamoDbLockManager"
"""Iceberg documentation, "AWS", "DynamoDB Lock Manager"."""


class GlueCatalog(Catalog):
    """AWS Glue's Data Catalog, through its own API.

    Example:
        >>> GlueCatalog(warehouse="s3://lake/warehouse", region="eu-west-1").kind
        'glue'
    """

    kind: Literal["glue"] = Field(default="glue", description="AWS Glue's Data Catalog, through its own API.")
    warehouse: str = Field(description="URI under which new tables go, such as `s3://lake/warehouse`.")
    region: str | None = Field(default=None, description="Region. Default: the one that boto3 finds.")
    catalog_id: str | None = Field(
        default=None, description="Id of the catalog, if it belongs to another account. Default: the caller's account."
    )
    endpoint: str | None = Field(default=None, description="Endpoint of the service. Default: Amazon's.")
    lock_table: str | None = Field(
        default=None,
        description="Name of a DynamoDB table in which Spark's writers lock tables. Iceberg creates it if it does not "
        "exist. Default: no locks, because Glue itself rejects an update of an old version of a table.",
    )
    credentials: AwsCredentials = Field(
        default=AwsCredentials(), description="Credentials that sign requests, also to a store that has none."
    )

    def describe(self) -> CatalogDescription:
        """Return what Spark and pyiceberg need."""
        common = {
            "type": "glue",
            "warehouse": self.warehouse,
            **given({"client.region": self.region, "glue.id": self.catalog_id, "glue.endpoint": self.endpoint}),
        }
        lock = {} if self.lock_table is None else {"lock-impl": _DYNAMODB_LOCK, "lock.table": self.lock_table}
        return self._describe(
            EngineProperties(
                spark={**common, **lock},
                pyiceberg=common,
                packages=(ICEBERG_AWS_BUNDLE,),
                aws=self.credentials.identity(),
            ),
            kind="Glue catalog",
            endpoint=self.endpoint or self.region or "the region that boto3 finds",
            host=None if self.endpoint is None else host_of(self.endpoint),
            warehouse=self.warehouse,
        )

    @property
    def _default_store(self) -> S3Store:
        return S3Store(region=self.region, credentials=self.credentials)


class InMemoryCatalog(Catalog):
    """A catalog for tests, which ends with the process.

    Spark and pyiceberg share it through a temporary directory of the process. Other processes do not see it.

    Example:
        >>> InMemoryCatalog(key="test_flights").kind
        'in_memory'
    """

    kind: Literal["in_memory"] = Field(default="in_memory", description="A catalog for tests, gone with the process.")
    key: str = Field(
        default="",
        description="Tells catalogs apart: those with the same `name` and `key` are one. Set a key to give a test a "
        "catalog of its own.",
    )

    def describe(self) -> CatalogDescription:
        """Create the directory, and return what Spark and pyiceberg need."""
        return describe_in(_directories[self.name, self.key], self)


_directories: defaultdict[tuple[str, str], Path] = defaultdict(
    lambda: Path(tempfile.mkdtemp(prefix="iceberg-in-memory-"))
)
"""By name and key."""


@atexit.register
def _remove_directories() -> None:
    for directory in _directories.values():
        shutil.rmtree(directory, ignore_errors=True)


class HadoopCatalog(Catalog):
    """A directory on a local disk or HDFS, without a catalog service: Spark writes it, pyiceberg reads it.

    Example:
        >>> HadoopCatalog(warehouse="hdfs://namenode/lake").kind
        'hadoop'
    """

    kind: Literal["hadoop"] = Field(default="hadoop", description="A directory, without a catalog service.")
    warehouse: str = Field(
        description="Directory or URI of the tables, on a local disk or HDFS, which rename atomically."
    )

    def describe(self) -> CatalogDescription:
        """Return what Spark and pyiceberg need."""
        warehouse = as_uri(self.warehouse)
        scheme = scheme_of(warehouse)
        if scheme not in ("file", "hdfs", "viewfs"):
            raise self._refusal(
                "a `warehouse` on a local disk or HDFS, which rename atomically",
                found=repr(without_password(self.warehouse)),
                hint="use a SQL, REST or Glue catalog: in an object store, two writers would overwrite each other.",
                kind="Hadoop catalog",
            )
        if scheme == "file":
            make_directory(Path(urlsplit(warehouse).path), f"the Hadoop catalog {self.name!r}")
        return self._describe(
            EngineProperties(
                spark={"type": "hadoop", "warehouse": warehouse},
                pyiceberg={"py-catalog-impl": HADOOP_CATALOG, "warehouse": warehouse},
            ),
            kind="Hadoop catalog",
            endpoint=warehouse,
            warehouse=warehouse,
        )


class SparkCatalogByName(Catalog):
    """A catalog that the Spark session, or the Spark Connect server, already has. You configure only its name.

    The session's configuration says how pyiceberg opens the catalog. The package therefore opens a session even for
    inputs of pandas.

    Example:
        >>> SparkCatalogByName(name="prod").kind
        'spark'
    """

    kind: Literal["spark"] = Field(default="spark", description="A catalog that the Spark session already has.")
    name: str = Field(description="Name of the catalog in Spark. The session has `spark.sql.catalog.<name>`.")
    properties: Properties = Field(
        default={},
        description="Further properties for pyiceberg, which win over the session's, such as secrets that the session "
        "does not show, or another endpoint of the store.",
    )

    def describe(self) -> CatalogDescription:
        """Return the catalog's name; the session describes the rest."""
        if self.store.kind != "automatic":
            raise self._refusal(
                "none: the session has one already",
                found=type(self.store).__name__,
                hint="set what pyiceberg needs besides in `properties`, such as `s3.endpoint`.",
                kind="`store` of the Spark session's catalog",
            )
        return CatalogDescription(
            name=self.name,
            kind="Spark catalog",
            endpoint="the session",
            spark_properties={},
            pyiceberg_properties=dict(self.properties),
            secrets=tuple(value for key, value in self.properties.items() if holds_secret(key) and value),
            source="session",
        )


CatalogConfig: TypeAlias = Annotated[
    EmbeddedCatalog
    | SqlCatalog
    | RestCatalog
    | GlueCatalog
    | HiveCatalog
    | HadoopCatalog
    | InMemoryCatalog
    | SparkCatalogByName,
    Field(discriminator="kind"),
]
