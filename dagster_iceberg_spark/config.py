"""What a user may configure; every field's description is the text that Dagster's UI shows."""

import os
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

import dagster as dg
from pydantic import Field

from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.versions import POSTGRESQL_JDBC, SQLITE_JDBC

SQLITE_BUSY_TIMEOUT_SECONDS: Final = 60
REST_CONNECT_TIMEOUT_SECONDS: Final = 10
REST_ANSWER_TIMEOUT_SECONDS: Final = 60
_POSTGRESQL_PORT: Final = 5432
_SECRET_WORDS: Final = ("secret", "password", "token", "credential", "access-key")


class _Catalog(dg.Config):
    """What every catalog configuration has in common."""

    name: str = Field(
        default="lake",
        description="The catalog's name in Spark. In a SQL catalog it is also the key of the tables' rows: another name "
        "shows other tables.",
    )
    properties: dict[str, str] = Field(
        default={},
        description="Further Iceberg catalog properties, given to Spark and to pyiceberg as they are. A property that "
        "another field sets is refused here.",
    )

    def _described(  # noqa: PLR0913 - one argument for every part of a description
        self,
        *,
        kind: str,
        endpoint: str,
        spark: dict[str, str],
        pyiceberg: dict[str, str],
        spark_secrets: dict[str, str] | None = None,
        packages: tuple[str, ...] = (),
        host: tuple[str, int] | None = None,
        warehouse: str | None = None,
        secrets: tuple[str, ...] = (),
    ) -> CatalogDescription:
        for key in self.properties:
            if key in spark or key in pyiceberg or key in (spark_secrets or {}):
                raise ConfigurationError.refusing(
                    "use",
                    f"`properties` of the catalog {self.name!r}",
                    expected="properties that no other field sets",
                    found=f"{key!r}",
                )
        hidden = {key: value for key, value in self.properties.items() if _holds_secret(key)}
        shown = {key: value for key, value in self.properties.items() if key not in hidden}
        return CatalogDescription(
            name=self.name,
            kind=kind,
            endpoint=endpoint,
            spark_properties={**spark, **shown},
            spark_secrets={**(spark_secrets or {}), **hidden},
            pyiceberg_properties={**pyiceberg, **self.properties},
            packages=packages,
            host=host,
            warehouse=warehouse,
            secrets=tuple(secret for secret in (*secrets, *hidden.values()) if secret),
        )


class EmbeddedCatalog(_Catalog):
    """A SQLite catalog and local files under the Dagster instance's storage directory: nothing to configure."""

    kind: Literal["embedded"] = Field(default="embedded", description="An embedded catalog.")
    directory: str | None = Field(
        default=None,
        description="Directory of the catalog and the tables. Default: `iceberg` under the Dagster instance's storage "
        "directory.",
    )

    def describe(self, storage_directory: str) -> CatalogDescription:
        """Return the description of the catalog in that directory, which is created."""
        directory = Path(self.directory or os.path.join(storage_directory, "iceberg")).absolute()  # noqa: PTH118
        directory.mkdir(parents=True, exist_ok=True)
        sql = SqlCatalog(
            name=self.name,
            uri=f"sqlite:///{directory / 'catalog.db'}",
            warehouse=str(directory / "warehouse"),
            properties=self.properties,
        )
        return sql.describe(storage_directory)


class SqlCatalog(_Catalog):
    """A catalog in a SQL database: Spark's JDBC catalog and pyiceberg's SqlCatalog on the same tables.

    Example:
        >>> SqlCatalog(uri="sqlite:////data/lake/catalog.db", warehouse="/data/lake").kind
        'sql'
    """

    kind: Literal["sql"] = Field(default="sql", description="A catalog in a SQL database.")
    uri: str = Field(
        description="The database: `sqlite:///path/to/catalog.db` or `postgresql://user:password@host:5432/database`. "
        "Use EnvVar where it holds a password.",
    )
    warehouse: str = Field(description="Directory or URI under which new tables are placed, such as `s3://lake/warehouse`.")

    def __repr__(self) -> str:
        """Return the configuration without the URI's password."""
        return f"SqlCatalog(name={self.name!r}, uri={_without_password(self.uri)!r}, warehouse={self.warehouse!r})"

    __str__ = __repr__

    def describe(self, storage_directory: str) -> CatalogDescription:  # noqa: ARG002 - every catalog takes it
        """Return what Spark and pyiceberg need.

        Raises:
            ConfigurationError: The URI is of a database that is not supported.
        """
        scheme = urlsplit(self.uri).scheme.split("+")[0]
        if scheme == "sqlite":
            return self._describe_sqlite()
        if scheme in ("postgresql", "postgres"):
            return self._describe_postgresql()
        raise ConfigurationError.refusing(
            "use",
            f"the SQL catalog {self.name!r}",
            expected="a `uri` that starts with sqlite:// or postgresql://",
            found=repr(_without_password(self.uri)),
            hint="for a REST catalog use `RestCatalog`.",
        )

    def _describe_sqlite(self) -> CatalogDescription:
        path = Path(self.uri.split("///", 1)[-1].split("?")[0]).absolute()
        path.parent.mkdir(parents=True, exist_ok=True)
        return self._described(
            kind="SQLite catalog",
            endpoint=str(path),
            spark=_jdbc(f"jdbc:sqlite:{path}?busy_timeout={SQLITE_BUSY_TIMEOUT_SECONDS * 1000}", self._warehouse_uri),
            pyiceberg={
                "type": "sql",
                "uri": f"sqlite:///{path}?timeout={SQLITE_BUSY_TIMEOUT_SECONDS}",
                "warehouse": self._warehouse_uri,
            },
            packages=(SQLITE_JDBC,),
            warehouse=self._warehouse_uri,
        )

    def _describe_postgresql(self) -> CatalogDescription:
        parts = urlsplit(self.uri)
        host, port = parts.hostname or "localhost", parts.port or _POSTGRESQL_PORT
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        query = dict(parse_qsl(parts.query))
        login = {"connect_timeout": str(REST_CONNECT_TIMEOUT_SECONDS), **query}
        jdbc_query = {"loginTimeout": str(REST_CONNECT_TIMEOUT_SECONDS), **query}
        account = ":".join(quote(item, safe="") for item in (user, password) if item)
        address = f"{host}:{port}{parts.path}"
        jdbc_uri = f"jdbc:postgresql://{address}?{urlencode(jdbc_query)}"
        return self._described(
            kind="PostgreSQL catalog",
            endpoint=address,
            spark={**_jdbc(jdbc_uri, self._warehouse_uri), **({"jdbc.user": user} if user else {})},
            spark_secrets={"jdbc.password": password} if password else {},
            pyiceberg={
                "type": "sql",
                "uri": f"postgresql+psycopg2://{account}{'@' if account else ''}{address}?{urlencode(login)}",
                "warehouse": self._warehouse_uri,
            },
            packages=(POSTGRESQL_JDBC,),
            host=(host, port),
            warehouse=self._warehouse_uri,
            secrets=(password, quote(password, safe="")),
        )

    @property
    def _warehouse_uri(self) -> str:
        return as_uri(self.warehouse)


class RestCatalog(_Catalog):
    """A catalog that speaks Iceberg's REST protocol.

    Example:
        >>> RestCatalog(uri="http://127.0.0.1:8181").kind
        'rest'
    """

    kind: Literal["rest"] = Field(default="rest", description="A catalog that speaks Iceberg's REST protocol.")
    uri: str = Field(description="Base URI of the service, such as `https://catalog.example.com/api`.")
    warehouse: str | None = Field(
        default=None, description="The warehouse to use, where the service has several; its name or location."
    )

    def describe(self, storage_directory: str) -> CatalogDescription:  # noqa: ARG002 - every catalog takes it
        """Return what Spark and pyiceberg need.

        Raises:
            ConfigurationError: The URI is not one of HTTP.
        """
        parts = urlsplit(self.uri)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigurationError.refusing(
                "use",
                f"the REST catalog {self.name!r}",
                expected="a `uri` that starts with http:// or https://",
                found=repr(_without_password(self.uri)),
            )
        warehouse = {"warehouse": self.warehouse} if self.warehouse else {}
        return self._described(
            kind="REST catalog",
            endpoint=_without_password(self.uri),
            spark={
                "type": "rest",
                "uri": self.uri,
                "rest.client.connection-timeout-ms": str(REST_CONNECT_TIMEOUT_SECONDS * 1000),
                "rest.client.socket-timeout-ms": str(REST_ANSWER_TIMEOUT_SECONDS * 1000),
                **warehouse,
            },
            pyiceberg={"type": "rest", "uri": self.uri, **warehouse},
            host=(parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)),
            secrets=(parts.password or "",),
        )


CatalogConfig: TypeAlias = Annotated[EmbeddedCatalog | SqlCatalog | RestCatalog, Field(discriminator="kind")]


def as_uri(warehouse: str) -> str:
    """Return the warehouse as a URI: a path becomes an absolute `file://` one."""
    return warehouse if urlsplit(warehouse).scheme else f"file://{Path(warehouse).absolute()}"


def _jdbc(uri: str, warehouse: str) -> dict[str, str]:
    return {"type": "jdbc", "uri": uri, "warehouse": warehouse, "jdbc.schema-version": "V1"}


def _holds_secret(key: str) -> bool:
    return any(word in key.lower() for word in _SECRET_WORDS)


def _without_password(uri: str) -> str:
    parts = urlsplit(uri)
    if not parts.password:
        return uri
    return uri.replace(f":{parts.password}@", ":********@", 1)
