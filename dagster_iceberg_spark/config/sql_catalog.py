"""Catalogs in a SQL database."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal
from urllib.parse import parse_qsl, quote, unquote, urlencode

import dagster as dg
from pydantic import Field

from dagster_iceberg_spark.catalog.description import CatalogDescription, EngineProperties, holds_secret
from dagster_iceberg_spark.config.catalog import Catalog, make_directory
from dagster_iceberg_spark.config.configuration import as_uri, given, parts_of, scheme_of, without_password
from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.timeouts import CLIENT_CONNECT_TIMEOUT_SECONDS, SQLITE_BUSY_TIMEOUT_SECONDS
from dagster_iceberg_spark.versions import MYSQL_JDBC, POSTGRESQL_JDBC, SQLITE_JDBC

_SQLITE_URI: Final = re.compile(r"sqlite(?:\+\w+)?:///(?P<path>[^?]+)(?:\?.*)?")
_ACCOUNT: Final = re.compile(r"(?:^|&)(?:user|password)=[^&]*")
"""Parameters of a URI that may hold an `@`."""


@dataclass(frozen=True, slots=True)
class _Server:
    """A database server, as its JDBC driver in Spark and its SQLAlchemy driver in pyiceberg know it.

    The scheme is that of SQLAlchemy, `<dialect>+<driver>`; JDBC knows the dialect. After the retried SQL states, beside
    those of the standard, Iceberg connects again.
    """

    name: str
    port: int
    scheme: str
    jdbc_query: Mapping[str, str]
    query: Mapping[str, str]
    retried_states: str
    jdbc_driver: str
    shares_parameters: bool


_POSTGRESQL: Final = _Server(
    name="PostgreSQL",
    port=5432,
    scheme="postgresql+psycopg2",
    jdbc_query={"loginTimeout": str(CLIENT_CONNECT_TIMEOUT_SECONDS)},
    query={"connect_timeout": str(CLIENT_CONNECT_TIMEOUT_SECONDS)},
    retried_states="57P01,57P02,57P03",  # the server shuts down, has crashed, or is starting
    jdbc_driver=POSTGRESQL_JDBC,
    shares_parameters=True,
)
_MYSQL: Final = _Server(
    name="MySQL",
    port=3306,
    scheme="mysql+pymysql",
    jdbc_query={"connectTimeout": str(CLIENT_CONNECT_TIMEOUT_SECONDS * 1000)},
    query={"connect_timeout": str(CLIENT_CONNECT_TIMEOUT_SECONDS), "charset": "utf8mb4"},
    retried_states="08S01",  # the driver has lost the connection
    jdbc_driver=MYSQL_JDBC,
    shares_parameters=False,
)
_SERVERS: Final = {"postgresql": _POSTGRESQL, "postgres": _POSTGRESQL, "mysql": _MYSQL, "mariadb": _MYSQL}


class SqlCatalog(Catalog):
    """A catalog in a SQL database: Spark's JDBC catalog and pyiceberg's SqlCatalog share its tables.

    Example:
        >>> SqlCatalog(uri="sqlite:////data/lake/catalog.db", warehouse="/data/lake").kind
        'sql'
    """

    kind: Literal["sql"] = Field(default="sql", description="A catalog in a SQL database.")
    uri: str = Field(
        description="URI of the database: `sqlite:///path/to/catalog.db`, "
        "`postgresql://user:password@host:5432/database` or `mysql://user:password@host:3306/database`. Use EnvVar if "
        "it holds a password."
    )
    warehouse: str = Field(description="Directory or URI under which new tables go, such as `s3://lake/warehouse`.")

    def describe(self) -> CatalogDescription:
        """Return what Spark and pyiceberg need, and create the directory of a SQLite file."""
        scheme = scheme_of(self.uri).split("+")[0]
        if scheme == "sqlite":
            return self._describe_sqlite()
        if scheme in _SERVERS:
            return self._describe_server(_SERVERS[scheme])
        raise self._uri_refusal(
            "a `uri` that starts with sqlite://, postgresql:// or mysql://",
            hint="for a REST catalog, use `RestCatalog`.",
        )

    def _describe_sqlite(self) -> CatalogDescription:
        match = _SQLITE_URI.fullmatch(self.uri)
        if match is None or match["path"] == ":memory:":
            raise self._uri_refusal(
                "a file, as in sqlite:///lake/catalog.db or sqlite:////data/lake/catalog.db",
                hint="Spark and pyiceberg share the catalog through the file.",
            )
        path = Path(match["path"]).absolute()
        make_directory(path.parent, f"the SQL catalog {self.name!r}")
        return self._describe(
            self._tables(
                f"jdbc:sqlite:{path}?busy_timeout={SQLITE_BUSY_TIMEOUT_SECONDS * 1000}",
                f"sqlite:///{path}?timeout={SQLITE_BUSY_TIMEOUT_SECONDS}",
                driver=SQLITE_JDBC,
            ),
            kind="SQLite catalog",
            endpoint=str(path),
            warehouse=as_uri(self.warehouse),
        )

    def _describe_server(self, server: _Server) -> CatalogDescription:
        parts = parts_of(self.uri)
        if parts is None or "@" in f"{parts.path}{parts.fragment}{_ACCOUNT.sub('', parts.query)}":
            raise self._unreadable_uri()
        if parts.query and not server.shares_parameters:
            raise self._uri_refusal(
                "a `uri` without parameters, which Spark's client and pyiceberg's name differently",
                hint="set those of Spark's client in `properties`, such as `jdbc.sslMode`.",
            )
        query = dict(parse_qsl(parts.query))
        user = query.pop("user", unquote(parts.username or ""))
        password = query.pop("password", unquote(parts.password or ""))
        if any(holds_secret(key) for key in query):
            raise self._unreadable_uri()
        host, port = parts.hostname or "localhost", parts.port or server.port
        address = f"{f'[{host}]' if ':' in host else host}:{port}{parts.path}"
        login = ":".join(quote(item, safe="") for item in (user, password) if item)
        account = EngineProperties(
            spark={**given({"jdbc.user": user}), "retryable_status_codes": server.retried_states},
            spark_secrets=given({"jdbc.password": password}),
            pyiceberg={"pool_pre_ping": "true"},  # a pooled connection may be older than the server
            hidden=(password,),
        )
        jdbc_uri = f"jdbc:{server.scheme.split('+')[0]}://{address}?{urlencode({**server.jdbc_query, **query})}"
        uri = f"{server.scheme}://{login}{'@' if login else ''}{address}?{urlencode({**server.query, **query})}"
        return self._describe(
            self._tables(jdbc_uri, uri, driver=server.jdbc_driver),
            account,
            kind=f"{server.name} catalog",
            endpoint=address,
            host=(host, port),
            warehouse=as_uri(self.warehouse),
        )

    def _tables(self, jdbc_uri: str, uri: str, *, driver: str) -> EngineProperties:
        """Return how both engines open the database."""
        warehouse = as_uri(self.warehouse)
        return EngineProperties(
            spark={"type": "jdbc", "uri": jdbc_uri, "warehouse": warehouse, "jdbc.schema-version": "V1"},
            pyiceberg={"type": "sql", "uri": uri, "warehouse": warehouse},
            packages=(driver,),
        )

    def _unreadable_uri(self) -> ConfigurationError:
        return self._uri_refusal(
            "a `uri` of the form postgresql://user:password@host:5432/database, or mysql:// likewise",
            found="another form",
            hint="percent-encode special characters in the password: `@` as %40, `/` as %2F.",
        )

    def _uri_refusal(self, expected: str, *, hint: str, found: str | None = None) -> ConfigurationError:
        found = found or repr(without_password(self.uri))
        return self._refusal(expected, found=found, hint=hint, kind="SQL catalog")


def describe_in(directory: Path, catalog: Catalog) -> CatalogDescription:
    """Return the description of a catalog that is a SQLite file in that directory, with its tables beside it."""
    return SqlCatalog.model_construct(
        name=catalog.name,
        uri=f"sqlite:///{directory / 'catalog.db'}",
        warehouse=str(directory / "warehouse"),
        store=catalog.store,
        properties=catalog.properties,
    ).describe()


class EmbeddedCatalog(Catalog):
    """A SQLite catalog and local files in the Dagster instance's storage directory. It needs no configuration."""

    kind: Literal["embedded"] = Field(default="embedded", description="An embedded catalog.")
    directory: str | None = Field(
        default=None,
        description="Directory of the catalog and its tables. Default: `iceberg` in the Dagster instance's storage "
        "directory.",
    )

    def of_instance(self, storage_directory: str) -> "EmbeddedCatalog":
        """Return the catalog in its directory: `iceberg` in the instance's storage directory unless configured."""
        return self.model_copy(update={"directory": self.directory or str(Path(storage_directory, "iceberg"))})

    def describe(self) -> CatalogDescription:
        """Create the directory, and return what Spark and pyiceberg need."""
        if self.directory:
            return describe_in(Path(self.directory).absolute(), self)
        if os.environ.get("DAGSTER_HOME"):
            return self.of_instance(dg.DagsterInstance.get().storage_directory()).describe()
        raise ConfigurationError.refusing(
            "place",
            "the embedded catalog",
            expected="a Dagster instance, which has a storage directory for it",
            found="neither a run nor DAGSTER_HOME",
            hint="set DAGSTER_HOME, or `EmbeddedCatalog(directory=...)`.",
        )
