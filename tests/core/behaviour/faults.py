"""Storage that fails, and what a run does meanwhile and afterwards.

Faults that root does not feel are tried in a process without root's privileges, with a JVM of its own: run by
test_storage_faults.py, it takes its instructions as JSON on standard input and writes JSON, a trial by its case.
"""

import itertools
import json
import resource
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import dagster as dg
import pyarrow as pa
from pyiceberg.table import Table

from dagster_iceberg_spark import SqlCatalog
from dagster_iceberg_spark.config import sql_catalog
from dagster_iceberg_spark.table import lineage
from tests.lakes import Lake, error_of, frame_asset, open_lake

BUSY_SECONDS: Final = 2
KEYS = dg.StaticPartitionsDefinition(["a", "b"])
ROWS = "select '{key}' as k, id, repeat('x', 100) as filling from range(5)"
METADATA = {"partition_expr": "k", "iceberg/merge_keys": ["id"], "iceberg/partition_by": ["k"]}
FULL_DISK: Final = "disk is full"
FULL_CATALOG_DISK: Final = "catalog's disk is full"
READ_ONLY_CATALOG: Final = "catalog is read-only"

_NUMBERS = itertools.count()

Fault = Callable[[Lake], AbstractContextManager[Any]]
"""Something that is wrong with a lake until the block ends."""


def written(disposition: str) -> dg.AssetsDefinition:
    merge = {} if disposition == "merge" else {"iceberg/merge_keys": None}
    metadata = {key: value for key, value in {**METADATA, **merge}.items() if value is not None}
    metadata["iceberg/write_disposition"] = disposition
    rows = ROWS.replace("'x'", "'y'") if disposition == "merge" else ROWS  # a merge of what is there writes nothing
    return frame_asset("t", rows, partitions_def=KEYS, metadata=metadata)


@dg.asset(ins={"t": dg.AssetIn("t")})
def arrow_reader(t: pa.Table) -> None:
    assert t.num_rows


@dg.asset(ins={"t": dg.AssetIn("t")}, io_manager_key="iceberg")
def spark_reader(t: Any) -> Any:
    return t


def run(lake: Lake, operation: str) -> dg.ExecuteInProcessResult:
    """Write the partition `a` of the table, make another table, or read all of the first one."""
    if operation in ("append", "replace", "merge"):
        return lake.materialize(written(operation), partition_key="a", raise_on_error=False)
    if operation == "create":
        return lake.materialize(frame_asset(f"other_{next(_NUMBERS)}", "select 1 as a"), raise_on_error=False)
    reader = {"read by pyarrow": arrow_reader, "read by Spark": spark_reader}[operation]
    return lake.materialize(reader, written("append").to_source_asset(), selection=[reader], raise_on_error=False)


@dataclass(frozen=True)
class Trial:
    """A run under a fault, and the runs after it.

    Args:
        error: The class of the error; empty where the run succeeded.
        message: What it says.
        is_retried: Whether a RetryPolicy would try again.
        is_unchanged: Whether every snapshot and every row is as before, and none is the run's.
        works_again: Whether such a run succeeds once the fault is gone.
    """

    error: str
    message: str
    is_retried: bool
    is_unchanged: bool
    works_again: bool


def tried(lake: Lake, fault: Fault, operation: str, *, again: Lake | None = None) -> Trial:
    """Run under the fault and, on that lake or another on the same tables, without it.

    A SQLite connection that was opened for reading only stays so.
    """
    before = contents(lake)
    with fault(lake):
        result = run(lake, operation)
    after = contents(lake)
    # A replace leaves few files to whoever is next.
    works_again = run(again or lake, "replace" if operation in ("append", "merge") else operation).success
    if result.success:
        return Trial("", "", is_retried=False, is_unchanged=before == after, works_again=works_again)
    error = error_of(result)
    return Trial(
        error=error.class_name,
        message=str(error),
        is_retried=error.allow_retries,
        is_unchanged=before == after and all(item.get(lineage.RUN_ID) != result.run_id for item in after[1]),
        works_again=works_again,
    )


def contents(lake: Lake) -> tuple[Any, ...]:
    """The rows of the newest snapshots, and what all of them say of themselves."""
    ids = [snapshot.snapshot_id for snapshot in lake.table("t").snapshots()]
    rows = [sorted(map(str, lake.arrow("t", snapshot_id=item).to_pylist())) for item in ids[-3:]]
    return rows, lake.summaries("t"), ids


# ------------------------------------------------------------------------------------------------------------- files


def location(uri: str) -> Path:
    return Path("/" + uri.removeprefix("file:").lstrip("/"))


def table_directory_of(table: Table) -> Path:
    return location(table.location())


def warehouse_of(table: Table) -> Path:
    return table_directory_of(table).parents[1]


def metadata_file(table: Table) -> Path:
    return location(table.metadata_location)


def manifest_list(table: Table) -> Path:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return location(snapshot.manifest_list)


def manifest(table: Table) -> Path:
    return _live_files(table)[0][0]


def data_file(table: Table) -> Path:
    return _live_files(table)[0][1]


def _live_files(table: Table) -> list[tuple[Path, Path]]:
    """The table's data files in the partition `a`, each after its manifest."""
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return [
        (location(item.manifest_path), location(entry.data_file.file_path))
        for item in snapshot.manifests(table.io)
        for entry in item.fetch_manifest_entry(table.io)
        if entry.data_file.partition[0] == "a"
    ]


def missing(part: Callable[[Table], Path]) -> Fault:
    return lambda lake: moved(part(lake.table("t")))


def truncated(part: Callable[[Table], Path]) -> Fault:
    return lambda lake: halved(part(lake.table("t")))


@contextmanager
def moved(path: Path) -> Iterator[None]:
    """Take it away, and back: what a run has put in its place meanwhile goes."""
    away = path.with_name(f"{path.name}.away")
    path.rename(away)
    try:
        yield
    finally:
        shutil.rmtree(path, ignore_errors=True)
        away.rename(path)


@contextmanager
def halved(path: Path) -> Iterator[None]:
    """Cut it off, and with it the checksum of it that Hadoop keeps beside it."""
    checksum = path.with_name(f".{path.name}.crc")
    whole = {item: item.read_bytes() for item in (path, checksum) if item.exists()}
    path.write_bytes(whole[path][: len(whole[path]) // 2])
    checksum.unlink(missing_ok=True)
    try:
        yield
    finally:
        for item, content in whole.items():
            item.write_bytes(content)


# ------------------------------------------------------------------------------------------------------- permissions


def forbidden(part: Callable[[Lake], Path], mode: int) -> Fault:
    @contextmanager
    def fault(lake: Lake) -> Iterator[None]:
        path = part(lake)
        before = path.stat().st_mode
        path.chmod(mode)
        try:
            yield
        finally:
            path.chmod(before)

    return fault


def table_directory(lake: Lake) -> Path:
    return lake.directory / "wh" / "db" / "t"


def catalog_file(lake: Lake) -> Path:
    return lake.directory / "catalog.db"


PERMISSIONS: Final[dict[str, Fault]] = {
    "data directory is read-only": forbidden(lambda lake: table_directory(lake) / "data" / "k=a", 0o555),
    "data directory is closed": forbidden(lambda lake: table_directory(lake) / "data", 0),
    "data file is closed": forbidden(lambda lake: data_file(lake.table("t")), 0),
    "metadata directory is read-only": forbidden(lambda lake: table_directory(lake) / "metadata", 0o555),
    "metadata directory is closed": forbidden(lambda lake: table_directory(lake) / "metadata", 0),
    "warehouse is read-only": forbidden(lambda lake: lake.directory / "wh" / "db", 0o555),
    "catalog's directory is read-only": forbidden(lambda lake: lake.directory, 0o555),
}


# ---------------------------------------------------------------------------------------------------------- catalogs


@contextmanager
def impatient() -> Iterator[None]:
    """Let catalogs that are described meanwhile wait less for a lock."""
    with patch.object(sql_catalog, "SQLITE_BUSY_TIMEOUT_SECONDS", BUSY_SECONDS):
        yield


_LOCKER = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("begin exclusive")
print("locked", flush=True)
time.sleep(float(sys.argv[2]))
connection.execute("rollback")
"""


def locked(seconds: float) -> Fault:
    """Another process holds an exclusive lock for so long, or until the block ends."""

    @contextmanager
    def fault(lake: Lake) -> Iterator[None]:
        command = [sys.executable, "-c", _LOCKER, str(catalog_file(lake)), str(seconds)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as locker:
            assert locker.stdout is not None
            assert locker.stdout.readline() == b"locked\n"
            try:
                yield
            finally:
                locker.kill()

    return fault


@contextmanager
def locked_for_writers(lake: Lake) -> Iterator[None]:
    """A reader holds a lock that lets others read, and nobody commit."""
    reader = sqlite3.connect(catalog_file(lake), isolation_level=None)
    reader.execute("begin")
    reader.execute("select * from iceberg_tables").fetchone()
    try:
        yield
    finally:
        reader.close()


# -------------------------------------------------------------------------------------------------------------- disk


def full_disk(directory: Path | None) -> Fault:
    """Fill the small file system that the directory lies on; without one, let the JVM's files not grow."""
    return _filled(directory) if directory is not None else _limited


def _filled(directory: Path) -> Fault:
    @contextmanager
    def fault(_: Lake) -> Iterator[None]:
        ballast = directory / "ballast"
        with suppress(OSError), ballast.open("wb", buffering=0) as stream:
            while True:
                stream.write(bytes(4096))
        try:
            yield
        finally:
            ballast.unlink()

    return fault


@contextmanager
def _limited(lake: Lake) -> Iterator[None]:
    jvm = lake.spark.spark_context._gateway.proc.pid  # type: ignore[union-attr]
    _, hard = before = resource.prlimit(jvm, resource.RLIMIT_FSIZE)
    resource.prlimit(jvm, resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.prlimit(jvm, resource.RLIMIT_FSIZE, before)


# -------------------------------------------------------------------------------------------------------- the process


@contextmanager
def filled_lake(directory: Path, remote: str | None = None, **catalog: Any) -> Iterator[Lake]:
    """A lake whose table has rows in both partitions."""
    lakes = open_lake(catalog_in(directory, **catalog), directory, remote)
    lake = next(lakes)
    for key in KEYS.get_partition_keys():
        lake.materialize(written("append"), partition_key=key)
    try:
        yield lake
    finally:
        next(lakes, None)


@contextmanager
def unopened_lake(lake: Lake) -> Iterator[Lake]:
    """The same tables through connections that are opened when they are first used."""
    properties = {"clients": str(2 + next(_NUMBERS))}
    lakes = open_lake(lake.spark.catalog.model_copy(update={"properties": properties}), lake.directory, None)
    yield next(lakes)
    next(lakes, None)


def catalog_in(directory: Path, **catalog: Any) -> SqlCatalog:
    return SqlCatalog(**{"uri": f"sqlite:///{directory}/catalog.db", "warehouse": f"{directory}/wh", **catalog})


def main() -> None:
    told = json.load(sys.stdin)
    directory, disk = Path(told["directory"]), told["disk"] and Path(told["disk"])
    small = disk or directory
    trials = {}
    with (
        filled_lake(directory / "permissions") as lake,
        filled_lake(directory / "files", warehouse=f"{small}/wh") as small_lake,
        filled_lake(directory / "database", uri=f"sqlite:///{small}/small.db") as small_catalog_lake,
    ):
        lakes = {FULL_DISK: small_lake, FULL_CATALOG_DISK: small_catalog_lake}
        for fault, operation in told["cases"]:
            if fault == READ_ONLY_CATALOG:
                with unopened_lake(lake) as unopened:
                    trial = tried(unopened, forbidden(catalog_file, 0o444), operation, again=lake)
            else:
                trial = tried(lakes.get(fault, lake), PERMISSIONS.get(fault) or full_disk(disk), operation)
            trials[f"{fault}, {operation}"] = asdict(trial)
    Path(told["answer"]).write_text(json.dumps(trials))


if __name__ == "__main__":
    main()
