"""AWS Glue's Data Catalog, by its own API."""

from typing import Final, Literal

from pydantic import Field

from dagster_iceberg_spark.catalog.description import CatalogDescription, EngineProperties
from dagster_iceberg_spark.config.aws_credentials import AwsCredentials
from dagster_iceberg_spark.config.catalog import BaseCatalog
from dagster_iceberg_spark.config.s3_store import S3Store
from dagster_iceberg_spark.config.uri import host_of
from dagster_iceberg_spark.versions import ICEBERG_AWS_BUNDLE

_DYNAMODB_LOCK: Final = "org.apache.iceberg.aws.dynamodb.DynamoDbLockManager"
"""Iceberg documentation, "AWS", "DynamoDB Lock Manager"."""


class GlueCatalog(BaseCatalog):
    """AWS Glue's Data Catalog, by its own API.

    Example:
        >>> GlueCatalog(warehouse="s3://lake/warehouse", region="eu-west-1").kind
        'glue'
    """

    kind: Literal["glue"] = Field(default="glue", description="AWS Glue's Data Catalog, by its own API.")
    warehouse: str = Field(description="URI under which new tables are placed, such as `s3://lake/warehouse`.")
    region: str | None = Field(default=None, description="Region. Default: what boto3 finds.")
    catalog_id: str | None = Field(
        default=None, description="Id of the catalog, where it is another account's. Default: the caller's account."
    )
    endpoint: str | None = Field(default=None, description="Endpoint of the service. Default: Amazon's.")
    lock_table: str | None = Field(
        default=None,
        description="Name of a DynamoDB table by which Spark's writers wait for each other; it is made if it is not "
        "there. Default: none, as Glue itself refuses to update an old version of a table.",
    )
    credentials: AwsCredentials = Field(
        default=AwsCredentials(),
        description="Who signs requests, also to the store where that has no fields of its own.",
    )

    def describe(self) -> CatalogDescription:
        """Return what Spark and pyiceberg need.

        Raises:
            ConfigurationError: Fields contradict each other.
        """
        common = {
            "type": "glue",
            "warehouse": self.warehouse,
            **({"client.region": self.region} if self.region else {}),
            **({"glue.id": self.catalog_id} if self.catalog_id else {}),
            **({"glue.endpoint": self.endpoint} if self.endpoint else {}),
        }
        identity = self.credentials.identity()
        lock = {} if self.lock_table is None else {"lock-impl": _DYNAMODB_LOCK, "lock.table": self.lock_table}
        service = EngineProperties(
            spark={**common, **lock}, pyiceberg=common, packages=(ICEBERG_AWS_BUNDLE,), aws=identity
        )
        return self._described(
            service,
            self._store_in(self.warehouse, default=S3Store(region=self.region, credentials=self.credentials)),
            kind="Glue catalog",
            endpoint=self.endpoint or self.region or "the region that boto3 finds",
            host=None if self.endpoint is None else host_of(self.endpoint),
            warehouse=self.warehouse,
        )
