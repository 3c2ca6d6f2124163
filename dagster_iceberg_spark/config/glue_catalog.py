"""AWS Glue's Data Catalog, through its own API."""

from typing import Final, Literal

from pydantic import Field

from dagster_iceberg_spark.catalog.description import CatalogDescription, EngineProperties
from dagster_iceberg_spark.config.aws_credentials import AwsCredentials
from dagster_iceberg_spark.config.catalog import Catalog
from dagster_iceberg_spark.config.configuration import given
from dagster_iceberg_spark.config.s3_store import S3Store
from dagster_iceberg_spark.config.uri import host_of
from dagster_iceberg_spark.versions import ICEBERG_AWS_BUNDLE

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
        return self._described(
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
