"""Catalogs in a SQL database."""

import re
from pathlib import Path
from typing import Final, Literal
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode

from pydantic import Field

from dagster_iceberg_spark.catalog.description import CatalogDescription, EngineProperties, holds_secret
from dagster_iceberg_spark.config.catalog import BaseCatalog, make_directory
from dagster_iceberg_spark.config.uri import as_uri, parts_of, scheme_of, without_password
from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.versions import MYSQL_JDBC, POSTGRESQL_JDBC, SQLITE_JDBC

SQLITE_BUSY_TIMEOUT_SECONDS: Final = 60
CONNECT_TIMEOUT_SECONDS: Final = 10
_POSTGRESQL_PORT: Final = 5432
_MYSQL_PORT: Final = 3306
_SQLITE_URI: Final = re.compile(r"sqlite(?:\+\w+)?:///(?P<path>[^?]+)(?:\?.*)?")
_RETRIED_SQL_STATES: Final = "57P01,57P02,57P03"
"""PostgreSQL has ended the connection (shutdown, crash) or is not up yet: Iceberg opens another and asks again."""

_MYSQL_RETRIED_SQL_STATES: Final = "08S01"
"""MySQL's client has lost the connection: Iceberg opens another, as it does for the states of the standard."""


class SqlCatalog(BaseCatalog):
    """A catalog in a SQL database: Spark's JDBC catalog and pyiceberg's SqlCatalog on the same tables.

    Example:
        >>> SqlCatalog(uri="sqlite:////data/lake/catalog.db", warehouse="/data/lake").kind
        'sql'
    """

    kind: Literal["sql"] = Field(default="sql", description="A catalog in a SQL database.")
    uri: str = Field(
        description="The database: `sqlite:///path/to/catalog.db`, `postgresql://user:password@host:5432/database` or "
        "`mysql://user:password@host:3306/database`. Use EnvVar where it holds a password.",
    )
    warehouse: str = Field(
        description="Directory or URI under which new tables are placed, such as `s3://lake/warehouse`."
    )

    def describe(self) -> CatalogDescription:
        """Return what Spark and pyiceberg need.

        Raises:
            ConfigurationError: The URI is of a database that is not supported.
        """
        scheme = scheme_of(self.uri).split("+")[0]
        if scheme == "sqlite":
            return self._describe_sqlite()
        if scheme in ("postgresql", "postgres"):
            return self._describe_postgresql()
        if scheme in ("mysql", "mariadb"):
            return self._describe_mysql()
        raise ConfigurationError.refusing(
            "use",
            f"the SQL catalog {self.name!r}",
            expected="a `uri` that starts with sqlite://, postgresql:// or mysql://",
            found=repr(without_password(self.uri)),
            hint="for a REST catalog use `RestCatalog`.",
        )

    def _describe_sqlite(self) -> CatalogDescription:
        match = _SQLITE_URI.fullmatch(self.uri)
        if match is None or match["path"] == ":memory:":
            raise ConfigurationError.refusing(
                "use",
                f"the SQL catalog {self.name!r}",
                expected="a file, as in sqlite:///lake/catalog.db or sqlite:////data/lake/catalog.db",
                found=repr(without_password(self.uri)),
                hint="Spark and pyiceberg share the catalog through the file.",
            )
        path = Path(match["path"]).absolute()
        make_directory(path.parent, f"the SQL catalog {self.name!r}")
        warehouse = self._warehouse_uri
        database = EngineProperties(
            spark=_jdbc(f"jdbc:sqlite:{path}?busy_timeout={SQLITE_BUSY_TIMEOUT_SECONDS * 1000}", warehouse),
            pyiceberg={
                "type": "sql",
                "uri": f"sqlite:///{path}?timeout={SQLITE_BUSY_TIMEOUT_SECONDS}",
                "warehouse": warehouse,
            },
            packages=(SQLITE_JDBC,),
        )
        return self._described(
            database, self._store_in(warehouse), kind="SQLite catalog", endpoint=str(path), warehouse=warehouse
        )

    def _describe_mysql(self) -> CatalogDescription:
        parts, host, port = self._parts(_MYSQL_PORT)
        if parts.query:
            raise ConfigurationError.refusing(
                "use",
                f"the SQL catalog {self.name!r}",
                expected="a `uri` without parameters, which Spark's client and pyiceberg's call otherwise",
                found=repr(without_password(self.uri)),
                hint="give Spark's in `properties`, as in `jdbc.sslMode`.",
            )
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        account = ":".join(quote(item, safe="") for item in (user, password) if item)
        address = f"{f'[{host}]' if ':' in host else host}:{port}{parts.path}"
        milliseconds = CONNECT_TIMEOUT_SECONDS * 1000
        warehouse = self._warehouse_uri
        database = EngineProperties(
            spark={
                **_jdbc(f"jdbc:mysql://{address}?connectTimeout={milliseconds}", warehouse),
                **({"jdbc.user": user} if user else {}),
                "retryable_status_codes": _MYSQL_RETRIED_SQL_STATES,
            },
            spark_secrets={"jdbc.password": password} if password else {},
            pyiceberg={
                "type": "sql",
                "uri": f"mysql+pymysql://{account}{'@' if account else ''}{address}"
                f"?connect_timeout={CONNECT_TIMEOUT_SECONDS}&charset=utf8mb4",
                "warehouse": warehouse,
                "pool_pre_ping": "true",  # a pooled connection may be older than the server
            },
            hidden=(password,),
            packages=(MYSQL_JDBC,),
        )
        return self._described(
            database,
            self._store_in(warehouse),
            kind="MySQL catalog",
            endpoint=address,
            host=(host, port),
            warehouse=warehouse,
        )

    def _parts(self, default_port: int) -> tuple[SplitResult, str, int]:
        parts = parts_of(self.uri)
        if parts is None or "@" in f"{parts.path}{parts.fragment}{_without_account(parts.query)}":
            raise self._unreadable_uri()
        return parts, parts.hostname or "localhost", parts.port or default_port

    def _describe_postgresql(self) -> CatalogDescription:
        parts, host, port = self._parts(_POSTGRESQL_PORT)
        query = dict(parse_qsl(parts.query))
        user = query.pop("user", unquote(parts.username or ""))
        password = query.pop("password", unquote(parts.password or ""))
        if any(holds_secret(key) for key in query):
            raise self._unreadable_uri()
        login = {"connect_timeout": str(CONNECT_TIMEOUT_SECONDS), **query}
        jdbc_query = {"loginTimeout": str(CONNECT_TIMEOUT_SECONDS), **query}
        account = ":".join(quote(item, safe="") for item in (user, password) if item)
        address = f"{f'[{host}]' if ':' in host else host}:{port}{parts.path}"
        warehouse = self._warehouse_uri
        database = EngineProperties(
            spark={
                **_jdbc(f"jdbc:postgresql://{address}?{urlencode(jdbc_query)}", warehouse),
                **({"jdbc.user": user} if user else {}),
                "retryable_status_codes": _RETRIED_SQL_STATES,
            },
            spark_secrets={"jdbc.password": password} if password else {},
            pyiceberg={
                "type": "sql",
                "uri": f"postgresql+psycopg2://{account}{'@' if account else ''}{address}?{urlencode(login)}",
                "warehouse": warehouse,
                "pool_pre_ping": "true",  # a pooled connection may be older than the server
            },
            hidden=(password,),
            packages=(POSTGRESQL_JDBC,),
        )
        return self._described(
            database,
            self._store_in(warehouse),
            kind="PostgreSQL catalog",
            endpoint=address,
            host=(host, port),
            warehouse=warehouse,
        )

    def _unreadable_uri(self) -> ConfigurationError:
        return ConfigurationError.refusing(
            "use",
            f"the SQL catalog {self.name!r}",
            expected="a `uri` of the form postgresql://user:password@host:5432/database, or mysql:// likewise",
            found="another one",
            hint="percent-encode special characters of the password, `@` as %40, `/` as %2F.",
        )

    @property
    def _warehouse_uri(self) -> str:
        return as_uri(self.warehouse)


def _without_account(query: str) -> str:
    return "&".join(item for item in query.split("&") if not item.startswith(("user=", "password=")))


def _jdbc(uri: str, warehouse: str) -> dict[str, str]:
    return {"type": "jdbc", "uri": uri, "warehouse": warehouse, "jdbc.schema-version": "V1"}


def describe_in(directory: Path, catalog: BaseCatalog) -> CatalogDescription:
    """Return the description of a catalog that is a SQLite file in that directory, its tables beside it."""
    sql = SqlCatalog(
        name=catalog.name,
        uri=f"sqlite:///{directory / 'catalog.db'}",
        warehouse=str(directory / "warehouse"),
        store=catalog.store,
        properties=catalog.properties,
    )
    return sql.describe()
