"""Finding the newest metadata file of a table in a directory."""

import gzip
import json
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from dagster_iceberg_spark import HadoopCatalog
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.look import look, open_catalog
from dagster_iceberg_spark.catalog.tables import tables_of
from dagster_iceberg_spark.errors import ConfigurationError, InvestigationError
from dagster_iceberg_spark.table.identifier import TableIdentifier

T = TableIdentifier(("a", "b"), "t")


@pytest.fixture
def metadata(tmp_path: Path) -> Path:
    """The empty metadata directory of the table `a.b.t`."""
    directory = tmp_path / "wh" / "a" / "b" / "t" / "metadata"
    directory.mkdir(parents=True)
    return directory


@pytest.fixture
def description(metadata: Path) -> CatalogDescription:
    return HadoopCatalog(warehouse=str(metadata.parents[3])).describe()


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("other")
    catalog = SqlCatalog("x", uri=f"sqlite:///{directory}/c.db", warehouse=f"file://{directory}")
    catalog.create_namespace("db")
    schema = Schema(NestedField(1, "id", LongType(), required=False))
    return Path(catalog.create_table("db.t", schema).metadata_location.removeprefix("file://")).read_text()


def put(metadata: Path, document: str, version: int, *, spelling: str = "v{}.metadata.json") -> None:
    content = json.dumps({**json.loads(document), "properties": {"version": str(version)}}).encode()
    path = metadata / spelling.format(version)
    path.write_bytes(gzip.compress(content) if "gz" in spelling else content)


def version_of(description: CatalogDescription) -> str:
    table = look(description, T)
    assert table is not None
    return table.properties["version"]


def test_the_search_starts_at_the_version_hint(description: CatalogDescription, metadata: Path, document: str) -> None:
    for version in (3, 4):
        put(metadata, document, version)
    (metadata / "version-hint.text").write_text("4")
    assert version_of(description) == "4"


def test_versions_after_an_outdated_hint_are_found(
    description: CatalogDescription, metadata: Path, document: str
) -> None:
    for version in (1, 2, 3):
        put(metadata, document, version)
    (metadata / "version-hint.text").write_text("1")
    assert version_of(description) == "3"


@pytest.mark.parametrize("hint", [None, "", "latest"])
def test_without_a_hint_the_directory_is_listed(
    description: CatalogDescription, metadata: Path, document: str, hint: str | None
) -> None:
    """Old versions may have been deleted, so the first one may be missing."""
    for version in (9, 10):
        put(metadata, document, version)
    if hint is not None:
        (metadata / "version-hint.text").write_text(hint)
    assert version_of(description) == "10"


def test_metadata_may_be_compressed(description: CatalogDescription, metadata: Path, document: str) -> None:
    put(metadata, document, 1)
    put(metadata, document, 2, spelling="v{}.gz.metadata.json")
    assert version_of(description) == "2"


def test_a_directory_without_metadata_is_not_a_table(description: CatalogDescription, metadata: Path) -> None:
    assert look(description, T) is None
    assert not open_catalog(description).table_exists(T.parts)
    with pytest.raises(NoSuchTableError, match=r"a\.b\.t"):
        open_catalog(description).load_table(T.parts)


def test_a_hint_to_a_missing_file_is_not_a_missing_table(description: CatalogDescription, metadata: Path) -> None:
    (metadata / "version-hint.text").write_text("7")
    with pytest.raises(InvestigationError, match=r"v7\.metadata\.json"):
        look(description, T)


@pytest.mark.parametrize("warehouse", ["s3://lake/wh", "gs://lake/wh", "abfss://c@a/x"])
def test_an_object_store_is_refused(warehouse: str) -> None:
    with pytest.raises(ConfigurationError, match="which rename atomically"):
        HadoopCatalog(warehouse=warehouse).describe()


def test_all_tables_of_the_warehouse_are_listed(
    description: CatalogDescription, metadata: Path, document: str, tmp_path: Path
) -> None:
    put(metadata, document, 1)
    warehouse = metadata.parents[3]
    other = warehouse / "deep" / "er" / "t" / "metadata"
    other.mkdir(parents=True)
    (warehouse / "empty").mkdir()
    (warehouse / "a file").write_text("")
    assert [table.parts for table in tables_of(description)] == [("a", "b", "t"), ("deep", "er", "t")]
