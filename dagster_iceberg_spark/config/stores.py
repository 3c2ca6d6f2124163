"""Where tables' files are, and who may read and write them."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field

from dagster_iceberg_spark.catalog.aws import DEFAULT_REGION
from dagster_iceberg_spark.catalog.description import EngineProperties
from dagster_iceberg_spark.config.adls import ADLS_SCHEMES, AdlsStore
from dagster_iceberg_spark.config.aws import AwsCredentials, named_keys
from dagster_iceberg_spark.config.base import Configuration, scheme_of, without_password
from dagster_iceberg_spark.config.gcs import GCS_SCHEMES, GcsStore
from dagster_iceberg_spark.config.hadoop import HADOOP_SCHEMES, HadoopStore
from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.versions import ICEBERG_AWS_BUNDLE

S3_SCHEMES: Final = ("s3", "s3a", "s3n")
"""Of themselves only `s3` is opened with Iceberg's client: the others are Hadoop's names of its own clients."""
OTHER_SCHEMES: Final = ("file", "hdfs", "viewfs", "gs", "abfs", "abfss", "wasb", "wasbs", "oss")
"""What Spark and pyiceberg open with `properties`, Hadoop's configuration and the environment alone."""


class AutomaticStore(Configuration):
    """What the scheme of the warehouse says, with what the environment holds; for local paths, the local disk."""

    kind: Literal["automatic"] = Field(default="automatic", description="As the warehouse's scheme says.")


class S3Store(Configuration):
    """Amazon S3, or a service that speaks its protocol.

    Example:
        >>> S3Store(endpoint="http://127.0.0.1:9000", path_style_access=True, region="us-east-1").kind
        's3'
    """

    kind: Literal["s3"] = Field(default="s3", description="Amazon S3 or a service that speaks its protocol.")
    endpoint: str | None = Field(
        default=None, description="Endpoint of the service, such as `http://127.0.0.1:9000`. Default: Amazon's."
    )
    path_style_access: bool = Field(
        default=False,
        description="Whether the bucket is part of the path; most services other than Amazon's ask for it.",
    )
    region: str | None = Field(default=None, description="Region. Default: what boto3 finds.")
    credentials: AwsCredentials = Field(default=AwsCredentials(), description="Who signs requests.")
    encryption: Literal["default", "s3", "kms", "dsse-kms"] = Field(
        default="default", description="Server-side encryption of what Spark writes. `default`: as the bucket says."
    )
    kms_key_id: str | None = Field(
        default=None, description="Key of `kms` and `dsse-kms`: its id or ARN. Default: S3's own key of the account."
    )

    def describe(self, *, is_vended: bool = False) -> EngineProperties:
        """Return what both engines need.

        Args:
            is_vended: Whether the catalog hands out the keys, so that none is looked for here.

        Raises:
            ConfigurationError: A key for an encryption that has none.
        """
        if self.kms_key_id is not None and self.encryption not in ("kms", "dsse-kms"):
            raise ConfigurationError.refusing(
                "use",
                "the S3 store",
                expected="`encryption` to be `kms` or `dsse-kms` where `kms_key_id` is set",
                found=repr(self.encryption),
            )
        is_signed_here = self.credentials.is_given or not is_vended
        identity = self.credentials.identity() if is_signed_here else None
        secrets = {} if identity is None else named_keys("s3", identity.fixed_keys)
        known = self.region or (DEFAULT_REGION if identity is None and self.endpoint else None)
        region = {"client.region": known} if known else {}
        return EngineProperties(
            spark={
                "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
                **({"s3.endpoint": self.endpoint} if self.endpoint else {}),
                **({"s3.path-style-access": "true"} if self.path_style_access else {}),
                **({"s3.sse.type": self.encryption} if self.encryption != "default" else {}),
                **({"s3.sse.key": self.kms_key_id} if self.kms_key_id else {}),
                **region,
            },
            spark_secrets=secrets,
            pyiceberg={
                **({"s3.endpoint": self.endpoint} if self.endpoint else {}),
                **({} if self.path_style_access or not self.endpoint else {"s3.force-virtual-addressing": "true"}),
                **region,
            },
            pyiceberg_secrets=secrets,
            packages=(ICEBERG_AWS_BUNDLE,),
            aws=identity,
        )


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
