"""A catalog that the Spark session already has."""

from typing import Literal

from pydantic import Field

from dagster_iceberg_spark.catalog.description import CatalogDescription, holds_secret
from dagster_iceberg_spark.config.catalog import Catalog


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
    properties: dict[str, str] = Field(
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
