"""Files that are staged for Spark."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from dagster_iceberg_spark import GlueCatalog, RestCatalog, SqlCatalog
from dagster_iceberg_spark.arrow.outputs import PREFIX, Store, local_store, warehouse_of
from dagster_iceberg_spark.errors import CatalogUnavailableError

SCHEMA = pa.schema({"id": pa.int64()})


def chunks(*sizes: int) -> Iterator[pa.Table]:
    for size in sizes:
        yield pa.table({"id": range(size)}, SCHEMA)


def test_each_chunk_is_a_row_group(tmp_path: Path) -> None:
    file = Store(tmp_path.as_uri(), {}).new_file()
    file.write(SCHEMA, chunks(3, 2))
    [path] = tmp_path.iterdir()
    assert path.as_uri() == file.uri
    assert path.name.startswith(PREFIX)
    metadata = parquet.read_metadata(path)
    assert [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)] == [3, 2]


def test_a_deleted_file_may_be_deleted_again(tmp_path: Path) -> None:
    file = Store(tmp_path.as_uri(), {}).new_file()
    file.write(SCHEMA, chunks(1))
    file.delete()
    file.delete()
    assert not list(tmp_path.iterdir())


def test_an_error_of_the_rows_is_raised_as_it_is(tmp_path: Path) -> None:
    def broken() -> Iterator[pa.Table]:
        yield from chunks(1)
        raise ConnectionError("the source is gone")

    file = Store(tmp_path.as_uri(), {}, SqlCatalog(uri="sqlite:////c.db", warehouse="/wh").describe()).new_file()
    with pytest.raises(ConnectionError, match=r"^the source is gone$"):
        file.write(SCHEMA, broken())


def test_a_warehouse_that_cannot_be_written_is_an_error_of_the_package(tmp_path: Path) -> None:
    (tmp_path / "wh").write_text("no directory")
    catalog = SqlCatalog(uri=f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "wh")).describe()
    store = warehouse_of(catalog)
    assert store is not None
    with pytest.raises(Exception, match="stage rows in the warehouse of") as caught:
        store.new_file().write(SCHEMA, chunks(1))
    assert isinstance(caught.value, CatalogUnavailableError)


def test_a_warehouse_is_a_store_where_the_catalog_names_its_uri(tmp_path: Path) -> None:
    store = warehouse_of(GlueCatalog(warehouse="s3://lake/warehouse", region="eu-west-1").describe())
    assert store is not None
    assert store.new_file().uri.startswith(f"s3://lake/warehouse/{PREFIX}")
    assert warehouse_of(RestCatalog(uri="http://catalog:8181", warehouse="lake").describe()) is None
    local = warehouse_of(SqlCatalog(uri="sqlite:////c.db", warehouse=str(tmp_path)).describe())
    assert local is not None
    assert local.location == tmp_path.as_uri()


def test_a_local_store_goes_with_its_files() -> None:
    with local_store() as store:
        file = store.new_file()
        file.write(SCHEMA, chunks(1))
        path = Path(file.uri.removeprefix("file://"))
        assert path.exists()
    assert not path.parent.exists()
