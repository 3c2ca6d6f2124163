"""The credentials of an object store, for DuckDB. They are those with which pyiceberg reads the table."""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from dagster_iceberg_spark.plan.mirror import text_literal

S3_SCHEMES: Final = ("s3", "s3a", "s3n")


def s3_secret(properties: Mapping[str, Any]) -> str:
    """Return the statement that gives DuckDB the credentials of S3.

    Args:
        properties: The properties of pyiceberg's file IO. Without keys among them, DuckDB uses none.
    """
    given = {
        "KEY_ID": properties.get("s3.access-key-id"),
        "SECRET": properties.get("s3.secret-access-key"),
        "SESSION_TOKEN": properties.get("s3.session-token"),
        "REGION": properties.get("s3.region") or properties.get("client.region"),
    }
    endpoint = properties.get("s3.endpoint")
    if endpoint:
        parts = urlsplit(str(endpoint))
        is_virtual = str(properties.get("s3.force-virtual-addressing", "")).lower() == "true"
        given["ENDPOINT"] = parts.netloc
        given["URL_STYLE"] = "vhost" if is_virtual else "path"
        given["USE_SSL"] = "false" if parts.scheme == "http" else "true"
    settings = ", ".join(f"{name} {text_literal(str(value))}" for name, value in given.items() if value)
    return f"CREATE SECRET (TYPE s3{', ' if settings else ''}{settings})"
