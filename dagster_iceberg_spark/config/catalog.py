"""What all catalogs share, with the choice of a store."""

from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

from pydantic import Field, field_validator

from dagster_iceberg_spark.catalog.description import (
    HDFS_FILE_IO,
    HDFS_SCHEMES,
    CatalogDescription,
    EngineProperties,
    holds_secret,
    join,
    split_secrets,
)
from dagster_iceberg_spark.config.configuration import (
    Configuration,
    Properties,
    given,
    holds_login,
    scheme_of,
    without_password,
)
from dagster_iceberg_spark.config.stores import AdlsStore, S3Store
from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.versions import ICEBERG_GCP_BUNDLE

_NEVER: Final = "4102444800000"
"""The year 2100: pyarrow takes a token only with its time of expiry, in milliseconds."""


class GcsStore(Configuration):
    """Google Cloud Storage. Without a token, it uses Google's default credential chain.

    Example:
        >>> GcsStore(project_id="lake").kind
        'gcs'
    """

    schemes: ClassVar = ("gs",)

    kind: Literal["gcs"] = Field(default="gcs", description="Google Cloud Storage.")
    project_id: str | None = Field(default=None, description="Project. Default: the project of the credentials.")
    token: str | None = Field(
        default=None,
        description="OAuth2 access token, which is not renewed. Use EnvVar. Default: the credential chain "
        "(GOOGLE_APPLICATION_CREDENTIALS, gcloud's login, the metadata server).",
    )
    endpoint: str | None = Field(default=None, description="Endpoint, such as an emulator's. Default: Google's.")

    def describe(self) -> EngineProperties:
        """Return what both engines need."""
        endpoint = self.endpoint and self.endpoint.rstrip("/")
        common = given({"gcs.project-id": self.project_id, "gcs.service.host": endpoint})
        secrets = given({"gcs.oauth2.token": self.token})
        return EngineProperties(
            spark={"io-impl": "org.apache.iceberg.gcp.gcs.GCSFileIO", **common},
            spark_secrets=secrets,
            pyiceberg={**common, **({"gcs.oauth2.token-expires-at": _NEVER} if secrets else {})},
            pyiceberg_secrets=secrets,
            packages=(ICEBERG_GCP_BUNDLE,),
        )


class HadoopStore(Configuration):
    """HDFS, or another Hadoop file system, which Spark opens with Hadoop's client for the warehouse's scheme.

    Without a JVM, hdfs-native opens HDFS with the same configuration (the extra `hdfs`).

    Example:
        >>> HadoopStore(configuration={"dfs.client.use.datanode.hostname": "true"}).kind
        'hadoop'
    """

    schemes: ClassVar = (*HDFS_SCHEMES, "file", "s3a", "s3n", "gs", "abfs", "abfss", "wasb", "wasbs", "oss")

    kind: Literal["hadoop"] = Field(default="hadoop", description="HDFS, or another Hadoop file system.")
    configuration: Properties = Field(
        default={},
        description="Hadoop's configuration for this catalog alone, such as `dfs.nameservices`. Use EnvVar for "
        "secrets.",
    )

    def describe(self) -> EngineProperties:
        """Return what both engines need."""
        shown, secret = split_secrets({f"hadoop.{key}": value for key, value in self.configuration.items()})
        return EngineProperties(
            spark={"io-impl": "org.apache.iceberg.hadoop.HadoopFileIO", **shown},
            spark_secrets=secret,
            pyiceberg={"py-io-impl": HDFS_FILE_IO, **shown},
            pyiceberg_secrets=secret,
        )


class AutomaticStore(Configuration):
    """The store that the warehouse's scheme names, with the credentials of the environment. A path is local."""

    schemes: ClassVar = ("s3", *HadoopStore.schemes)
    """Only `s3` needs more than `properties`, Hadoop's configuration and the environment."""

    kind: Literal["automatic"] = Field(default="automatic", description="The store that the warehouse's scheme names.")


StoreConfig: TypeAlias = Annotated[
    AutomaticStore | S3Store | AdlsStore | GcsStore | HadoopStore, Field(discriminator="kind")
]


class Catalog(Configuration):
    """Base class of the catalogs."""

    name: str = Field(
        default="lake",
        description="Name of the catalog in Spark. A SQL catalog also stores its tables under this name: if you change "
        "it, you see other tables.",
    )
    store: StoreConfig = Field(
        default=AutomaticStore(),
        description="Where the files are, and the credentials for them. Default: the store that the warehouse's scheme "
        "names, with the credentials of the environment.",
    )
    properties: Properties = Field(
        default={},
        description="Further Iceberg catalog properties, for both Spark and pyiceberg. A property that another field "
        "sets is rejected.",
    )

    @field_validator("name")
    @classmethod
    def _is_one_word(cls, name: str) -> str:
        """Refuse a name that Spark would split into a catalog and a property."""
        if not name or set(name) & set(".`/ "):
            raise ConfigurationError.refusing(
                "use",
                f"the catalog {name!r}",
                expected="a `name` without dots, spaces, slashes and backticks",
                found=repr(name),
            )
        return name

    @property
    def _default_store(self) -> S3Store:
        """The region and the credentials of the catalog, for a store on S3 that has none."""
        return S3Store()

    @property
    def _is_vended(self) -> bool:
        """Whether the catalog vends the credentials for the store."""
        return False

    def _refusal(
        self, expected: str, *, found: str, hint: str | None = None, kind: str = "catalog"
    ) -> ConfigurationError:
        subject = f"the {kind} {self.name!r}"
        return ConfigurationError.refusing("use", subject, expected=expected, found=found, hint=hint)

    def _store_properties(self, warehouse: str | None) -> EngineProperties:
        """Return what both engines need to open the store, signed as the catalog unless the store says otherwise."""
        store, scheme = self.store, None if warehouse is None else scheme_of(warehouse)
        if scheme is not None and scheme not in store.schemes:
            raise self._refusal(
                f"a `warehouse` that is a URI of {' or '.join(store.schemes)} where `store` is {type(store).__name__}",
                found=repr(without_password(warehouse or "")),
                hint="correct the `warehouse`, or set the `store` for its scheme.",
            )
        if isinstance(store, AutomaticStore):
            if scheme in HDFS_SCHEMES and "py-io-impl" not in self.properties:
                return EngineProperties(pyiceberg={"py-io-impl": HDFS_FILE_IO})
            if scheme != "s3" or "io-impl" in self.properties:
                return EngineProperties()
            store = self._default_store
        if not isinstance(store, S3Store):
            return store.describe(warehouse) if isinstance(store, AdlsStore) else store.describe()
        default, has_keys = self._default_store, self._is_vended or "s3.access-key-id" in self.properties
        credentials = store.credentials if store.credentials.is_given or has_keys else default.credentials
        store = store.model_copy(update={"credentials": credentials, "region": store.region or default.region})
        return store.describe(is_vended=has_keys)

    def _describe(
        self,
        service: EngineProperties,
        *others: EngineProperties,
        kind: str,
        endpoint: str,
        host: tuple[str, int] | None = None,
        other_hosts: tuple[tuple[str, int], ...] = (),
        warehouse: str | None = None,
    ) -> CatalogDescription:
        """Join the service, the store, other parts and the free properties to a description of the catalog."""
        known = join((service, self._store_properties(warehouse), *others))
        for key in sorted(known.keys & self.properties.keys()):
            raise ConfigurationError.refusing(
                "use",
                f"`properties` of the catalog {self.name!r}",
                expected="properties that no other field sets",
                found=repr(key),
            )
        for key, value in known.spark.items():
            if holds_login(value):
                hint = "set credentials in their own fields, with EnvVar."
                raise self._refusal("URIs without passwords", found=f"one in {key!r}", hint=hint)
        hidden = {key: value for key, value in self.properties.items() if holds_secret(key) or holds_login(value)}
        shown = {key: value for key, value in self.properties.items() if key not in hidden}
        return CatalogDescription(
            name=self.name,
            kind=kind,
            endpoint=endpoint,
            spark_properties={**known.spark, **shown},
            spark_secrets={**known.spark_secrets, **hidden},
            pyiceberg_properties={**known.pyiceberg, **known.pyiceberg_secrets, **self.properties},
            packages=known.packages,
            host=host,
            other_hosts=other_hosts,
            warehouse=warehouse,
            secrets=tuple(secret for secret in (*known.secrets, *hidden.values()) if secret),
            system_properties=known.system_properties,
            aws=known.aws,
        )


def make_directory(directory: Path, subject: str) -> None:
    """Create a directory unless it exists."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError.refusing(
            "use", subject, expected=f"a directory {directory} that exists or can be created", found=str(error)
        ) from error
