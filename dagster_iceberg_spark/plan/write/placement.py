"""Where tables are placed, and what is created with them."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from string import Formatter
from typing import Final

from dagster_iceberg_spark.errors import ConfigurationError, NotAnIcebergTableError
from dagster_iceberg_spark.table.identifier import TableIdentifier

NAMESPACE: Final = "namespace"
TABLE: Final = "table"
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.-]")
_safe: Final = partial(_UNSAFE.sub, "_")
_IS_ABSOLUTE: Final = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:")
_DEFAULT: Final = "{namespace}/{table}"


@dataclass(frozen=True, slots=True)
class LocationTemplate:
    """A template for the directories of tables, such as `s3://lake/{namespace}/{table}`.

    A relative path is below the warehouse. The namespace, a slash and the table keep any two tables apart.
    """

    text: str

    def __post_init__(self) -> None:
        try:
            parts = list(Formatter().parse(self.text))
        except ValueError:
            parts = []
        fields = [(field, spec, conversion) for _, field, spec, conversion in parts if field is not None]
        if fields != [(NAMESPACE, "", None), (TABLE, "", None)] or "/" not in parts[1][0]:
            raise ConfigurationError.refusing(
                "place tables by",
                "`table_location`",
                expected=f"a template with `{{{NAMESPACE}}}`, a slash and `{{{TABLE}}}`, such as s3://lake/{_DEFAULT}",
                found=repr(self.text),
            )

    def location_of(self, identifier: TableIdentifier, warehouse: str | None) -> str:
        """Return the table's directory. The warehouse is None if only the catalog's server knows it."""
        path = self.text.format(namespace="/".join(map(_safe, identifier.namespace)), table=_safe_name(identifier))
        if _IS_ABSOLUTE.match(path):
            return path
        if warehouse is None:
            raise ConfigurationError.refusing(
                "place",
                str(identifier),
                expected="a `table_location` that begins with the scheme of its store, such as s3://lake/",
                found=f"{self.text!r}, which is relative to a warehouse that only the catalog's server knows",
            )
        return f"{warehouse.rstrip('/')}/{path}"


def default_location(identifier: TableIdentifier, warehouse: str | None) -> str | None:
    """Return a directory for a table whose name makes a path that some engines cannot read, or None for other tables.

    A slash in a name would nest one table in another. pyiceberg 0.12.0 cuts a path at `#` and `?`, as if it were a URI
    (not reported upstream as of 0.12.0).
    """
    if warehouse is None or not _UNSAFE.search("".join(identifier.parts)):
        return None
    return LocationTemplate(_DEFAULT).location_of(identifier, warehouse)


def _safe_name(identifier: TableIdentifier) -> str:
    """Return the table's name. If a part had to be changed, a digest of all parts keeps the name unique."""
    if not _UNSAFE.search("".join(identifier.parts)):
        return identifier.name
    digest = hashlib.sha256("\0".join(identifier.parts).encode()).hexdigest()[:12]
    return f"{_safe(identifier.name)}-{digest}"


@dataclass(frozen=True, slots=True)
class TableCreation:
    """How a table and its namespace are created. Without a template, the catalog chooses the location."""

    creates_table: bool = True
    creates_namespace: bool = True
    namespace_properties: Mapping[str, str] = field(default_factory=dict)
    location: LocationTemplate | None = None

    def __post_init__(self) -> None:
        """Reject properties that namespaces cannot share, or that Spark sets."""
        for key in ("location", "owner"):
            if key in self.namespace_properties:
                raise ConfigurationError.refusing(
                    "use",
                    "`namespace_properties`",
                    expected="properties that suit every namespace",
                    found=repr(key),
                    hint="place tables by `table_location`." if key == "location" else "Spark sets it to its user.",
                )


def missing_namespace(identifier: TableIdentifier) -> ConfigurationError:
    """Return the error for a table whose namespace does not exist and must not be created."""
    return ConfigurationError.refusing(
        "write",
        str(identifier),
        expected="a namespace that is there, as `auto_create_namespace` is false",
        found="none of that name",
        hint="create it, or let the IO manager do it.",
    )


def taken_name(identifier: TableIdentifier) -> NotAnIcebergTableError:
    """Return the error for a name that belongs to something other than a table."""
    return NotAnIcebergTableError.refusing(
        "write",
        str(identifier),
        expected="a free name, or an Iceberg table",
        found="something else of that name: a view, or a metadata table of a table called like the namespace",
        hint="choose another name with `iceberg/table`.",
    )


def missing_table(identifier: TableIdentifier, columns: str | None = None) -> ConfigurationError:
    """Return the error for a table that does not exist and must not be created."""
    how = "create it" if columns is None else f"create it with the columns {columns}"
    return ConfigurationError.refusing(
        "write",
        str(identifier),
        expected="a table that is there, as `auto_create_table` is false",
        found="none of that name",
        hint=f"{how}, or let the IO manager do it.",
    )
