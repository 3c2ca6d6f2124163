"""Audits by the metadata of tables that pyiceberg writes."""

import datetime as dt
from collections.abc import Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog as PyIcebergSqlCatalog
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType

from dagster_iceberg_spark import SqlCatalog
from dagster_iceberg_spark.catalog.audits import AuditedRows, audited_rows, results_by_metadata
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.look import look, open_catalog
from dagster_iceberg_spark.errors import CommitConflictError
from dagster_iceberg_spark.plan.options.output_options import WriteOptions, parse_write_options
from dagster_iceberg_spark.plan.partitions.binding import EVERYTHING
from dagster_iceberg_spark.table.audit import Audit, Condition, NotNull, Unique
from dagster_iceberg_spark.table.scope import PartitionScope
from tests.core.table.samples import TABLE, keyed, schema

REPLACE = {"dagster.write_disposition": "replace"}
COLUMNS = pa.schema([("carrier", pa.string()), ("v", pa.int64()), ("d", pa.float64()), ("p", pa.decimal128(9, 2))])


@pytest.fixture
def catalog(tmp_path: Path) -> CatalogDescription:
    (tmp_path / "wh").mkdir()
    description = SqlCatalog(uri=f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "wh")).describe()
    open_catalog(description).create_namespace(TABLE.namespace)
    return description


def created(catalog: CatalogDescription, columns: pa.Schema = COLUMNS, *, partitioned: bool = False) -> Table:
    opened = open_catalog(catalog)
    assert isinstance(opened, PyIcebergSqlCatalog)
    table = opened.create_table((*TABLE.namespace, TABLE.name), columns)
    if partitioned:
        with table.update_spec() as update:
            update.add_field("carrier", IdentityTransform())
    return table


def rows(carrier: str | None, *values: int | None) -> pa.Table:
    columns = {
        "carrier": [carrier] * len(values),
        "v": values,
        "d": [None if value is None else float(value) for value in values],
        "p": [None if value is None else Decimal(value) for value in values],
    }
    return pa.table(columns, COLUMNS)


def options(renames: Mapping[str, str] | None = None) -> WriteOptions:
    return parse_write_options({"iceberg/renames": renames}, subject="flights")


def audited(
    catalog: CatalogDescription,
    scope: PartitionScope | None = None,
    renames: Mapping[str, str] | None = None,
    snapshot_id: int | None = None,
) -> AuditedRows:
    """Return the rows of the newest snapshot, or of another."""
    state = look(catalog, TABLE)
    assert state is not None
    snapshot = state.head() if snapshot_id is None else state.snapshots[snapshot_id]
    assert snapshot is not None
    return audited_rows(state, snapshot, schema(), options(renames), samples=0, scope=scope)


def results(catalog: CatalogDescription, conditions: Iterable[str], found: AuditedRows) -> dict[str, bool]:
    """Return what the metadata tells of the conditions."""
    audits = [Audit(condition, Condition(condition)) for condition in conditions]
    return {name: result.passed for name, result in results_by_metadata(catalog, audits, found).items()}


def test_counts_of_a_snapshot_are_known(catalog: CatalogDescription) -> None:
    table = created(catalog)
    table.append(rows("AA", 1, None))
    table.append(rows("UA", 3, 4))
    conditions = {"count(*) = 4": True, "count(v) = 4": False, "count(d) = 3": True, "carrier is not null": True}
    assert results(catalog, conditions, audited(catalog)) == conditions
    audits = [
        Audit("filled", NotNull(("carrier",))),
        Audit("not filled", NotNull(("v",))),
        Audit("key", Unique(("v",))),
    ]
    found = results_by_metadata(catalog, audits, audited(catalog))
    assert {name: result.found for name, result in found.items()} == {"filled": {"NULL in carrier": 0}}


def test_an_older_snapshot_has_its_own_rows(catalog: CatalogDescription) -> None:
    table = created(catalog)
    table.append(rows("AA", 1))
    first = table.metadata.current_snapshot_id
    table.append(rows("AA", 2))
    assert results(catalog, ["count(*) = 1"], audited(catalog, snapshot_id=first)) == {"count(*) = 1": True}


def test_bounds_are_values_only_in_files_of_the_run(catalog: CatalogDescription) -> None:
    """Other writers may have recorded wider ones. Within wider bounds, each row meets a condition all the same."""
    table = created(catalog)
    table.append(rows("AA", 1, None, 3), snapshot_properties=REPLACE)
    conditions = ["min(v) >= 1 and max(v) <= 3", "v > 0", "max(p) = 3", "min(d) > 0", "count(*) = 3"]
    known = [name for name in conditions if name != "min(d) > 0"]  # pyiceberg does not count NaN
    assert results(catalog, conditions, audited(catalog, PartitionScope())) == dict.fromkeys(known, True)
    assert results(catalog, conditions, audited(catalog)) == {"v > 0": True, "count(*) = 3": True}


@pytest.mark.parametrize(
    "properties", [{}, {"dagster.write_disposition": "append"}, {**REPLACE, "dagster_iceberg_spark.carries_over": "1"}]
)
def test_only_a_replace_adds_exactly_the_rows_of_the_run(
    catalog: CatalogDescription, properties: dict[str, str]
) -> None:
    table = created(catalog, partitioned=True)
    table.append(rows("AA", 1))
    table.append(rows("AA", 2), snapshot_properties=properties)
    found = audited(catalog, keyed("AA"))
    assert not found.are_added
    assert results(catalog, ["count(*) = 2", "min(v) = 1"], found) == {"count(*) = 2": True}


def test_a_replace_has_the_rows_of_its_own_files(catalog: CatalogDescription) -> None:
    table = created(catalog, partitioned=True)
    table.append(rows("UA", 1))
    table.append(rows("AA", 2), snapshot_properties=REPLACE)
    table.append(rows("AA", 5, 6), snapshot_properties=REPLACE)
    found = audited(catalog, keyed("AA"))
    assert found.are_added
    assert results(catalog, ["count(*) = 2 and min(v) = 5"], found) == {"count(*) = 2 and min(v) = 5": True}


def test_a_replace_without_rows_has_no_files(catalog: CatalogDescription) -> None:
    table = created(catalog)
    table.append(rows("AA", 2))
    table.delete("carrier = 'AA'", snapshot_properties=REPLACE)
    conditions = {"count(*) > 0": False, "min(v) > 0": True, "v > 0": True, "min(v) is null": True}
    assert results(catalog, conditions, audited(catalog, keyed("AA"))) == conditions


@pytest.mark.parametrize(
    ("keys", "expected"),
    [(["AA"], {"count(*) = 2": True}), (["AA", "UA"], {"count(*) = 2": False}), (["DL"], {"count(*) = 2": False})],
)
def test_the_files_of_the_partitions_hold_the_rows(
    catalog: CatalogDescription, keys: list[str], expected: dict[str, bool]
) -> None:
    table = created(catalog, partitioned=True)
    table.append(pa.concat_tables([rows("AA", 1, 2), rows("UA", 3), rows(None, 4)]))
    assert results(catalog, expected, audited(catalog, keyed(*keys))) == expected


@pytest.mark.parametrize("other", ["UA", None])
def test_a_file_that_holds_other_rows_too_needs_a_scan(catalog: CatalogDescription, other: str | None) -> None:
    created(catalog).append(pa.concat_tables([rows("AA", 1, 2), rows(other, 3)]))
    assert results(catalog, ["count(*) = 2"], audited(catalog, keyed("AA"))) == {}
    assert results(catalog, ["count(*) = 3"], audited(catalog)) == {"count(*) = 3": True}


@pytest.mark.parametrize("count", ["1", None])
def test_deleted_rows_need_a_scan_unless_the_files_are_new(catalog: CatalogDescription, count: str | None) -> None:
    created(catalog).append(rows("AA", 1), snapshot_properties=REPLACE)
    whole, added = audited(catalog), audited(catalog, PartitionScope())
    for found, expected in ((whole, {}), (added, {"count(*) = 1": True})):
        summary = {**found.snapshot.summary, "total-delete-files": count}
        kept: dict[str, Any] = {key: value for key, value in summary.items() if value is not None}
        changed = audited_rows(
            found.state,
            type(found.snapshot)(found.snapshot.snapshot_id, None, 0, "append", kept),
            schema(),
            options(),
            samples=0,
            scope=PartitionScope() if found.are_added else None,
        )
        assert results(catalog, ["count(*) = 1"], changed) == expected


def test_a_pending_rename_is_known_by_its_new_name(catalog: CatalogDescription) -> None:
    created(catalog, partitioned=True).append(rows("AA", 1), snapshot_properties=REPLACE)
    found = audited(catalog, keyed("AA", column="airline"), {"v": "value", "carrier": "airline"})
    assert found.columns.names == ("airline", "value", "d", "p")
    assert dict(found.stored) == {"value": "v", "airline": "carrier"}
    assert found.scope.columns == ("carrier",)
    conditions = ["min(value) = 1", "count(airline) = 1", "min(v) = 1"]
    assert results(catalog, conditions, found) == dict.fromkeys(conditions[:2], True)


def test_the_whole_table_has_no_constraints(catalog: CatalogDescription) -> None:
    created(catalog).append(rows("AA", 1))
    found = audited(catalog)
    assert (found.scope, found.stored, found.are_added) == (EVERYTHING, {}, False)
    assert found.columns.names == ("carrier", "v", "d", "p")


def test_a_column_that_is_newer_than_the_files_needs_a_scan(catalog: CatalogDescription) -> None:
    table = created(catalog)
    table.append(rows("AA", 1), snapshot_properties=REPLACE)
    with table.update_schema() as update:
        update.add_column("new", LongType())
    conditions = ["count(new) = 0", "min(new) is null", "new is not null", "min(v) = 1"]
    assert results(catalog, conditions, audited(catalog, PartitionScope())) == {"min(v) = 1": True}


@pytest.mark.parametrize(
    ("values", "condition"),
    [
        ([dt.date(2024, 1, 1), dt.date(1969, 12, 31)], "min(x) = '1969-12-31' and max(x) = date '2024-01-01'"),
        ([dt.datetime(2024, 1, 1, 0, 0, 0, 1)], "min(x) = timestamp_ntz '2024-01-01 00:00:00.000001'"),  # noqa: DTZ001
        ([dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc)], "max(x) = timestamp '2024-01-01T01:00:00+01:00'"),
        ([Decimal("-1.50"), Decimal("12345.67")], "min(x) = -1.5 and max(x) = 12345.67"),
        ([True, False], "x >= false"),
        (["b" * 40, "a" * 40], f"x >= '{'a' * 16}' and x < 'c'"),
        ([2**62, -(2**62)], f"min(x) = {-(2**62)} and max(x) = {2**62}"),
    ],
    ids=["date", "timestamp", "timestamptz", "decimal", "boolean", "text", "long"],
)
def test_bounds_have_the_types_of_the_columns(catalog: CatalogDescription, values: list[Any], condition: str) -> None:
    data = pa.table({"x": pa.array(values)})
    created(catalog, data.schema).append(data, snapshot_properties=REPLACE)
    assert results(catalog, [condition], audited(catalog, PartitionScope())) == {condition: True}


def test_names_are_those_of_the_files(catalog: CatalogDescription) -> None:
    data = pa.table({"it's 1": [1, 2], "a`b": [3, 4], "Größe": [5, None]})
    created(catalog, data.schema).append(data, snapshot_properties=REPLACE)
    conditions = ["min(`it's 1`) = 1", "max(`a``b`) = 4", "count(`GRÖSSE`) = 1", "count(`größe`) = 1"]
    found = results(catalog, conditions, audited(catalog, PartitionScope()))
    assert found == {name: True for name in conditions if "SS" not in name}


def test_without_audits_no_manifest_is_read(catalog: CatalogDescription) -> None:
    created(catalog).append(rows("AA", 1))
    found = audited(catalog)
    open_catalog(catalog).drop_table((*TABLE.namespace, TABLE.name))
    assert results(catalog, [], found) == {}
    assert results(catalog, ["sum(v) > 0", "v + 1 > 0"], found) == {}


def test_an_expired_snapshot_is_refused(catalog: CatalogDescription) -> None:
    created(catalog).append(rows("AA", 1))
    found = audited(catalog)
    gone = type(found.snapshot)(7, None, 0, "append", found.snapshot.summary)
    with pytest.raises(CommitConflictError, match="none of that id: it has expired"):
        results(catalog, ["count(*) > 0"], audited_rows(found.state, gone, schema(), options(), samples=0))


def test_a_column_that_was_widened_keeps_its_bounds(catalog: CatalogDescription) -> None:
    data = pa.table({"x": pa.array([3, 4], pa.int32())})
    table = created(catalog, data.schema)
    table.append(data, snapshot_properties=REPLACE)
    with table.update_schema() as update:
        update.update_column("x", LongType())
    assert results(catalog, ["min(x) = 3"], audited(catalog, PartitionScope())) == {"min(x) = 3": True}
