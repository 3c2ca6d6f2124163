"""Two processes that open a new SQL catalog at once both create its tables, and one of them fails.

pyiceberg 0.12.0 looks for the tables and creates those that are missing. Where another process creates one in between,
it raises the database's error. It should use the table that is there, as Iceberg's JDBC catalog does since
https://github.com/apache/iceberg/pull/13345. Not reported for pyiceberg as of 0.12.0.
"""

from contextlib import suppress
from typing import Any, Final

from pyiceberg.catalog import Catalog
from pyiceberg.catalog import load_catalog as pyiceberg_load_catalog
from sqlalchemy.exc import SQLAlchemyError

_TABLES: Final = 2
"""How many tables a SQL catalog has, each of which another process may create first."""


def load_catalog(name: str, **properties: Any) -> Catalog:
    """Open a catalog; where that fails, open it again, once for each table that another process may have created."""
    for _ in range(_TABLES):
        with suppress(SQLAlchemyError):
            return pyiceberg_load_catalog(name, **properties)
    return pyiceberg_load_catalog(name, **properties)
