"""Many writers of one table: a quarter of them are processes, the others sessions; others maintain it beside them.

Every third writer hands its rows over as Arrow tables, which need no Spark to be written, unless they are merged.
"""

import datetime as dt
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import cycle
from pathlib import Path
from typing import Any, Final

import pytest
from py4j.protocol import Py4JError
from pyiceberg.table.snapshots import Snapshot, ancestors_of
from pyspark.errors import PySparkException

from tests.lakes import SPARK_CONF, Lake
from tests.servers.writing import Done, Work, perform, resources_of

WRITERS: Final = 8
WRITERS_OF_LONG_TESTS: Final = 16
ROWS: Final = 5
UTC: Final = dt.timezone.utc
START_SECONDS: Final = 240

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.timeout(600)]
Writer = Callable[[Work | None], Done | None]


class WritingProcess:
    """A writer with a Python process and a JVM of its own."""

    def __init__(self, number: int, directory: Path) -> None:
        self._by_arrow = number % 3 == 0
        self._log = (directory / f"writer-{number}.log").open("w")
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.servers.writing"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=Path(__file__).parents[2],
            text=True,
        )

    def tell(self, catalog: Any, work: Work | None) -> Done | None:
        """Let it materialize, or only open the catalog."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        described = {"kind": catalog.kind, **catalog.model_dump(exclude_defaults=True)}
        told = {
            "catalog": described,
            "spark_config": SPARK_CONF,
            "work": work and work.__dict__,
            "by_arrow": self._by_arrow,
        }
        self._process.stdin.write(json.dumps(told) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, Path(self._log.name).read_text()[-4000:]
        answer = json.loads(line)
        return Done(**answer) if answer else None

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait(60)
        self._log.close()


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], Sequence[WritingProcess]]]:
    """So many processes as are asked for. They stay for the tests that follow."""
    directory, started = tmp_path_factory.mktemp("writers"), list[WritingProcess]()

    def first(number: int) -> Sequence[WritingProcess]:
        started.extend(WritingProcess(one, directory) for one in range(len(started), number))
        return started[:number]

    yield first
    for process in started:
        process.close()


@pytest.fixture
def writers(
    classic_lake: Lake, processes: Callable[[int], Sequence[WritingProcess]], request: pytest.FixtureRequest
) -> Sequence[Writer]:
    """All of them, with their sessions open."""
    catalog = classic_lake.spark.catalog
    number_of_all = WRITERS_OF_LONG_TESTS if request.node.get_closest_marker("slow") else WRITERS

    def told(process: WritingProcess) -> Writer:
        return lambda work: process.tell(catalog, work)

    def session(number: int) -> Writer:
        conf = {**SPARK_CONF, "spark.sql.shuffle.partitions": str(number)}
        resources = resources_of(catalog, conf, by_arrow=number % 3 == 0)
        return lambda work: perform(work, resources) if work else resources["spark"].spark_session and None

    writers = [told(process) for process in processes(number_of_all // 4)]
    writers += [session(number) for number in range(2, 2 + number_of_all - len(writers))]
    all_at_once(writers, [None] * number_of_all)
    return writers


def all_at_once(writers: Sequence[Writer], works: Sequence[Work | None]) -> list[Any]:
    """Let each writer do its work when all are ready."""
    barrier = threading.Barrier(len(works))

    def do(writer: Writer, work: Work | None) -> Done | None:
        barrier.wait()
        return writer(work)

    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(do, writers, works))


@contextmanager
def maintenance_beside(lake: Lake, table: str) -> Iterator[list[str]]:
    """Compact, expire and change the schema of the table over and over; yields what has been done."""
    stopped, done = threading.Event(), list[str]()
    name = f"lake.db.{table}"
    calls = [
        f"CALL lake.system.rewrite_data_files(table => 'db.{table}', options => map('rewrite-all', 'true'))",
        f"CALL lake.system.expire_snapshots(table => 'db.{table}', retain_last => 200)",
        f"ALTER TABLE {name} ADD COLUMN extra{{number}} int",
    ]

    def maintain() -> None:
        beside = resources_of(lake.spark.catalog, {**SPARK_CONF, "spark.sql.shuffle.partitions": "40"})
        session = beside["spark"].spark_session
        for number, call in enumerate(cycle(calls)):
            if stopped.wait(0.2):
                return
            with suppress(PySparkException, Py4JError):  # maintenance may meet conflicts; writers are what is tested
                session.sql(call.format(number=number))
                done.append(call.split("(")[0].split(name)[0])

    thread = threading.Thread(target=maintain)
    thread.start()
    try:
        yield done
    finally:
        stopped.set()
        thread.join()


def history(lake: Lake, table: str) -> list[Snapshot]:
    """The snapshots that materializations made, oldest first."""
    found = lake.table(table)
    snapshots = list(ancestors_of(found.current_snapshot(), found.metadata))
    return [item for item in reversed(snapshots) if "dagster.run_id" in properties_of(item)]


def properties_of(snapshot: Snapshot) -> Mapping[str, str]:
    return snapshot.summary.additional_properties if snapshot.summary else {}


def runs_of(snapshots: Sequence[Snapshot]) -> list[str]:
    return [properties_of(snapshot)["dagster.run_id"] for snapshot in snapshots]


def assert_committed_once_or_failed_retryably(lake: Lake, table: str, done: Sequence[Done]) -> list[Done]:
    """Return the successes, each of which has one snapshot; the others have none and may be tried again."""
    successes = [item for item in done if item.error is None]
    assert sorted(runs_of(history(lake, table))) == sorted(item.run_id for item in successes)
    assert all(item.may_retry for item in done if item.error is not None), done
    return successes


@pytest.mark.sample(1)
def test_disjoint_partitions_of_a_new_table_are_all_there(classic_lake: Lake, writers: Sequence[Writer]) -> None:
    query = f"select {{start}} + make_interval(0, 0, 0, 0, int(id)) as ts, id from range({ROWS})"
    for month in ("01", "02"):
        days = [f"2013-{month}-{number:02}" for number in range(1, len(writers) + 1)]
        done = all_at_once(writers, [Work("t", query, "replace", day) for day in days])
        assert [item.error for item in done] == [None] * len(writers)
    found = classic_lake.rows("t", "ts", "id")
    expected = [
        (dt.datetime(2013, month, day, hour, tzinfo=UTC), hour)
        for month in (1, 2)
        for day in range(1, len(writers) + 1)
        for hour in range(ROWS)
    ]
    assert found == expected
    assert len(history(classic_lake, "t")) == 2 * len(writers)


@pytest.mark.sample(1)
def test_disjoint_partitions_are_all_there_while_others_maintain_the_table(
    classic_lake: Lake, writers: Sequence[Writer]
) -> None:
    query = f"select {{start}} as ts, id from range({ROWS})"
    first = writers[-1](Work("t", query, "replace", "2013-02-20"))
    assert first is not None
    days = [f"2013-01-{number:02}" for number in range(1, len(writers) + 1)]
    with maintenance_beside(classic_lake, "t") as maintained:
        done = all_at_once(writers, [Work("t", query, "replace", day) for day in days])
    assert maintained
    successes = assert_committed_once_or_failed_retryably(classic_lake, "t", [first, *done])
    assert len(classic_lake.rows("t", "id")) == ROWS * len(successes)
    # What failed may be tried again, and then succeeds.
    for day, item in zip(days, done, strict=True):
        if item.error is not None:
            again = writers[-1](Work("t", query, "replace", day))
            assert again is not None
            assert again.error is None
    assert len(classic_lake.rows("t", "id")) == ROWS * (len(writers) + 1)


@pytest.mark.sample(1)
def test_of_one_partition_the_content_is_one_writers(classic_lake: Lake, writers: Sequence[Writer]) -> None:
    query = f"select {{{{start}}}} as ts, {{writer}} as id from range({ROWS})"
    works = [Work("t", query.format(writer=number), "replace", "2013-01-01") for number in range(8)]
    done = all_at_once(writers[:: len(writers) // 8], works)
    assert_committed_once_or_failed_retryably(classic_lake, "t", done)
    last = runs_of(history(classic_lake, "t"))[-1]
    [winner] = [number for number, item in enumerate(done) if item.run_id == last]
    assert classic_lake.rows("t", "id") == [winner] * ROWS


@pytest.mark.sample(2)
def test_every_row_of_an_append_is_there_once(classic_lake: Lake, writers: Sequence[Writer]) -> None:
    works = [
        Work("t", f"select id + {ROWS * number} as id from range({ROWS})", "append") for number in range(len(writers))
    ]
    first, *rest = works
    done = [writers[0](first)]
    with maintenance_beside(classic_lake, "t"):
        done += all_at_once(writers[1:], rest)
    successes = assert_committed_once_or_failed_retryably(classic_lake, "t", [item for item in done if item])
    written = [number for number, item in enumerate(done) if item in successes]
    assert classic_lake.rows("t", "id") == [ROWS * number + row for number in written for row in range(ROWS)]


@pytest.mark.sample(1)
def test_a_serial_order_explains_merges_of_overlapping_keys(classic_lake: Lake, writers: Sequence[Writer]) -> None:
    """Writer n merges the keys from n on: the last in the history that has a key has given it its value."""
    queries = [f"select id + {number} as id, {number} as writer from range({ROWS})" for number in range(len(writers))]
    done = all_at_once(writers, [Work("t", query, "merge") for query in queries])
    assert_committed_once_or_failed_retryably(classic_lake, "t", done)
    by_run = {item.run_id: number for number, item in enumerate(done)}
    expected: dict[int, int] = {}
    for run in runs_of(history(classic_lake, "t")):
        expected |= dict.fromkeys(range(by_run[run], by_run[run] + ROWS), by_run[run])
    assert classic_lake.rows("t", "id", "writer") == sorted(expected.items())
