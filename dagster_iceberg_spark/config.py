"""What a user may configure; every field's description is the text that Dagster's UI shows."""

import difflib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

import dagster as dg
from pydantic import BaseModel, ConfigDict, Field

from dagster_iceberg_spark.catalog.description import HIDDEN, CatalogDescription, holds_secret
from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.versions import POSTGRESQL_JDBC, SQLITE_JDBC

SQLITE_BUSY_TIMEOUT_SECONDS: Final = 60
CONNECT_TIMEOUT_SECONDS: Final = 10
ANSWER_TIMEOUT_SECONDS: Final = 60
_POSTGRESQL_PORT: Final = 5432
_SQLITE_URI: Final = re.compile(r"sqlite(?:\+\w+)?:///(?P<path>[^?]+)(?:\?.*)?")
_USER_SECRET: Final = re.compile(r"(://[^:/?#]*):.*@")
_QUERY_SECRET: Final = re.compile(r"((?:secret|password|token|credential)\w*=)[^&]*", re.IGNORECASE)
_RETRIED_SQL_STATES: Final = "57P01,57P02,57P03"
"""PostgreSQL has ended the connection (shutdown, crash) or is not up yet: Iceberg opens another and asks again."""


class _Catalog(dg.Config):
    """What every catalog configuration has in common."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(
        default="lake",
        description="The catalog's name in Spark. In a SQL catalog it is also the key of the tables' rows: another "
        "name shows other tables.",
    )
    properties: dict[str, str] = Field(
        default={},
        description="Further Iceberg catalog properties, given to Spark and to pyiceberg as they are. A property that "
        "another field sets is refused here.",
    )

    def __repr__(self) -> str:
        """Return the configuration without what may be secret."""
        shown = (f"{name}={_shown(name, value)!r}" for name, value in self if name not in ("kind", "properties"))
        return f"{type(self).__name__}({', '.join([*shown, f'properties={_shown_properties(self.properties)!r}'])})"

    __str__ = __repr__

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
        hidden = {key: value for key, value in self.properties.items() if holds_secret(key)}
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
        directory = Path(self.directory or Path(storage_directory, "iceberg")).absolute()
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
    warehouse: str = Field(
        description="Directory or URI under which new tables are placed, such as `s3://lake/warehouse`."
    )

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
        match = _SQLITE_URI.fullmatch(self.uri)
        if match is None or match["path"] == ":memory:":
            raise ConfigurationError.refusing(
                "use",
                f"the SQL catalog {self.name!r}",
                expected="a file, as in sqlite:///lake/catalog.db or sqlite:////data/lake/catalog.db",
                found=repr(self.uri),
                hint="Spark and pyiceberg share the catalog through the file.",
            )
        path = Path(match["path"]).absolute()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError.refusing(
                "use",
                f"the SQL catalog {self.name!r}",
                expected=f"a directory {path.parent} that exists or can be created",
                found=str(error),
            ) from error
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
        try:
            parts = urlsplit(self.uri)
            host, port = parts.hostname or "localhost", parts.port or _POSTGRESQL_PORT
        except ValueError:
            raise self._unreadable_uri() from None
        query = dict(parse_qsl(parts.query))
        user = query.pop("user", unquote(parts.username or ""))
        password = query.pop("password", unquote(parts.password or ""))
        if any(holds_secret(key) for key in query):
            raise self._unreadable_uri()
        login = {"connect_timeout": str(CONNECT_TIMEOUT_SECONDS), **query}
        jdbc_query = {"loginTimeout": str(CONNECT_TIMEOUT_SECONDS), **query}
        account = ":".join(quote(item, safe="") for item in (user, password) if item)
        address = f"{f'[{host}]' if ':' in host else host}:{port}{parts.path}"
        return self._described(
            kind="PostgreSQL catalog",
            endpoint=address,
            spark={
                **_jdbc(f"jdbc:postgresql://{address}?{urlencode(jdbc_query)}", self._warehouse_uri),
                **({"jdbc.user": user} if user else {}),
                "retryable_status_codes": _RETRIED_SQL_STATES,
            },
            spark_secrets={"jdbc.password": password} if password else {},
            pyiceberg={
                "type": "sql",
                "uri": f"postgresql+psycopg2://{account}{'@' if account else ''}{address}?{urlencode(login)}",
                "warehouse": self._warehouse_uri,
                "pool_pre_ping": "true",  # a pooled connection may be older than the server
            },
            packages=(POSTGRESQL_JDBC,),
            host=(host, port),
            warehouse=self._warehouse_uri,
            secrets=(password,),
        )

    def _unreadable_uri(self) -> ConfigurationError:
        return ConfigurationError.refusing(
            "use",
            f"the SQL catalog {self.name!r}",
            expected="a `uri` of the form postgresql://user:password@host:5432/database",
            found=repr(_without_password(self.uri)),
            hint="percent-encode special characters of the password, `@` as %40, `/` as %2F.",
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
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.password:
            raise ConfigurationError.refusing(
                "use",
                f"the REST catalog {self.name!r}",
                expected="a `uri` that starts with http:// or https://, without user and password",
                found=repr(_without_password(self.uri)),
            )
        warehouse = {"warehouse": self.warehouse} if self.warehouse else {}
        return self._described(
            kind="REST catalog",
            endpoint=self.uri,
            spark={
                "type": "rest",
                "uri": self.uri,
                "rest.client.connection-timeout-ms": str(CONNECT_TIMEOUT_SECONDS * 1000),
                "rest.client.socket-timeout-ms": str(ANSWER_TIMEOUT_SECONDS * 1000),
                **warehouse,
            },
            pyiceberg={"type": "rest", "uri": self.uri, **warehouse},
            host=(parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)),
        )


CatalogConfig: TypeAlias = Annotated[EmbeddedCatalog | SqlCatalog | RestCatalog, Field(discriminator="kind")]


def as_uri(warehouse: str) -> str:
    """Return the warehouse as a URI: a path becomes an absolute `file://` one."""
    return warehouse if urlsplit(warehouse).scheme else f"file://{Path(warehouse).absolute()}"


def _jdbc(uri: str, warehouse: str) -> dict[str, str]:
    return {"type": "jdbc", "uri": uri, "warehouse": warehouse, "jdbc.schema-version": "V1"}


def _without_password(uri: str) -> str:
    """Return the URI with what may be a password hidden, be it well-formed or not."""
    return _QUERY_SECRET.sub(r"\1********", _USER_SECRET.sub(r"\1:********@", uri))


def _shown(name: str, value: object) -> object:
    return _without_password(value) if name == "uri" and isinstance(value, str) else value


def _shown_properties(properties: dict[str, str]) -> dict[str, str]:
    return {key: HIDDEN if holds_secret(key) else _without_password(value) for key, value in properties.items()}


def refuse_unknown_fields(model: type[BaseModel], given: Iterable[str]) -> None:
    """Refuse keywords that the model has no field for: Dagster's own classes ignore them.

    Raises:
        ConfigurationError: Names the nearest field.
    """
    for name in given:
        if name not in model.model_fields:
            nearest = difflib.get_close_matches(name, model.model_fields, n=1)
            raise ConfigurationError.refusing(
                "configure",
                model.__name__,
                expected=f"one of the fields {', '.join(model.model_fields)}",
                found=repr(name),
                hint=f"did you mean `{nearest[0]}`?" if nearest else None,
            )
