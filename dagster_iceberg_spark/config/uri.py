"""URIs as users write them, some with a password."""

import re
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, parse_qsl, urlsplit

from dagster_iceberg_spark.catalog.description import HIDDEN, holds_secret
from dagster_iceberg_spark.errors import ConfigurationError

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_USER_SECRET: Final = re.compile(r"(://[^:@]*):.*@")
_NO_PORT: Final = re.compile(r"(://[^:/?#@\[\]]*):(?!\d{0,5}(?:[/?#,]|$))[^@]*$")
"""If the user forgets the host, the password stands in the place of the port."""
_MISSPELT_LOGIN: Final = re.compile(r"^((?:[A-Za-z][A-Za-z0-9+.-]*:?/{1,3})?).*:.*@")
"""A login in a text that lacks the `://` of a URI."""
_QUERY_SECRET: Final = re.compile(r"((?:secret|password|passwd|pwd|token|credential)\w*=)[^&]*", re.IGNORECASE)


def scheme_of(uri: str) -> str:
    """Return the URI's scheme in lower case; empty for a path."""
    match = _SCHEME.match(uri)
    return match[1].lower() if match else ""


def parts_of(uri: str) -> SplitResult | None:
    """Return the URI's parts; None if its host or port cannot be read, as with a password not percent-encoded."""
    try:
        parts = urlsplit(uri)
        has_port = parts.port is None or parts.port >= 0
    except ValueError:
        return None
    return parts if has_port else None


def holds_login(uri: str) -> bool:
    """Return whether a text is a URI with a password in it."""
    if "://" not in uri:
        return False
    parts = parts_of(uri)
    if parts is None:
        return "@" in uri
    return parts.password is not None or any(holds_secret(name) for name, _ in parse_qsl(parts.query))


def without_password(uri: str) -> str:
    """Return the URI, well-formed or not, with a placeholder for everything that may be a password."""
    hidden = _NO_PORT.sub(rf"\1:{HIDDEN}", _USER_SECRET.sub(rf"\1:{HIDDEN}@", uri))
    if "://" not in hidden:
        hidden = _MISSPELT_LOGIN.sub(rf"\1{HIDDEN}@", hidden)
    return _QUERY_SECRET.sub(rf"\1{HIDDEN}", hidden)


def host_of(uri: str) -> tuple[str, int]:
    """Return the host and port of an HTTP URI."""
    parts = parts_of(uri)
    if parts is None:
        found = repr(without_password(uri))
        raise ConfigurationError.refusing("reach", "the service", expected="a URI with host and port", found=found)
    return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


def as_uri(warehouse: str) -> str:
    """Return the warehouse as a URI: a path becomes an absolute `file://` URI."""
    return warehouse if scheme_of(warehouse) else f"file://{Path(warehouse).absolute()}"
