"""Files in which a nested field of a column has no field id."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import pyarrow as pyiceberg_arrow
from pyiceberg.table import Table

from dagster_iceberg_spark.pyiceberg_fixes import missing_field_ids

VARIANT = pa.struct([pa.field("metadata", pa.binary()), pa.field("value", pa.binary())])


@pytest.fixture
def table(catalog: SqlCatalog, tmp_path: Path) -> Table:
    """A table without a name mapping. Its file has a column that the table lacks, and nested fields without ids."""
    missing_field_ids.install()
    table = catalog.create_table("db.t", schema=pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": [1, 2]}))
    (file,) = (task.file.file_path.removeprefix("file://") for task in table.scan().plan_files())
    identified = pa.field("v", VARIANT, metadata={"PARQUET:field_id": "2"})
    whole = parquet.read_table(file).append_column(identified, pa.array([None, None], VARIANT))
    parquet.write_table(whole, file)
    return table


def test_the_other_columns_are_read(table: Table) -> None:
    assert table.scan().to_arrow().to_pydict() == {"id": [1, 2]}


def test_pyiceberg_still_refuses_the_file(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = pyiceberg_arrow.pyarrow_to_schema.__wrapped__  # type: ignore[attr-defined]
    monkeypatch.setattr(pyiceberg_arrow, "pyarrow_to_schema", plain)
    with pytest.raises(ValueError, match="Parquet file does not have field-ids"):
        table.scan().to_arrow()
