"""A DuckLake is made to show the newest snapshot of a table, whatever happened before.

docs/mirror.md: What the mirror promises
"""

import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, LongType, NestedField, StringType

from dagster_iceberg_spark.errors import (
    CatalogUnavailableError,
    CommitConflictError,
    ConfigurationError,
    UpstreamMissingError,
)
from dagster_iceberg_spark.features.mirror import copies, database, synchronization
from dagster_iceberg_spark.features.mirror import ducklake_commit as commit
from dagster_iceberg_spark.features.mirror.creation import duckdb_with
from dagster_iceberg_spark.features.mirror.options import MirrorMode
from dagster_iceberg_spark.features.mirror.table_mirror import DuckLake
from tests.equality_deletes import delete_by_equality
from tests.features.mirror.conftest import NUMBERS, Mirrors, commits, lake_in, numbers

MODES: Final[tuple[MirrorMode, ...]] = ("register", "copy", "view")


@pytest.mark.full
@pytest.mark.parametrize("mode", ["register", "copy", "view"])
def test_a_mirror_is_made_once_and_changes_nothing_when_it_is_current(mirrors: Mirrors, mode: Any) -> None:
    table = mirrors.create("t", NUMBERS)
    table.append(numbers(1, 2))
    first, second = mirrors.synchronize("t", mode), mirrors.synchronize("t", mode)
    head = mirrors.table("t").current_snapshot()
    assert head is not None
    assert first.ducklake_snapshot_id is not None
    assert (second.snapshot_id, second.ducklake_snapshot_id) == (head.snapshot_id, None)
    assert mirrors.shown("t") == mirrors.written("t")
    assert mirrors.problems("t", mode) == []
    assert len(commits(mirrors)) == 1


@pytest.mark.parametrize(
    "mode", ["register", pytest.param("copy", marks=pytest.mark.full), pytest.param("view", marks=pytest.mark.full)]
)
def test_a_mirror_catches_up_with_all_that_it_has_missed(mirrors: Mirrors, mode: Any) -> None:
    table = mirrors.create("t", NUMBERS, by="word")
    table.append(numbers(1, 2))
    mirrors.synchronize("t", mode)
    table.append(numbers(3, word="b"))
    table.overwrite(numbers(4, word="a"), overwrite_filter="word = 'a'")
    with table.update_schema() as update:
        update.rename_column("n", "number").add_column("note", StringType()).update_column("n", LongType())
    table.append(pa.table({"number": [2**40], "word": ["c"], "note": ["new"]}))
    assert len(mirrors.problems("t", mode)) == 1
    mirrors.synchronize("t", mode)
    assert mirrors.shown("t") == mirrors.written("t")
    assert len(mirrors.shown("t")) == 3
    assert len(commits(mirrors)) == 2


@pytest.mark.full
@pytest.mark.parametrize("mode", ["register", "copy", "view"])
def test_a_mirror_goes_back_with_its_table(sqlite_mirrors: Mirrors, mode: Any) -> None:
    mirrors = sqlite_mirrors
    table = mirrors.create("t", NUMBERS)
    table.append(numbers(1))
    first = table.current_snapshot()
    table.append(numbers(2))
    mirrors.synchronize("t", mode)
    assert first is not None
    table.manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()
    mirrors.synchronize("t", mode)
    assert mirrors.shown("t") == [{"n": 1, "word": "a"}]


@pytest.mark.full
@pytest.mark.parametrize("mode", ["register", "copy"])
def test_a_mirror_whose_snapshot_has_expired_is_compared_as_a_whole(sqlite_mirrors: Mirrors, mode: Any) -> None:
    mirrors = sqlite_mirrors
    table = mirrors.create("t", NUMBERS)
    table.append(numbers(1))
    table.append(numbers(2))
    mirrors.synchronize("t", mode)
    shown = table.current_snapshot()
    table.overwrite(numbers(3))
    assert shown is not None
    table.maintenance.expire_snapshots().by_id(shown.snapshot_id).commit()
    table.append(numbers(4))
    mirrors.synchronize("t", mode)
    assert mirrors.shown("t") == mirrors.written("t")


@pytest.mark.full
@pytest.mark.parametrize("mode", ["register", "copy", "view"])
def test_a_table_that_is_created_again_is_mirrored_anew(sqlite_mirrors: Mirrors, mode: Any) -> None:
    mirrors = sqlite_mirrors
    mirrors.create("t", NUMBERS).append(numbers(1))
    mirrors.synchronize("t", mode)
    mirrors.catalog.drop_table("db.t")
    mirrors.create("t", pa.schema([("word", pa.string())])).append(pa.table({"word": ["again"]}))
    mirrors.synchronize("t", mode)
    assert mirrors.shown("t") == [{"word": "again"}]


@pytest.mark.full
@pytest.mark.parametrize("mode", ["register", "copy", "view"])
def test_a_commit_of_metadata_leaves_the_mirror_current(sqlite_mirrors: Mirrors, mode: Any) -> None:
    mirrors = sqlite_mirrors
    table = mirrors.create("t", NUMBERS)
    table.append(numbers(1))
    mirrors.synchronize("t", mode)
    with table.transaction() as transaction:
        transaction.set_properties(note="x")
    assert mirrors.problems("t", mode) == []
    state = mirrors.synchronize("t", mode)
    assert (state.ducklake_snapshot_id is not None) == (mode == "view")  # which follows the newest metadata file


@pytest.mark.full
def test_the_mode_of_a_mirror_can_change(sqlite_mirrors: Mirrors) -> None:
    mirrors = sqlite_mirrors
    mirrors.create("t", NUMBERS).append(numbers(1))
    for mode in ("view", "register", "copy", "register", "view"):
        mirrors.synchronize("t", mode)
        assert mirrors.shown("t") == [{"n": 1, "word": "a"}]


@pytest.mark.full
def test_time_travel_shows_what_earlier_snapshots_of_the_ducklake_showed(sqlite_mirrors: Mirrors) -> None:
    mirrors = sqlite_mirrors
    table = mirrors.create("t", NUMBERS)
    table.append(numbers(1))
    first = mirrors.synchronize("t").ducklake_snapshot_id
    with table.update_schema() as update:
        update.rename_column("n", "number")
    table.overwrite(pa.table({"number": pa.array([2], pa.int32()), "word": ["b"]}))
    mirrors.synchronize("t")
    assert mirrors.query("select number from m.db.t") == [(2,)]
    assert mirrors.query(f"select n from m.db.t at (version => {first})") == [(1,)]


@pytest.mark.full
def test_a_table_without_a_snapshot_is_not_mirrored_yet(sqlite_mirrors: Mirrors) -> None:
    sqlite_mirrors.create("t", NUMBERS)
    state = sqlite_mirrors.synchronize("t")
    assert (state.snapshot_id, state.ducklake_snapshot_id) == (None, None)
    assert sqlite_mirrors.problems("t") == []


def test_a_table_that_does_not_exist_is_an_error(sqlite_mirrors: Mirrors) -> None:
    with pytest.raises(UpstreamMissingError, match=r"Cannot mirror db\.t: expected a table in the SQLite catalog"):
        sqlite_mirrors.synchronize("t")


@pytest.mark.full
@pytest.mark.parametrize("mode", ["register", "copy"])
def test_statistics_prune_files(sqlite_mirrors: Mirrors, mode: Any) -> None:
    mirrors = sqlite_mirrors
    table = mirrors.create("t", NUMBERS, by="word")
    for place, word in enumerate(("a", "b", "a value that is longer than sixteen characters")):
        table.append(numbers(place, word=word))
    mirrors.synchronize("t", mode)
    with mirrors.duckdb() as connection:
        for condition in ("n = 1", "word = 'b'", "word like 'a value%'"):
            plan = connection.sql(f"explain analyze select * from m.db.t where {condition}").fetchall()[0][1]
            assert "Total Files Read: 1" in plan
        bounds = connection.sql("select max(word), min(word), max(n), count(*) from m.db.t").fetchall()
    assert bounds == [("b", "a", 2, 3)]


@pytest.mark.full
def test_identity_partitions_become_partition_values(sqlite_mirrors: Mirrors) -> None:
    mirrors = sqlite_mirrors
    table = mirrors.create("t", NUMBERS, by="word")
    table.append(numbers(1))
    table.append(numbers(2, word="b"))
    mirrors.synchronize("t")
    with sqlite3.connect(mirrors.lake.address) as catalog:
        values = catalog.execute("select partition_value from ducklake_file_partition_value order by 1").fetchall()
        columns = catalog.execute("select column_id, transform from ducklake_partition_column").fetchall()
    assert (values, columns) == ([("a",), ("b",)], [(2, "identity")])
    with table.update_spec() as update:
        update.remove_field("word")
    table.append(numbers(3))
    mirrors.synchronize("t")
    assert mirrors.shown("t") == mirrors.written("t")


@pytest.mark.full
def test_an_append_copies_only_the_new_files(sqlite_mirrors: Mirrors) -> None:
    mirrors = sqlite_mirrors
    table = mirrors.create("t", NUMBERS, by="word")
    table.append(pa.concat_tables([numbers(1), numbers(2, word="b")]))
    mirrors.synchronize("t", "copy")
    before = files_of(mirrors)
    table.append(numbers(3))
    mirrors.synchronize("t", "copy")
    added = files_of(mirrors)
    assert len(added - before) == 1
    table.overwrite(numbers(4), overwrite_filter="word = 'a'")
    mirrors.synchronize("t", "copy")
    assert len(files_of(mirrors) - added) == 1
    assert mirrors.shown("t") == mirrors.written("t")


def files_of(mirrors: Mirrors) -> set[Path]:
    assert mirrors.lake.data_path is not None
    return set(Path(mirrors.lake.data_path).rglob("*.parquet"))


@pytest.mark.full
@pytest.mark.parametrize(
    ("codec", "written"), [("snappy", "SNAPPY"), ("zstd", "ZSTD"), ("gzip", "GZIP"), ("none", "UNCOMPRESSED")]
)
def test_copies_are_compressed_as_configured(sqlite_mirrors: Mirrors, codec: Any, written: str) -> None:
    sqlite_mirrors.create("t", NUMBERS).append(numbers(1))
    sqlite_mirrors.synchronize("t", "copy", codec=codec)
    (file,) = files_of(sqlite_mirrors)
    assert pq.ParquetFile(file).metadata.row_group(0).column(0).compression == written


@pytest.mark.full
def test_an_encrypted_ducklake_gets_encrypted_copies(tmp_path: Path) -> None:
    mirrors = lake_in(tmp_path, is_encrypted=True)
    mirrors.create("t", NUMBERS).append(numbers(1))
    mirrors.synchronize("t", "copy")
    (file,) = files_of(mirrors)
    with pytest.raises(OSError, match="encrypted"):
        pq.read_table(file)
    assert mirrors.shown("t") == [{"n": 1, "word": "a"}]
    with pytest.raises(ConfigurationError, match=r"expected a DuckLake whose files are not encrypted.*mode \"copy\""):
        mirrors.synchronize("t", "register", shown_as="other")


@pytest.mark.full
@pytest.mark.parametrize("statement", ["create table m.db.t (a int)", "create view m.db.t as select 1 as a"])
def test_what_somebody_else_has_made_is_not_replaced(sqlite_mirrors: Mirrors, statement: str) -> None:
    mirrors = sqlite_mirrors
    mirrors.create("t", NUMBERS).append(numbers(1))
    mirrors.synchronize("t", shown_as="other")
    with mirrors.duckdb(read_only=False) as connection:
        connection.execute(statement)
    with pytest.raises(ConfigurationError, match=r"db\.t in the DuckLake at .*found a (table|view) that is no mirror"):
        mirrors.synchronize("t")
    assert len(mirrors.problems("t")) == 1


@pytest.mark.full
def test_a_mirror_of_another_table_is_not_replaced(sqlite_mirrors: Mirrors) -> None:
    for name in ("t", "u"):
        sqlite_mirrors.create(name, NUMBERS).append(numbers(1))
    sqlite_mirrors.synchronize("t", shown_as="shared")
    with pytest.raises(ConfigurationError, match=r"found a table that is a mirror of lake\.db\.t"):
        sqlite_mirrors.synchronize("u", shown_as="Shared")


@pytest.mark.full
def test_equality_deletes_are_copied_and_shown_but_not_registered(sqlite_mirrors: Mirrors) -> None:
    """Neither pyiceberg nor Spark writes them, but streaming engines do."""
    mirrors = sqlite_mirrors
    table = mirrors.create("t", NUMBERS)
    for number in range(3):
        table.append(numbers(number))
    for mode in MODES:
        mirrors.synchronize("t", mode, shown_as=mode)
    delete_by_equality(table, pa.table({"n": pa.array([1], pa.int32())}))
    with pytest.raises(ConfigurationError, match=r"Cannot register the files of db\.t: expected no equality deletes"):
        mirrors.synchronize("t", "register", shown_as="register")
    for mode in MODES[1:]:
        mirrors.synchronize("t", mode, shown_as=mode)
        assert [row["n"] for row in mirrors.shown(mode)] == [0, 2]
    assert len(mirrors.shown("register")) == 3


@pytest.mark.full
@pytest.mark.parametrize(
    ("attribute", "value", "found"),
    [("key_metadata", b"key", "an encrypted one"), ("file_format", FileFormat.AVRO, "a file in AVRO")],
)
def test_files_that_duckdb_cannot_read_are_not_registered(
    sqlite_mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch, attribute: str, value: object, found: str
) -> None:
    sqlite_mirrors.create("t", NUMBERS).append(numbers(1))
    monkeypatch.setattr(DataFile, attribute, property(lambda _: value))
    with pytest.raises(ConfigurationError, match=rf"Cannot register the files of db\.t: .*found {found}"):
        sqlite_mirrors.synchronize("t")


@pytest.mark.full
def test_names_that_differ_only_by_case_are_refused(sqlite_mirrors: Mirrors) -> None:
    table = sqlite_mirrors.create("t", pa.schema([("a", pa.int32()), ("A", pa.int32())]))
    table.append(pa.table({"a": pa.array([1], pa.int32()), "A": pa.array([2], pa.int32())}))
    with pytest.raises(ConfigurationError, match="found 'a' and 'A'"):
        sqlite_mirrors.synchronize("t")


@pytest.mark.full
def test_a_column_named_filename_cannot_be_copied(sqlite_mirrors: Mirrors) -> None:
    sqlite_mirrors.create("t", pa.schema([("filename", pa.string())])).append(pa.table({"filename": ["x"]}))
    with pytest.raises(ConfigurationError, match="expected no column 'filename'"):
        sqlite_mirrors.synchronize("t", "copy")
    sqlite_mirrors.synchronize("t", "register")
    assert sqlite_mirrors.shown("t") == [{"filename": "x"}]


@pytest.mark.full
def test_odd_names_are_kept(sqlite_mirrors: Mirrors) -> None:
    schema = Schema(
        NestedField(1, "it's", StringType()), NestedField(2, 'a "b"', BinaryType()), NestedField(3, "a.b", LongType())
    )
    arrow = schema_to_pyarrow(schema)
    table = sqlite_mirrors.create("t", arrow)
    table.append(pa.table({"it's": ["x"], 'a "b"': [b"\x00"], "a.b": [1]}, schema=arrow))
    for mode in ("register", "copy", "view"):
        sqlite_mirrors.synchronize("t", mode, shown_as=f'o\'{mode} "x"')
        rows = sqlite_mirrors.query(f'from m.db."o\'{mode} ""x"""')
        assert rows == [("x", b"\x00", 1)]


@pytest.mark.full
def test_another_version_of_ducklake_is_refused(sqlite_mirrors: Mirrors) -> None:
    sqlite_mirrors.create("t", NUMBERS).append(numbers(1))
    sqlite_mirrors.synchronize("t")
    with sqlite3.connect(sqlite_mirrors.lake.address) as catalog:
        catalog.execute("update ducklake_metadata set value = '1.1' where key = 'version'")
    with pytest.raises(ConfigurationError, match=r"expected version 1\.0 of DuckLake's format, found '1\.1'"):
        sqlite_mirrors.synchronize("t")


@pytest.mark.full
def test_another_data_path_is_refused(sqlite_mirrors: Mirrors) -> None:
    mirrors = sqlite_mirrors
    mirrors.create("t", NUMBERS).append(numbers(1))
    mirrors.synchronize("t")
    lake = mirrors.lake
    other = Mirrors(mirrors.description, DuckLake(lake.kind, lake.address, lake.shown, "/elsewhere"))
    with pytest.raises(ConfigurationError, match=r"expected its own `data_path`, .*files.*, found /elsewhere"):
        other.synchronize("t")
    Mirrors(mirrors.description, DuckLake(lake.kind, lake.address, lake.shown, None)).synchronize("t")


@pytest.mark.full
@pytest.mark.parametrize("place", ["", "warehouse", "warehouse/db/t", "warehouse/db/t/mirror"])
def test_a_data_path_around_or_inside_of_the_table_is_refused(tmp_path: Path, place: str) -> None:
    """DuckLake's removal of orphaned files would delete the table, or Iceberg's would delete the copies."""
    mirrors = lake_in(tmp_path)
    mirrors.create("t", NUMBERS).append(numbers(1))
    other = Mirrors(mirrors.description, replace(mirrors.lake, data_path=str(tmp_path / place)))
    with pytest.raises(ConfigurationError, match=r"expected a `data_path` of the DuckLake apart from the table at"):
        other.synchronize("t")
    beside = replace(mirrors.lake, address=f"{mirrors.lake.address}.2", data_path=str(tmp_path / "warehouse/db/t-2"))
    Mirrors(mirrors.description, beside).synchronize("t")


@pytest.mark.full
@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_a_file_that_is_no_database_is_an_error(tmp_path: Path, kind: Any) -> None:
    mirrors = lake_in(tmp_path, kind=kind)
    mirrors.create("t", NUMBERS).append(numbers(1))
    Path(mirrors.lake.address).parent.mkdir()
    Path(mirrors.lake.address).write_text("something else, of more than a hundred bytes" * 10)
    with pytest.raises(CatalogUnavailableError, match=r"Cannot (open|use) the DuckLake at .*not a"):
        mirrors.synchronize("t")


@pytest.mark.full
def test_a_directory_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "nested").write_text("a file")
    mirrors = lake_in(tmp_path)
    mirrors.create("t", NUMBERS).append(numbers(1))
    with pytest.raises(ConfigurationError, match=r"Cannot create the DuckLake at .*expected a directory"):
        mirrors.synchronize("t")


@pytest.mark.full
def test_a_locked_database_is_waited_for_and_then_an_error(
    sqlite_mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirrors = sqlite_mirrors
    monkeypatch.setattr(database, "MIRROR_LOCK_SECONDS", 0.3)
    table = mirrors.create("t", NUMBERS)
    table.append(numbers(1))
    mirrors.synchronize("t")
    table.append(numbers(2))
    holder = sqlite3.connect(mirrors.lake.address, isolation_level=None)
    holder.execute("begin immediate")
    with pytest.raises(CatalogUnavailableError, match="database is locked"):
        mirrors.synchronize("t")
    holder.execute("rollback")
    holder.close()
    mirrors.synchronize("t")
    assert mirrors.shown("t") == mirrors.written("t")


@pytest.mark.full
def test_failed_copies_are_deleted_and_leave_the_catalog_as_it_was(
    sqlite_mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirrors = sqlite_mirrors
    table = mirrors.create("t", NUMBERS, by="word")
    table.append(pa.concat_tables([numbers(1), numbers(2, word="b")]))
    copied: list[Any] = []
    copy = copies.Copier._copy

    def fails(self: Any, *args: Any) -> Any:
        if copied:
            raise CatalogUnavailableError("the second upload fails")
        copied.extend(copy(self, *args))
        return copied

    with monkeypatch.context() as patched:
        patched.setattr(copies.Copier, "_copy", fails)
        with pytest.raises(CatalogUnavailableError, match="the second upload"):
            mirrors.synchronize("t", "copy")
    assert (len(copied), files_of(mirrors), commits(mirrors)) == (1, set(), [])
    mirrors.synchronize("t", "copy")
    assert mirrors.shown("t") == mirrors.written("t")


@pytest.mark.full
def test_an_upload_that_fails_names_the_directory(sqlite_mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch) -> None:
    sqlite_mirrors.create("t", NUMBERS).append(numbers(1))
    monkeypatch.setattr(copies.Copier, "_directory", lambda *_: "/proc/no/such/place")
    with pytest.raises(CatalogUnavailableError, match=r"Cannot copy db\.t: expected DuckDB .* in /proc/no/such/place"):
        sqlite_mirrors.synchronize("t", "copy")


@pytest.mark.full
def test_a_failed_transaction_names_the_unused_files(sqlite_mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch) -> None:
    mirrors = sqlite_mirrors
    mirrors.create("t", NUMBERS).append(numbers(1))

    def gone(*_: Any) -> None:
        raise CatalogUnavailableError("the database is gone")

    with monkeypatch.context() as patched:
        patched.setattr(synchronization, "commit_change", gone)
        with pytest.raises(CatalogUnavailableError, match="the database is gone") as raised:
            mirrors.synchronize("t", "copy")
    (file,) = files_of(mirrors)
    assert str(file) in str(raised.value)
    mirrors.synchronize("t", "copy")
    assert mirrors.shown("t") == mirrors.written("t")


@pytest.mark.full
@pytest.mark.parametrize("mode", ["register", "copy", "view"])
def test_a_mirror_never_goes_back_when_another_writer_is_faster(
    mirrors: Mirrors, mode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = mirrors.create("t", NUMBERS)
    table.append(numbers(1))
    mirrors.synchronize("t", mode)
    table.append(numbers(2))
    seen: list[int] = []

    def overtaken(database: Any, change: Any) -> int:
        seen.append(change.record.snapshot_id)
        if len(seen) == 1:
            table.append(numbers(3))
            message = "another writer was faster"
            raise CommitConflictError(message)
        return commit.commit_change(database, change)

    monkeypatch.setattr(synchronization, "commit_change", overtaken)
    mirrors.synchronize("t", mode)
    assert len(set(seen)) == 2
    assert mirrors.shown("t") == mirrors.written("t")


@pytest.mark.full
def test_a_change_that_was_decided_on_an_older_mirror_is_refused(
    sqlite_mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirrors = sqlite_mirrors
    table = mirrors.create("t", NUMBERS)
    table.append(numbers(1))
    changes: list[Any] = []

    def kept(database: Any, change: Any) -> int:
        changes.append(change)
        return commit.commit_change(database, change)

    monkeypatch.setattr(synchronization, "commit_change", kept)
    mirrors.synchronize("t")
    table.append(numbers(2))
    mirrors.synchronize("t")
    with (
        database.open_database(mirrors.lake) as opened,
        pytest.raises(CommitConflictError, match=r"expected db\.t as it was a moment ago"),
    ):
        commit.commit_change(opened, changes[-1])
    assert len(commits(mirrors)) == 2


@pytest.mark.full
@pytest.mark.parametrize("then", ["register", "view", "copy"])
def test_ducklake_is_kept_from_deleting_the_files_of_iceberg(sqlite_mirrors: Mirrors, then: Any) -> None:
    mirrors = sqlite_mirrors
    table = mirrors.create("t", NUMBERS)
    with table.transaction() as transaction:
        transaction.set_properties({"write.data.path": f"{table.location()}-elsewhere"})
    table.append(numbers(1))
    mirrors.synchronize("t")
    first = table.current_snapshot()
    table.overwrite(numbers(2))
    mirrors.synchronize("t")
    mirrors.synchronize("t", then)
    with mirrors.duckdb(read_only=False) as connection:
        connection.execute("call ducklake_expire_snapshots('m', older_than => now())")
    assert "DuckLake is about to delete files that it does not own" in mirrors.problems("t", then)[0]
    mirrors.synchronize("t", then)
    assert mirrors.problems("t", then) == []
    with mirrors.duckdb(read_only=False) as connection:
        connection.execute("call ducklake_cleanup_old_files('m', cleanup_all => true)")
    assert first is not None
    assert table.scan(snapshot_id=first.snapshot_id).to_arrow().num_rows == 1
    assert mirrors.shown("t") == mirrors.written("t")


@pytest.mark.full
def test_a_view_whose_metadata_file_may_be_gone_is_found(sqlite_mirrors: Mirrors) -> None:
    mirrors = sqlite_mirrors
    table = mirrors.create("t", NUMBERS)
    with table.transaction() as transaction:
        transaction.set_properties({"write.metadata.previous-versions-max": "2"})
    table.append(numbers(1))
    mirrors.synchronize("t", "view")
    for number in range(4):
        with table.transaction() as transaction:
            transaction.set_properties(number=str(number))
    assert "Iceberg may have deleted the metadata file that db.t shows" in mirrors.problems("t", "view")[0]
    mirrors.synchronize("t", "view")
    assert mirrors.problems("t", "view") == []


@pytest.mark.full
def test_a_dropped_column_of_an_old_partition_spec_can_only_be_registered(sqlite_mirrors: Mirrors) -> None:
    """DuckDB 1.5.5 ends its process when it scans such a table."""
    mirrors = sqlite_mirrors
    table = mirrors.create("t", NUMBERS, by="word")
    table.append(numbers(1))
    with table.update_spec() as update:
        update.remove_field("word")
    with table.update_schema() as schema:
        schema.delete_column("word")
    for mode in MODES[1:]:
        with pytest.raises(ConfigurationError, match=r"the partition field 'word' of a column that was dropped"):
            mirrors.synchronize("t", mode)
    mirrors.synchronize("t", "register")
    assert mirrors.shown("t") == [{"n": 1}]


@pytest.mark.full
def test_another_catalog_of_the_same_name_does_not_replace_a_mirror(sqlite_mirrors: Mirrors, tmp_path: Path) -> None:
    mirrors = sqlite_mirrors
    mirrors.create("t", NUMBERS).append(numbers(1))
    mirrors.synchronize("t")
    other = Mirrors(lake_in(tmp_path / "other").description, mirrors.lake)
    other.create("t", NUMBERS).append(numbers(2))
    with pytest.raises(ConfigurationError, match=r"found a table that is a mirror of lake\.db\.t"):
        other.synchronize("t")


@pytest.mark.full
def test_a_compaction_of_the_whole_ducklake_leaves_registered_tables_alone(sqlite_mirrors: Mirrors) -> None:
    mirrors = sqlite_mirrors
    table = mirrors.create("t", NUMBERS)
    table.append(numbers(1))
    table.append(numbers(2))
    mirrors.synchronize("t")
    with mirrors.duckdb(read_only=False) as connection:
        connection.execute("create table m.db.own (a int)")
        for number in (1, 2):
            connection.execute(f"insert into m.db.own values ({number})")
        connection.execute("call ducklake_merge_adjacent_files('m')")
    assert mirrors.problems("t") == []
    with sqlite3.connect(mirrors.lake.address) as catalog:
        files = catalog.execute("select count(*) from ducklake_data_file where end_snapshot is null").fetchall()
    assert files == [(3,)]


@pytest.mark.sample(5)
@pytest.mark.full
@pytest.mark.parametrize("mode", ["register", "copy"])
@pytest.mark.parametrize(
    "statement",
    [
        "insert into m.db.t values (7, 'foreign')",
        "delete from m.db.t where n = 1",
        "alter table m.db.t rename column n to number",
        "alter table m.db.t add column other int",
    ],
)
@pytest.mark.parametrize("inlined", [0, 10])
def test_what_somebody_else_changes_is_found_and_made_again(
    sqlite_mirrors: Mirrors, mode: Any, statement: str, inlined: int
) -> None:
    """DuckLake stores small changes in the tables of its metadata by default."""
    mirrors = sqlite_mirrors
    mirrors.create("t", NUMBERS).append(numbers(1, 2))
    mirrors.synchronize("t", mode)
    with mirrors.duckdb(read_only=False) as connection:
        connection.execute(f"call m.set_option('data_inlining_row_limit', {inlined})")
        connection.execute("create table m.db.own as select 1 as a")
        connection.execute(statement)
    assert "Another writer has changed db.t, in snapshot " in mirrors.problems("t", mode)[0]
    mirrors.synchronize("t", mode)
    assert (mirrors.problems("t", mode), mirrors.shown("t")) == ([], mirrors.written("t"))
    assert mirrors.synchronize("t", mode).ducklake_snapshot_id is None


@pytest.mark.full
def test_a_changed_setting_is_found(sqlite_mirrors: Mirrors) -> None:
    mirrors = sqlite_mirrors
    mirrors.create("t", NUMBERS).append(numbers(1))
    mirrors.synchronize("t")
    with mirrors.duckdb(read_only=False) as connection:
        connection.execute("call m.set_option('auto_compact', true, schema => 'db', table_name => 't')")
    assert "auto_compact" in mirrors.problems("t")[0]


@pytest.mark.full
def test_a_mirror_that_somebody_has_dropped_is_made_again(mirrors: Mirrors) -> None:
    mirrors.create("t", NUMBERS).append(numbers(1))
    mirrors.synchronize("t")
    with mirrors.duckdb(read_only=False) as connection:
        connection.execute("drop table m.db.t")
    assert "does not have db.t yet" in mirrors.problems("t")[0]
    mirrors.synchronize("t")
    assert mirrors.shown("t") == mirrors.written("t")


@pytest.mark.full
def test_duckdb_can_write_other_tables_beside_mirrors(mirrors: Mirrors) -> None:
    table = mirrors.create("t", NUMBERS)
    table.append(numbers(1))
    mirrors.synchronize("t")
    with mirrors.duckdb(read_only=False) as connection:
        connection.execute("create table m.db.own as select 1 as a")
    table.append(numbers(2))
    mirrors.synchronize("t")
    with mirrors.duckdb(read_only=False) as connection:
        connection.execute("insert into m.db.own select n from m.db.t")
        assert connection.sql("select sum(a) from m.db.own").fetchall() == [(4,)]


@pytest.mark.full
def test_no_extension_is_downloaded() -> None:
    with duckdb_with("ducklake") as connection, pytest.raises(duckdb.Error):
        connection.execute("load spatial")
