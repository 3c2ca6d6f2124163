"""Databricks, whose sessions the package cannot write with."""

import re
from typing import Final

from dagster_iceberg_spark.errors import ConfigurationError

_WORKSPACE: Final = re.compile(
    r"sc://(?:[^/;?#]*@)?([^/;?#@:]*\.(?:databricks\.com|azuredatabricks\.net|databricks\.azure\.\w+))(?=[:/;?#]|$)",
    re.IGNORECASE,
)


def require_not_databricks(remote: object) -> None:
    """Reject an address of Databricks, and `DatabricksSession`, its builder and its methods.

    A session there takes no further catalog, and Databricks' own Iceberg writer takes no snapshot properties, such as
    the lineage and the commit token.

    Raises:
        ConfigurationError: The value leads to Databricks.
    """
    address = _WORKSPACE.match(remote) if isinstance(remote, str) else None
    is_theirs = str(getattr(remote, "__module__", "")).startswith("databricks.")
    if address is None and not is_theirs:
        return
    raise ConfigurationError.refusing(
        "use",
        "a Spark session of Databricks",
        expected="a Spark that loads the package's catalog and writes snapshot properties",
        found="`DatabricksSession`" if address is None else f"the workspace {address[1]}",
        hint="write to Unity Catalog from another Spark, with `RestCatalog`.",
    )
