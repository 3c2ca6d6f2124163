"""Derives pyiceberg's properties of a catalog that only a Spark session describes."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import SplitResult, parse_qsl, quote, unquote, unquote_plus, urlencode, urlsplit

from dagster_iceberg_spark.catalog.description import (
    HADOOP_CATALOG,
    HDFS_FILE_IO,
    HDFS_SCHEMES,
    HIVE_CATALOG,
    METASTORE_PORT,
    AwsIdentity,
    CatalogDescription,
    holds_secret,
)
from dagster_iceberg_spark.errors import ConfigurationError

_IMPLEMENTATIONS: Final = {
    "org.apache.iceberg.rest.RESTCatalog": "rest",
    "org.apache.iceberg.jdbc.JdbcCatalog": "jdbc",
    "org.apache.iceberg.hive.HiveCatalog": "hive",
    "org.apache.iceberg.aws.glue.GlueCatalog": "glue",
    "org.apache.iceberg.hadoop.HadoopCatalog": "hadoop",
}
"""The classes that `catalog-impl` may name in place of `type` (Iceberg documentation, "Catalogs")."""
_PORTS: Final = {"http": 80, "https": 443, "thrift": METASTORE_PORT, "postgresql": 5432}
_SQLITE: Final = re.compile(r"jdbc:sqlite:(?:file:)?(?P<path>[^?]+)(?:\?.*)?")
_SHARED_QUERY: Final = ("sslmode", "sslrootcert", "options")
"""Parameters of a PostgreSQL URI that have the same name in both clients."""
_DELEGATION: Final = "header.X-Iceberg-Access-Delegation"
_METASTORES: Final = ("spark.hadoop.hive.metastore.uris", "hive.metastore.uris")
_SPARK_ALONE: Final = ("type", "catalog-impl", "uri", "warehouse", "cache-enabled", "jdbc.user", "jdbc.password")


def resolve(description: CatalogDescription, session_conf: Mapping[str, str]) -> CatalogDescription:
    """Return the catalog as pyiceberg needs it, from the session's configuration.

    The description has the catalog's name, and properties for pyiceberg only, which override the session's.
    """
    prefix = f"spark.sql.catalog.{description.name}"
    if prefix not in session_conf:
        known = sorted({key.split(".")[3] for key in session_conf if re.fullmatch(r"spark\.sql\.catalog\.[^.]+", key)})
        raise ConfigurationError.refusing(
            "use",
            f"the Spark session's catalog {description.name!r}",
            expected=f"`{prefix}` in the session's configuration",
            found=f"the catalogs {', '.join(known)}" if known else "no catalog of Iceberg",
            hint="name one that is there, or describe the catalog, as with `RestCatalog`.",
        )
    below = f"{prefix}."
    conf = {key.removeprefix(below): value for key, value in session_conf.items() if key.startswith(below)}
    if _kind(conf) == "hive" and "uri" not in conf:
        conf.update([("uri", session_conf[key]) for key in _METASTORES if key in session_conf])
    given = description.pyiceberg_properties
    properties = {**_properties_of_pyiceberg(conf, description), **given}
    hidden = (value for key, value in {**conf, **given}.items() if holds_secret(key))
    addresses = str(properties.get("uri", ""))
    # A metastore may have several addresses. In other URIs, a comma is a part of the address.
    uri, *others = map(urlsplit, addresses.split(",") if _kind(conf) == "hive" else [addresses])
    is_s3 = conf.get("io-impl", "").endswith(".S3FileIO") or conf.get("warehouse", "").startswith("s3")
    has_keys = "s3.access-key-id" in properties or properties.get(_DELEGATION) is not None
    return replace(
        description,
        endpoint=_endpoint(conf),
        spark_properties={"type": _kind(conf), **_shown(conf)},
        pyiceberg_properties=properties,
        host=_host(uri),
        other_hosts=tuple(host for other in others if (host := _host(other)) is not None),
        warehouse=conf.get("warehouse"),
        secrets=tuple(secret for secret in (*description.secrets, *hidden, *_passwords(conf, uri)) if secret),
        aws=AwsIdentity() if is_s3 and not has_keys else None,
    )


def _host(uri: SplitResult) -> tuple[str, int] | None:
    return (uri.hostname, uri.port or _PORTS.get(uri.scheme.split("+")[0], 80)) if uri.hostname else None


def _properties_of_pyiceberg(conf: Mapping[str, str], description: CatalogDescription) -> dict[str, Any]:
    kind = _kind(conf)
    if kind not in _IMPLEMENTATIONS.values():
        if "type" in description.pyiceberg_properties or "py-catalog-impl" in description.pyiceberg_properties:
            return {}
        raise ConfigurationError.refusing(
            "use",
            f"the Spark session's catalog {description.name!r}",
            expected=f"a catalog of type {', '.join(_IMPLEMENTATIONS.values())}, which pyiceberg can open too",
            found=repr(kind),
            hint="say in `properties` how pyiceberg opens it, `type` or `py-catalog-impl` and what these need.",
        )
    # Iceberg's properties have the same names in pyiceberg, except those of its own.
    shared = {key: value for key, value in conf.items() if key not in _SPARK_ALONE and not key.endswith("io-impl")}
    warehouse = {"warehouse": conf["warehouse"]} if "warehouse" in conf else {}
    if urlsplit(conf.get("warehouse", "")).scheme in HDFS_SCHEMES:
        warehouse["py-io-impl"] = HDFS_FILE_IO
    silent = {} if kind != "rest" else {_DELEGATION: None}
    return {**silent, **shared, **warehouse, **_implementation(kind, conf, description)}


def _kind(conf: Mapping[str, str]) -> str:
    implementation = conf.get("catalog-impl")
    if implementation is None:
        return conf.get("type", "hive")  # Iceberg's default
    return _IMPLEMENTATIONS.get(implementation, implementation)


def _implementation(kind: str, conf: Mapping[str, str], description: CatalogDescription) -> dict[str, Any]:
    match kind:
        case "rest":
            return {"type": "rest", "uri": conf.get("uri", "")}
        case "jdbc":
            return _jdbc(conf, description)
        case "hive":
            return _hive(conf, description)
        case "hadoop":
            return {"py-catalog-impl": HADOOP_CATALOG}
    return {"type": kind}


def _hive(conf: Mapping[str, str], description: CatalogDescription) -> dict[str, Any]:
    if "uri" not in conf and "uri" not in description.pyiceberg_properties:
        raise ConfigurationError.refusing(
            "use",
            f"the Spark session's catalog {description.name!r}",
            expected="the metastore's `uri` in the session's configuration",
            found="none: it may stand in a file of the cluster's, which is not read here",
            hint='say it in `properties`: {"uri": "thrift://host:9083"}.',
        )
    return {"py-catalog-impl": HIVE_CATALOG, "uri": conf.get("uri"), "hive.hive2-compatible": "true"}


def _jdbc(conf: Mapping[str, str], description: CatalogDescription) -> dict[str, Any]:
    uri = conf.get("uri", "")
    sqlite = _SQLITE.fullmatch(uri)
    if sqlite:
        return {"type": "sql", "uri": f"sqlite:///{sqlite['path']}?timeout=60"}
    parts = urlsplit(uri.removeprefix("jdbc:"))
    if parts.scheme != "postgresql":
        raise ConfigurationError.refusing(
            "use",
            f"the Spark session's catalog {description.name!r}",
            expected="a `uri` of jdbc:sqlite or jdbc:postgresql",
            found=f"one of {parts.scheme or 'no scheme'}",
            hint="say in `properties` how pyiceberg opens it: `type` and a `uri` of SQLAlchemy.",
        )
    query = dict(parse_qsl(parts.query))
    user = conf.get("jdbc.user", query.get("user", ""))
    password = conf.get("jdbc.password", query.get("password", ""))
    account = ":".join(quote(item, safe="") for item in (user, password) if item)
    known = urlencode([(key, query[key]) for key in _SHARED_QUERY if key in query])
    address = f"{account}{'@' if account else ''}{parts.netloc}{parts.path}{'?' if known else ''}{known}"
    return {"type": "sql", "uri": f"postgresql+psycopg2://{address}", "pool_pre_ping": "true"}


def _endpoint(conf: Mapping[str, str]) -> str:
    if _kind(conf) == "hive" and "uri" in conf:
        return conf["uri"]
    parts = urlsplit(conf.get("uri", "").removeprefix("jdbc:"))
    place = f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname
    return place or conf.get("warehouse", "its own place").split("?")[0]


def _shown(conf: Mapping[str, str]) -> dict[str, str]:
    """Return the properties without secrets, which the query of a JDBC URI may contain."""
    known = {key: value for key, value in conf.items() if not holds_secret(key)}
    return {**known, "uri": known["uri"].split("?")[0]} if "uri" in known else known


def _passwords(conf: Mapping[str, str], uri: SplitResult) -> tuple[str, ...]:
    """Return the passwords in the URIs, encoded and decoded."""
    query = urlsplit(conf.get("uri", "").removeprefix("jdbc:")).query
    written = [pair.partition("=")[2] for pair in query.split("&") if holds_secret(pair.partition("=")[0])]
    found = [*written, *([uri.password] if uri.password else [])]
    return tuple(spelling for password in found for spelling in (password, unquote(password), unquote_plus(password)))
