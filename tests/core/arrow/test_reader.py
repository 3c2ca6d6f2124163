"""Loads without a JVM: what the catalog's timeout covers, missing tables and damaged files."""

import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import DataScan

from dagster_iceberg_spark.arrow.reader import INPUT_TYPES, input_type_of, no_rows, read
from dagster_iceberg_spark.catalog import look as look_module
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.look import look, open_catalog
from dagster_iceberg_spark.config.sql_catalog import SqlCatalog
from dagster_iceberg_spark.errors import ConfigurationError, InvestigationError, UpstreamMissingError
from dagster_iceberg_spark.plan.read.incremental import Changes
from dagster_iceberg_spark.plan.read.read_options import ReadOptions
from dagster_iceberg_spark.plan.read.read_plan import ReadPlan, plan_read
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.scope import PartitionScope

NUMBERS = TableIdentifier(("db",), "numbers")
ARROW = INPUT_TYPES[0]


@pytest.fixture
def remote_catalog(tmp_path: Path) -> Iterator[CatalogDescription]:
    """A catalog with a host, as on a server."""
    local = SqlCatalog(uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "wh")).describe()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        description = replace(local, host=listener.getsockname())
        catalog = open_catalog(description)
        catalog.create_namespace("db")
        rows = pa.table({"n": [1, 2, 3]})
        catalog.create_table(NUMBERS.parts, rows.schema).append(rows)
        yield description


def plan_of(description: CatalogDescription) -> ReadPlan:
    state = look(description, NUMBERS)
    assert state is not None
    return plan_read(state, PartitionScope(), ReadOptions())


def test_reading_rows_may_take_longer_than_the_catalog_s_timeout(
    remote_catalog: CatalogDescription, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(remote_catalog)
    monkeypatch.setattr(look_module, "ANSWER_TIMEOUT_SECONDS", 0.5)
    to_arrow = DataScan.to_arrow

    def slow(self: DataScan) -> pa.Table:
        time.sleep(1.0)
        return to_arrow(self)

    monkeypatch.setattr(DataScan, "to_arrow", slow)
    assert read(remote_catalog, {"": plan}, ARROW, no_spark)[""].column("n").to_pylist() == [1, 2, 3]


def no_spark(_: Any) -> Any:
    pytest.fail("only a changelog is read by Spark")


ROWS, TABLE = "a type of rows", "pyiceberg.table.Table"


@pytest.mark.parametrize(
    ("path", "changes", "asked", "parts", "message"),
    [
        (TABLE, True, {}, 1, f"{ROWS}, for what is new, found {TABLE}"),
        ("pyiceberg.table.DataScan", True, {}, 1, f"{ROWS}, for what is new, found pyiceberg.table.DataScan"),
        (TABLE, False, {"limit": 1}, 1, f"no `columns`, row filter or limit for an input of type {TABLE}, found one"),
        (TABLE, False, {"columns": ("n",)}, 1, f"no `columns`, row filter or limit for an input of type {TABLE}"),
        (TABLE, False, {}, 2, f"{ROWS} for an input of each partition by its key, found {TABLE}, which is the whole"),
    ],
)
def test_a_type_that_cannot_be_what_is_asked_for_is_refused(
    remote_catalog: CatalogDescription, path: str, changes: bool, asked: Any, parts: int, message: str
) -> None:
    state = look(remote_catalog, NUMBERS)
    assert state is not None
    plan = plan_read(state, PartitionScope(), ReadOptions(**asked))
    plan = replace(plan, changes=Changes("changes", None) if changes else None)
    (known,) = [known for known in INPUT_TYPES if known.path == path]
    with pytest.raises(ConfigurationError) as caught:
        read(remote_catalog, {str(number): plan for number in range(parts)}, known, no_spark)
    assert f"Cannot load db.numbers: expected {message}" in str(caught.value)


def test_a_table_dropped_after_the_plan_is_missing(remote_catalog: CatalogDescription) -> None:
    plan = plan_of(remote_catalog)
    open_catalog(remote_catalog).drop_table(NUMBERS.parts)
    with pytest.raises(UpstreamMissingError, match=r"Cannot read db\.numbers: expected the table .* found none"):
        read(remote_catalog, {"": plan}, ARROW, no_spark)


@pytest.mark.parametrize("known", [known for known in INPUT_TYPES if not known.needs_columns], ids=lambda it: it.path)
def test_no_rows_are_an_empty_object_of_each_type(known: Any) -> None:
    nothing = no_rows(known, subject="db.numbers")
    assert input_type_of(type(nothing)) is known


@pytest.mark.parametrize("known", INPUT_TYPES[:2], ids=lambda it: it.path)
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"found Parquet file size is 0 bytes\. Hint: materialize the partition of the file's rows again"),
        (
            b"text" * 100,
            r"found Parquet magic bytes not found.* Hint: materialize the partition of the file's rows again",
        ),
        (None, r"every file that the table's metadata names, found .* Hint: if its snapshot has expired"),
    ],
)
def test_a_damaged_file_is_named_in_the_error(
    remote_catalog: CatalogDescription, known: Any, content: bytes | None, message: str
) -> None:
    plan = plan_of(remote_catalog)
    (task,) = open_catalog(remote_catalog).load_table(NUMBERS.parts).scan().plan_files()
    file = Path(task.file.file_path.removeprefix("file://"))
    file.unlink() if content is None else file.write_bytes(content)
    with pytest.raises(InvestigationError, match=message) as caught:
        list(read(remote_catalog, {"": plan}, known, no_spark)[""])
    assert file.name in str(caught.value)
    assert "<Buffer>" not in str(caught.value)
