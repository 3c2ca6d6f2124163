"""A storage that fails: a clear error, nothing lost, nothing half done, and the next run works."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.core.behaviour import faults
from tests.core.behaviour.faults import Trial, filled_lake, impatient, missing, truncated
from tests.lakes import Lake

SECONDS = 200

pytestmark = [pytest.mark.server, pytest.mark.spark]


def assert_refused(trial: Trial, error: str, *, is_retried: bool) -> None:
    """The run failed as it should, and left nothing behind that counts."""
    assert (trial.error, trial.is_retried) == (error, is_retried), trial.message
    assert trial.message.startswith("Cannot ")
    assert ": expected " in trial.message
    assert ", found " in trial.message
    assert " Hint: " in trial.message
    assert "\n" not in trial.message
    assert "\tat " not in trial.message
    assert trial.is_unchanged
    assert trial.works_again


# ------------------------------------------------------------------------------------------------- files of the table


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A lake that every test breaks and mends."""
    with filled_lake(tmp_path_factory.mktemp("filled")) as lake:
        yield lake


@pytest.fixture(scope="module")
def filled_on_connect(connect_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """The same over Spark Connect, whose client knows less of what went wrong."""
    with impatient(), filled_lake(tmp_path_factory.mktemp("connect"), connect_server) as lake:
        yield lake


DAMAGES: Final = {
    "the table's directory is gone": (missing(faults.table_directory_of), ("append", "read by pyarrow")),
    "the warehouse is gone": (missing(faults.warehouse_of), ("append", "read by Spark")),
    "the metadata file is missing": (missing(faults.metadata_file), ("replace", "read by pyarrow")),
    "the metadata file is cut off": (truncated(faults.metadata_file), ("merge", "read by pyarrow", "read by Spark")),
    "the manifest list is missing": (missing(faults.manifest_list), ("append", "read by pyarrow", "read by Spark")),
    "the manifest list is cut off": (truncated(faults.manifest_list), ("append", "read by pyarrow", "read by Spark")),
    "a manifest is missing": (missing(faults.manifest), ("replace", "merge", "read by pyarrow", "read by Spark")),
    "a manifest is cut off": (truncated(faults.manifest), ("replace", "read by pyarrow", "read by Spark")),
    "a data file is missing": (missing(faults.data_file), ("merge", "read by pyarrow", "read by Spark")),
    "a data file is cut off": (truncated(faults.data_file), ("merge", "read by pyarrow", "read by Spark")),
}
"""By what is broken: how, and the runs that need it."""
ON_CONNECT: Final = {
    "the manifest list is cut off": "append",
    "a manifest is missing": "replace",
    "a data file is missing": "merge",
    "a data file is cut off": "read by Spark",
}


@pytest.mark.sample(10)
@pytest.mark.parametrize(
    ("damage", "operation"), [(damage, operation) for damage in DAMAGES for operation in DAMAGES[damage][1]]
)
def test_a_damaged_table_is_to_be_looked_into(filled: Lake, damage: str, operation: str) -> None:
    assert_refused(faults.tried(filled, DAMAGES[damage][0], operation), "InvestigationError", is_retried=False)


@pytest.mark.connect
@pytest.mark.parametrize(("damage", "operation"), ON_CONNECT.items())
def test_a_damaged_table_is_to_be_looked_into_on_connect(filled_on_connect: Lake, damage: str, operation: str) -> None:
    trial = faults.tried(filled_on_connect, DAMAGES[damage][0], operation)
    assert_refused(trial, "InvestigationError", is_retried=False)


def test_rows_that_nobody_can_read_any_more_can_be_replaced(filled: Lake) -> None:
    with missing(faults.data_file)(filled):
        assert faults.run(filled, "replace").success
        assert faults.run(filled, "read by pyarrow").success


def test_a_table_whose_files_are_lost_is_made_again_once_it_is_dropped(tmp_path: Path) -> None:
    with filled_lake(tmp_path) as lake:
        shutil.rmtree(tmp_path / "wh")
        assert not faults.run(lake, "append").success
        lake.spark.pyiceberg_catalog.drop_table(("db", "t"))
        assert faults.run(lake, "append").success
        assert lake.rows("t", "k") == ["a"] * 5


# ----------------------------------------------------------------------------------------------------- locked catalogs


@pytest.fixture(scope="module")
def impatient_lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A lake that waits for a lock only a little."""
    with impatient(), filled_lake(tmp_path_factory.mktemp("impatient")) as lake:
        yield lake


LONGER: Final = faults.BUSY_SECONDS * 10
SHORTER: Final = faults.BUSY_SECONDS / 2
LOCKS: Final = {
    "nobody reads or writes": (faults.locked(LONGER), ("append", "read by pyarrow")),
    "nobody writes": (faults.locked_for_writers, ("append", "create")),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize(("lock", "operation"), [(lock, operation) for lock in LOCKS for operation in LOCKS[lock][1]])
def test_a_catalog_that_stays_locked_is_asked_again_later(impatient_lake: Lake, lock: str, operation: str) -> None:
    trial = faults.tried(impatient_lake, LOCKS[lock][0], operation)
    assert_refused(trial, "CatalogUnavailableError", is_retried=True)


@pytest.mark.connect
def test_a_catalog_that_stays_locked_is_asked_again_later_on_connect(filled_on_connect: Lake) -> None:
    trial = faults.tried(filled_on_connect, faults.locked_for_writers, "append")
    assert_refused(trial, "CatalogUnavailableError", is_retried=True)


@pytest.mark.parametrize("operation", ["append", "read by pyarrow"])
def test_a_catalog_that_is_locked_for_a_moment_is_waited_for(impatient_lake: Lake, operation: str) -> None:
    with faults.locked(SHORTER)(impatient_lake):
        assert faults.run(impatient_lake, operation).success


# -------------------------------------------------------------------------------------------- without root's privileges

FORBIDDEN: Final = {
    "data directory is read-only": ("append", "merge"),
    "data directory is closed": ("append", "read by pyarrow"),
    "data file is closed": ("merge", "read by pyarrow", "read by Spark"),
    "metadata directory is read-only": ("append", "replace"),
    "metadata directory is closed": ("append", "read by pyarrow", "read by Spark"),
    "warehouse is read-only": ("create",),
    "catalog's directory is read-only": ("append", "create"),
    faults.READ_ONLY_CATALOG: ("append",),
}
INVISIBLE: Final = {"data directory is closed": ("read by Spark",)}
FULL: Final = {faults.FULL_DISK: ("append", "merge"), faults.FULL_CATALOG_DISK: ("append", "create")}


@pytest.fixture(scope="module")
def trials(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trial]:
    """What a process whom permissions bind has tried, for the tests of this run."""
    directory = tmp_path_factory.mktemp("unprivileged")
    disk = directory / "disk"
    disk.mkdir()
    command, has_disk = unprivileged(disk)
    told = {
        "directory": str(directory),
        "disk": str(disk) if has_disk else None,
        "answer": str(directory / "answer.json"),
        "cases": [
            (item.callspec.params["fault"], item.callspec.params["operation"])
            for item in request.session.items
            if isinstance(item, pytest.Function) and "trials" in item.fixturenames
        ],
    }
    answer = subprocess.run(
        [*command, sys.executable, "-m", faults.__name__],
        input=json.dumps(told),
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        cwd=Path(__file__).parents[3],
    )
    assert answer.returncode == 0, (answer.stdout + answer.stderr)[-6000:]
    return {case: Trial(**trial) for case, trial in json.loads((directory / "answer.json").read_text()).items()}


def unprivileged(disk: Path) -> tuple[list[str], bool]:
    """What starts a process without root's privileges, and whether it sees a small disk of its own in that place."""
    bound = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    alone = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
    mount = f"mount -t tmpfs -o size=8m tmpfs '{disk}'"
    if shutil.which("unshare") and subprocess.run([*alone, "sh", "-c", mount], check=False).returncode == 0:
        return [*alone, "sh", "-c", f'{mount} && exec "$@"', "sh", *bound], True
    return (bound if os.geteuid() == 0 else []), False


def cases(*tables: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    return [(fault, operation) for table in tables for fault, operations in table.items() for operation in operations]


@pytest.mark.sample(5)
@pytest.mark.parametrize(("fault", "operation"), cases(FORBIDDEN))
def test_what_must_not_be_touched_is_to_be_permitted(trials: dict[str, Trial], fault: str, operation: str) -> None:
    assert_refused(trials[f"{fault}, {operation}"], "ConfigurationError", is_retried=False)


@pytest.mark.parametrize(("fault", "operation"), cases(INVISIBLE))
def test_what_must_not_even_be_seen_counts_as_missing(trials: dict[str, Trial], fault: str, operation: str) -> None:
    trial = trials[f"{fault}, {operation}"]
    assert_refused(trial, "InvestigationError", is_retried=False)
    assert "let the user that runs Spark and this process see" in trial.message


@pytest.mark.parametrize(("fault", "operation"), cases(FULL))
def test_a_full_disk_may_have_room_again(trials: dict[str, Trial], fault: str, operation: str) -> None:
    assert_refused(trials[f"{fault}, {operation}"], "CatalogUnavailableError", is_retried=True)
