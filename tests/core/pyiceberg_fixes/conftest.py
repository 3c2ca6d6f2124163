"""A catalog that the tests of pyiceberg's defects share."""

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog


@pytest.fixture
def catalog(tmp_path: Path) -> Any:
    """An empty catalog with the namespace `db`."""
    catalog = load_catalog("lake", type="sql", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("db")
    return catalog
