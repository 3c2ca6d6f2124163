"""The location of the embedded catalog."""

from pathlib import Path

import pytest

from dagster_iceberg_spark.config.sql_catalog import EmbeddedCatalog
from dagster_iceberg_spark.errors import ConfigurationError


def test_the_embedded_catalog_is_in_the_storage_directory(tmp_path: Path) -> None:
    description = EmbeddedCatalog().of_instance(str(tmp_path)).describe()
    assert description.endpoint == f"{tmp_path}/iceberg/catalog.db"
    assert description.warehouse == f"file://{tmp_path}/iceberg/warehouse"
    assert (tmp_path / "iceberg").is_dir()


def test_the_embedded_catalog_may_be_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    description = (
        EmbeddedCatalog(name="mine", directory="here", properties={"a": "b"}).of_instance("/nowhere").describe()
    )
    assert (description.name, description.endpoint) == ("mine", f"{tmp_path}/here/catalog.db")
    assert description.spark_properties["a"] == "b"


def test_the_embedded_catalog_needs_an_instance_or_a_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    with pytest.raises(ConfigurationError, match="set DAGSTER_HOME"):
        EmbeddedCatalog().describe()
