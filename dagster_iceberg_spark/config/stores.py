"""The choice of a store."""

from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import Field

from dagster_iceberg_spark.config.adls_store import AdlsStore
from dagster_iceberg_spark.config.configuration import Configuration
from dagster_iceberg_spark.config.gcs_store import GcsStore
from dagster_iceberg_spark.config.hadoop_store import HadoopStore
from dagster_iceberg_spark.config.s3_store import S3Store


class AutomaticStore(Configuration):
    """The store that the warehouse's scheme names, with the credentials of the environment. A path is local."""

    schemes: ClassVar = ("s3", *HadoopStore.schemes)
    """Only `s3` needs more than `properties`, Hadoop's configuration and the environment."""

    kind: Literal["automatic"] = Field(default="automatic", description="The store that the warehouse's scheme names.")


StoreConfig: TypeAlias = Annotated[
    AutomaticStore | S3Store | AdlsStore | GcsStore | HadoopStore, Field(discriminator="kind")
]
