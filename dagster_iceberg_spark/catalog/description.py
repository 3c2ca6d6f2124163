"""A catalog described once, for Spark and for pyiceberg."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, quote_plus

HIDDEN: Final = "********"
SENSITIVE_NAMES: Final = (
    "(?i)secret|password|token|credential|authorization|cookie|connection[.-]?string"
    "|(access|account|api|private)[.-]?key"
)
"""What the names of properties that hold secrets contain: Spark's own default, and what Iceberg calls them."""

_MINIMUM_SECRET_LENGTH: Final = 3


@dataclass(frozen=True, slots=True)
class CatalogDescription:
    """What both engines need to open one catalog.

    Args:
        name: The catalog's name in Spark, and the key of its rows in a SQL catalog.
        kind: What it is, for messages: "SQL catalog", "REST catalog".
        endpoint: Where it is, without secrets, for messages.
        spark_properties: Properties below `spark.sql.catalog.<name>`, without secrets.
        spark_secrets: Properties likewise that hold secrets; they never reach a command line.
        pyiceberg_properties: Properties for pyiceberg's `load_catalog`, secrets included.
        packages: Maven coordinates that Spark needs for this catalog, besides Iceberg's runtime.
        host: Host and port that must accept a connection; None for a local catalog.
        warehouse: URI under which new tables are placed; None where the catalog's server decides.
        secrets: Texts that no message may show.
    """

    name: str
    kind: str
    endpoint: str
    spark_properties: Mapping[str, str]
    spark_secrets: Mapping[str, str] = field(repr=False, default_factory=dict)
    pyiceberg_properties: Mapping[str, str] = field(repr=False, default_factory=dict)
    packages: tuple[str, ...] = ()
    host: tuple[str, int] | None = None
    warehouse: str | None = None
    secrets: tuple[str, ...] = field(repr=False, default=())

    @property
    def identity(self) -> tuple[object, ...]:
        """What makes two descriptions the same one."""
        return (
            self.name,
            tuple(sorted(self.spark_properties.items())),
            tuple(sorted(self.spark_secrets.items())),
            tuple(sorted(self.pyiceberg_properties.items())),
        )

    def __str__(self) -> str:
        """Return the catalog's kind and place."""
        return f"{self.kind} {self.name!r} at {self.endpoint}"

    def redact(self, text: str) -> str:
        """Return the text without the catalog's secrets."""
        spellings = {spell(secret) for secret in self.secrets for spell in (str, _quoted, quote_plus)}
        for secret in sorted(spellings, key=len, reverse=True):
            if len(secret) >= _MINIMUM_SECRET_LENGTH:
                text = text.replace(secret, HIDDEN)
        return text


def holds_secret(name: str) -> bool:
    """Say whether a property of that name holds a secret."""
    return re.search(SENSITIVE_NAMES, name) is not None


def _quoted(secret: str) -> str:
    return quote(secret, safe="")
