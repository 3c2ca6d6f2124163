"""The package as it is installed; versions.py is read before that."""

from importlib.metadata import version
from typing import Final

PACKAGE_VERSION: Final = version("dagster-iceberg-spark")
