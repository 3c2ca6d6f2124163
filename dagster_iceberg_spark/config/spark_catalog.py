"""A catalog that is there already."""

from typing import Literal

from pydantic import Field

from dagster_iceberg_spark.catalog.description import CatalogDescription, holds_secret
from dagster_iceberg_spark.config.catalog import BaseCatalog
from dagster_iceberg_spark.errors import ConfigurationError


class SparkCatalogByName(BaseCatalog):
    """A catalog that the Spark session, or the Spark Connect server, has already; here is only its name.

    What pyiceberg needs follows from what the session says of it, so that a session is opened for inputs of pandas too.

    Example:
        >>> SparkCatalogByName(name="prod").kind
        'spark'
    """

    kind: Literal["spark"] = Field(default="spark", description="A catalog that the Spark session has already.")
    name: str = Field(description="The catalog's name in Spark: the session has `spark.sql.catalog.<name>`.")
    properties: dict[str, str] = Field(
        default={},
        description="Properties that pyiceberg gets besides those of the session, and that win: secrets that the "
        "session does not show, another endpoint of the store.",
    )

    def describe(self) -> CatalogDescription:
        """Return the name; the session says the rest.

        Raises:
            ConfigurationError: A store is described, which would be told to nobody.
        """
        if self.store.kind != "automatic":
            raise ConfigurationError.refusing(
                "use",
                f"the `store` of the Spark session's catalog {self.name!r}",
                expected="none: the session has one already",
                found=type(self.store).__name__,
                hint="say in `properties` what pyiceberg needs besides, such as `s3.endpoint`.",
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
