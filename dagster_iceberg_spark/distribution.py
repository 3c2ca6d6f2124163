"""The version of the installed package. It is separate from versions.py, which is read before the installation."""

from importlib.metadata import version
from typing import Final

PACKAGE_VERSION: Final = version("dagster-iceberg-spark")
