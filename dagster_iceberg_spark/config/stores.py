"""The choice of a store."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field

from dagster_iceberg_spark.config.adls_store import ADLS_SCHEMES, AdlsStore
from dagster_iceberg_spark.config.configuration import Configuration
from dagster_iceberg_spark.config.gcs_store import GCS_SCHEMES, GcsStore
from dagster_iceberg_spark.config.hadoop_store import HADOOP_SCHEMES, HadoopStore
from dagster_iceberg_spark.config.s3_store import S3Store
from dagster_iceberg_spark.config.uri import scheme_of, without_password
from dagster_iceberg_spark.errors import ConfigurationError

S3_SCHEMES: Final = ("s3", "s3a", "s3n")
"""Of themselves only `s3` is opened with Iceberg's client: the others are Hadoop's names of its own clients."""
OTHER_SCHEMES: Final = ("file", "hdfs", "viewfs", "gs", "abfs", "abfss", "wasb", "wasbs", "oss")
"""What Spark and pyiceberg open with `properties`, Hadoop's configuration and the environment alone."""


class AutomaticStore(Configuration):
    """What the scheme of the warehouse says, with what the environment holds; for local paths, the local disk."""

    kind: Literal["automatic"] = Field(default="automatic", description="As the warehouse's scheme says.")


StoreConfig: TypeAlias = Annotated[
    AutomaticStore | S3Store | AdlsStore | GcsStore | HadoopStore, Field(discriminator="kind")
]
_SCHEMES: Final[Mapping[type[Configuration], Sequence[str]]] = {
    S3Store: S3_SCHEMES,
    AdlsStore: ADLS_SCHEMES,
    GcsStore: GCS_SCHEMES,
    HadoopStore: HADOOP_SCHEMES,
}
"""Of the warehouses that each store opens."""


def store_of(configured: StoreConfig, warehouse: str | None, subject: str, *, default: S3Store) -> StoreConfig | None:
    """Return the store of a warehouse; None: nothing that the engines have to be told.

    Args:
        configured: The configured store.
        warehouse: Where new tables go, if it is known to be a place.
        subject: The catalog, for messages.
        default: The store of a warehouse on S3 where none is configured.

    Raises:
        ConfigurationError: Neither engine knows the warehouse's scheme, or it is not the store's.
    """
    scheme = None if warehouse is None else scheme_of(warehouse)
    if scheme is not None and scheme not in (*S3_SCHEMES, *OTHER_SCHEMES):
        raise ConfigurationError.refusing(
            "use",
            subject,
            expected=f"a `warehouse` that is a path, or a URI of {', '.join((*S3_SCHEMES, *OTHER_SCHEMES))}",
            found=repr(without_password(warehouse or "")),
        )
    if isinstance(configured, AutomaticStore):
        return default if scheme == "s3" else None
    schemes = _SCHEMES[type(configured)]
    if scheme is not None and scheme not in schemes:
        raise ConfigurationError.refusing(
            "use",
            subject,
            expected=f"a `warehouse` that is a URI of {' or '.join(schemes)} where `store` is "
            f"{type(configured).__name__}",
            found=repr(without_password(warehouse or "")),
            hint="correct the `warehouse`, or give the `store` of its scheme.",
        )
    return configured
