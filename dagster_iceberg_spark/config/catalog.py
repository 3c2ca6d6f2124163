"""What every catalog configuration has in common."""

from pathlib import Path

from pydantic import Field, field_validator

from dagster_iceberg_spark.catalog.description import (
    HDFS_FILE_IO,
    HDFS_SCHEMES,
    CatalogDescription,
    EngineProperties,
    holds_secret,
    joined,
)
from dagster_iceberg_spark.config.adls import AdlsStore
from dagster_iceberg_spark.config.base import Configuration, holds_login, parts_of, scheme_of, without_password
from dagster_iceberg_spark.config.gcs import GcsStore
from dagster_iceberg_spark.config.hadoop import HadoopStore
from dagster_iceberg_spark.config.stores import AutomaticStore, S3Store, StoreConfig, store_of
from dagster_iceberg_spark.errors import ConfigurationError


class BaseCatalog(Configuration):
    """Base of the catalogs."""

    name: str = Field(
        default="lake",
        description="The catalog's name in Spark. In a SQL catalog it is also the key of the tables' rows: another "
        "name shows other tables.",
    )
    store: StoreConfig = Field(
        default=AutomaticStore(),
        description="Where the files are, and who may read and write them. Default: as the scheme of the warehouse "
        "says, with the credentials that the environment holds.",
    )
    properties: dict[str, str] = Field(
        default={},
        description="Further Iceberg catalog properties, given to Spark and to pyiceberg as they are. A property that "
        "another field sets is refused here.",
    )

    @field_validator("name")
    @classmethod
    def _is_one_word(cls, name: str) -> str:
        """Refuse what Spark would take for the name of a catalog and one of its properties."""
        if not name or set(name) & set(".`/ "):
            raise ConfigurationError.refusing(
                "use",
                f"the catalog {name!r}",
                expected="a `name` without dots, spaces, slashes and backticks",
                found=repr(name),
            )
        return name

    def _described(
        self,
        *parts: EngineProperties,
        kind: str,
        endpoint: str,
        host: tuple[str, int] | None = None,
        other_hosts: tuple[tuple[str, int], ...] = (),
        warehouse: str | None = None,
    ) -> CatalogDescription:
        """Return what the parts say to the engines, with the free properties."""
        known = joined(parts)
        for key in self.properties:
            if key in known.keys:
                raise ConfigurationError.refusing(
                    "use",
                    f"`properties` of the catalog {self.name!r}",
                    expected="properties that no other field sets",
                    found=f"{key!r}",
                )
        for key, value in known.spark.items():
            if holds_login(value):
                raise ConfigurationError.refusing(
                    "use",
                    f"the catalog {self.name!r}",
                    expected="URIs without passwords",
                    found=f"one in {key!r}",
                    hint="give credentials in the fields for them, with EnvVar.",
                )
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

    def _store_in(
        self, warehouse: str | None, *, default: S3Store | None = None, is_vended: bool = False
    ) -> EngineProperties:
        """Return what the store says; who signs for the catalog signs for a store that says nothing else."""
        default = default or S3Store()
        store = store_of(self.store, warehouse, f"the catalog {self.name!r}", default=default)
        if isinstance(store, AdlsStore):
            return store.describe(warehouse)
        if isinstance(store, (GcsStore, HadoopStore)):
            return store.describe()
        if store is None and warehouse is not None and scheme_of(warehouse) in HDFS_SCHEMES:
            return EngineProperties(pyiceberg={} if "py-io-impl" in self.properties else {"py-io-impl": HDFS_FILE_IO})
        if not isinstance(store, S3Store) or (isinstance(self.store, AutomaticStore) and "io-impl" in self.properties):
            return EngineProperties()
        has_keys = is_vended or "s3.access-key-id" in self.properties
        signs = store.credentials if store.credentials.is_given or has_keys else default.credentials
        store = store.model_copy(update={"credentials": signs, "region": store.region or default.region})
        return store.describe(is_vended=has_keys)


def host_of(uri: str) -> tuple[str, int]:
    """Return host and port of an HTTP URI.

    Raises:
        ConfigurationError: It has none that can be read.
    """
    parts = parts_of(uri)
    if parts is None:
        found = repr(without_password(uri))
        raise ConfigurationError.refusing("reach", "the service", expected="a URI with host and port", found=found)
    return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


def as_uri(warehouse: str) -> str:
    """Return the warehouse as a URI: a path becomes an absolute `file://` one."""
    return warehouse if scheme_of(warehouse) else f"file://{Path(warehouse).absolute()}"


def make_directory(directory: Path, subject: str) -> None:
    """Make a directory that is not there yet.

    Raises:
        ConfigurationError: It cannot be made.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError.refusing(
            "use", subject, expected=f"a directory {directory} that exists or can be created", found=str(error)
        ) from error
