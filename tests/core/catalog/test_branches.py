"""Branches that pyiceberg creates and drops."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from dagster_iceberg_spark import SqlCatalog
from dagster_iceberg_spark.catalog import branches, transaction
from dagster_iceberg_spark.catalog.branches import change_branch
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.look import open_catalog
from dagster_iceberg_spark.errors import CommitConflictError
from dagster_iceberg_spark.table.updates import CreateBranch, DropBranch
from tests.core.table.samples import TABLE

ROWS = pa.table({"v": [1]})


@pytest.fixture
def catalog(tmp_path: Path) -> CatalogDescription:
    (tmp_path / "wh").mkdir()
    description = SqlCatalog(uri=f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "wh")).describe()
    open_catalog(description).create_namespace(TABLE.namespace)
    return description


@pytest.fixture
def table(catalog: CatalogDescription) -> Table:
    table = open_catalog(catalog).create_table(TABLE.parts, ROWS.schema)
    table.append(ROWS)
    return table


def created_at(table: Table) -> CreateBranch:
    snapshot = table.refresh().current_snapshot()
    assert snapshot is not None
    return CreateBranch("staged", snapshot.snapshot_id, retention_days=2)


def test_a_branch_is_created_and_dropped_once(catalog: CatalogDescription, table: Table) -> None:
    create = created_at(table)
    assert change_branch(catalog, TABLE, create)
    (ref,) = [ref for name, ref in table.refresh().metadata.refs.items() if name == "staged"]
    assert (ref.snapshot_id, ref.max_ref_age_ms) == (create.snapshot_id, 2 * 24 * 3600 * 1000)
    metadata = table.metadata_location
    assert change_branch(catalog, TABLE, create)
    assert table.refresh().metadata_location == metadata
    assert change_branch(catalog, TABLE, DropBranch("staged"))
    assert change_branch(catalog, TABLE, DropBranch("staged"))
    assert list(table.refresh().metadata.refs) == ["main"]


def test_an_engine_creates_branches_without_a_snapshot_and_those_of_new_tables(
    catalog: CatalogDescription, table: Table
) -> None:
    assert not change_branch(catalog, TABLE, CreateBranch("staged"))
    open_catalog(catalog).drop_table(table.name())
    assert not change_branch(catalog, TABLE, CreateBranch("staged", 1))


@pytest.mark.parametrize("conflicts", [2, branches.ATTEMPTS])
def test_a_conflict_is_tried_again(
    catalog: CatalogDescription, table: Table, monkeypatch: pytest.MonkeyPatch, conflicts: int
) -> None:
    create, commit, left = created_at(table), transaction.commit_table, [None] * conflicts

    def conflicting(*args: Any, **options: Any) -> bool:
        if left:
            left.pop()
            return False
        return commit(*args, **options)

    monkeypatch.setattr(branches, "commit_table", conflicting)
    monkeypatch.setattr(branches.AGAIN_AFTER_CONFLICTS, "sleep", lambda _: None)
    if conflicts < branches.ATTEMPTS:
        assert change_branch(catalog, TABLE, create)
        assert "staged" in table.refresh().metadata.refs
    else:
        with pytest.raises(CommitConflictError, match="a commit of another writer"):
            change_branch(catalog, TABLE, create)


def test_a_branch_cannot_start_at_a_snapshot_that_has_expired(catalog: CatalogDescription, table: Table) -> None:
    create = created_at(table)
    table.append(ROWS)
    assert create.snapshot_id is not None
    table.maintenance.expire_snapshots().by_id(create.snapshot_id).commit()
    with pytest.raises(CommitConflictError, match="it has expired"):
        change_branch(catalog, TABLE, create)
    assert "staged" not in table.refresh().metadata.refs
