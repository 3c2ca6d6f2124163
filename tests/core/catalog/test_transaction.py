"""Commits to several tables of a SQL catalog: all of them or none."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.update import AssertRefSnapshotId, SetPropertiesUpdate
from sqlalchemy.exc import OperationalError

from dagster_iceberg_spark import CatalogUnavailableError, HadoopCatalog, RestCatalog, SqlCatalog
from dagster_iceberg_spark.catalog import transaction
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.look import open_catalog
from dagster_iceberg_spark.catalog.transaction import TableCommit, commit_table, commit_tables, is_transactional
from dagster_iceberg_spark.table.identifier import TableIdentifier

NAMES = ("b", "a", "c")
ROWS = pa.table({"v": [1]})


@pytest.fixture
def catalog(tmp_path: Path) -> CatalogDescription:
    (tmp_path / "wh").mkdir()
    description = SqlCatalog(uri=f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "wh")).describe()
    opened = open_catalog(description)
    opened.create_namespace("db")
    for name in NAMES:
        opened.create_table(("db", name), ROWS.schema).append(ROWS)
    return description


def table(catalog: CatalogDescription, name: str) -> Table:
    return open_catalog(catalog).load_table(("db", name))


def commit_of(catalog: CatalogDescription, name: str) -> TableCommit:
    """Return a commit that sets a property, unless `main` has moved."""
    found = table(catalog, name)
    seen = AssertRefSnapshotId.model_validate({"ref": "main", "snapshot-id": found.metadata.current_snapshot_id})
    updates = (SetPropertiesUpdate(updates={"released": "yes"}),)
    return TableCommit(TableIdentifier(("db",), name), found, {}, (seen,), updates)


def released(catalog: CatalogDescription) -> list[bool]:
    return ["released" in table(catalog, name).properties for name in NAMES]


def metadata_files(tmp_path: Path) -> int:
    return len(list(tmp_path.rglob("*.metadata.json")))


def test_all_tables_are_committed(catalog: CatalogDescription) -> None:
    assert is_transactional(catalog)
    assert commit_tables(catalog, [commit_of(catalog, name) for name in NAMES])
    assert released(catalog) == [True, True, True]


def test_a_table_that_has_moved_keeps_back_all(catalog: CatalogDescription, tmp_path: Path) -> None:
    commits = [commit_of(catalog, name) for name in NAMES]
    table(catalog, "c").append(ROWS)
    files = metadata_files(tmp_path)
    assert not commit_tables(catalog, commits)
    assert (released(catalog), metadata_files(tmp_path)) == ([False, False, False], files)


def test_a_pointer_that_moves_in_the_transaction_keeps_back_all(
    catalog: CatalogDescription, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    move, order = transaction._move_pointer, list[str]()

    def moving(session: Any, name: str, identifier: TableIdentifier, metadata: Any) -> None:
        order.append(identifier.name)
        move(session, name, identifier, metadata)
        if len(order) == 2:
            move(session, name, identifier, metadata)  # as if another writer had moved it

    commits = [commit_of(catalog, name) for name in NAMES]
    monkeypatch.setattr(transaction, "_move_pointer", moving)
    files = metadata_files(tmp_path)
    assert not commit_tables(catalog, commits)
    assert (order, released(catalog)) == (["a", "b"], [False, False, False])
    assert metadata_files(tmp_path) == files


def test_the_metadata_of_a_commit_whose_answer_is_lost_stays(
    catalog: CatalogDescription, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = transaction.Session  # type: ignore[attr-defined] # not exported

    class Lost(session):  # type: ignore[misc, valid-type]
        def commit(self) -> None:
            super().commit()
            raise OperationalError("commit", {}, Exception("connection lost"))

    monkeypatch.setattr(transaction, "Session", Lost)
    with pytest.raises(CatalogUnavailableError, match=r"Cannot publish db\.a, db\.b, db\.c in SQLite catalog"):
        commit_tables(catalog, [commit_of(catalog, name) for name in NAMES])
    assert released(catalog) == [True, True, True]


def test_a_commit_that_is_reported_as_rejected_may_have_been_made(
    catalog: CatalogDescription, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client repeats a request, and the catalog rejects the second one."""
    found = table(catalog, "a")
    update = found.transaction().update_snapshot().fast_append()
    (added, moved), _ = update._commit()
    commit = replace(commit_of(catalog, "a"), table=found, updates=(added, moved))
    opened = open_catalog(catalog)
    make = opened.commit_table

    def repeated(*args: Any) -> Any:
        make(*args)
        raise CommitFailedException("a second time")

    monkeypatch.setattr(opened, "commit_table", repeated)
    monkeypatch.setattr(found, "catalog", opened)
    assert commit_table(catalog, commit)
    monkeypatch.setattr(opened, "commit_table", make)
    assert not commit_table(catalog, replace(commit, updates=()))


def test_other_catalogs_commit_one_table_at_a_time(tmp_path: Path) -> None:
    directory = HadoopCatalog(warehouse=str(tmp_path)).describe()
    assert not is_transactional(directory)
    with pytest.raises(TypeError, match="commits one table at a time"):
        commit_tables(directory, [])


@pytest.mark.parametrize("atomic", [False, True])
def test_the_configuration_says_whether_a_rest_server_commits_all_or_none(*, atomic: bool) -> None:
    described = RestCatalog(uri="http://127.0.0.1:1", atomic_transactions=atomic).describe()
    assert described.has_transactions is atomic
