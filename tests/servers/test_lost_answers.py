"""Commits whose request or answer is lost, delayed or repeated on the way to a REST catalog: rows are there once."""

import datetime as dt
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, get_args

import dagster as dg
import pyarrow as pa
import pytest
from pyiceberg.table.snapshots import ancestors_of

from dagster_iceberg_spark import RestCatalog, errors
from tests.lakes import ArrowIOManager, Lake, StepError, error_of, frame_asset, hours_asset, open_lake, resuming
from tests.servers.conftest import emptied
from tests.servers.faults import Fault, FaultyProxy, Moment
from tests.servers.rest import RestServer

WAIT_SECONDS: Final = 30
PATIENCE_SECONDS: Final = 1
QUICK: Final = {"rest.client.max-retries": "1"}
FEW_RETRIES: Final = {"commit.retry.num-retries": "2"}
UTC: Final = dt.timezone.utc
DAYS: Final = dg.DailyPartitionsDefinition("2013-01-01", end_date="2013-02-01")

SCHEMA: Final = pa.schema([("id", pa.int32()), ("v", pa.string())])
OLD: Final = [(0, "old")]
OTHERS: Final = (9, "other")
QUERY: Final = "select * from values (0, 'new'), (1, 'new') as t(id, v)"
ROWS: Final = {
    "append": [(0, "new"), (0, "old"), (1, "new")],
    "replace": [(0, "new"), (1, "new")],
    "merge": [(0, "new"), (1, "new")],
}

STATUSES: Final = (401, 409, 419, 429, 500, 502, 503, 504)
FAULTS: Final = {
    "request dropped": Fault(forwards=0, answer=None),
    "response dropped": Fault(answer=None),
    **{f"{status} before": Fault(forwards=0, answer=status) for status in STATUSES},
    **{f"{status} after": Fault(answer=status) for status in STATUSES},
    "503 with Retry-After before": Fault(forwards=0, answer=503, retry_after_seconds=1),
    "503 with Retry-After after": Fault(answer=503, retry_after_seconds=1),
    "request delayed": Fault(seconds_before=0.3),
    "response delayed": Fault(seconds_after=0.3),
    "sent twice, first answer": Fault(forwards=2, answer="first"),
    "sent twice, second answer": Fault(forwards=2),
}
REPLACE_FAULTS: Final = [
    "response dropped",
    "409 before",
    "409 after",
    "500 before",
    "500 after",
    "503 with Retry-After after",
    "sent twice, second answer",
]
CASES: Final = [
    *((fault, "append") for fault in FAULTS),
    *((fault, "replace") for fault in REPLACE_FAULTS),
    *((fault, "merge") for fault in ("response dropped", "409 after", "500 after", "sent twice, second answer")),
]
CONNECT_CASES: Final = [
    *((fault, "append") for fault in ("response dropped", "409 before", "409 after", "500 after", "503 before")),
    *((fault, "replace") for fault in ("response dropped", "409 after")),
]
CASES_OF_TWO_WRITERS: Final = [
    ("response dropped", "append"),  # a replace or merge that others have followed is written again
    *((fault, disposition) for fault in ("409 after", "500 after") for disposition in ("append", "replace")),
]

pytestmark = [pytest.mark.server, pytest.mark.spark]


@pytest.fixture(scope="module")
def running_proxy(rest: RestServer) -> Iterator[FaultyProxy]:
    proxy = FaultyProxy(rest.uri)
    yield proxy
    proxy.close()


@pytest.fixture
def proxy(running_proxy: FaultyProxy) -> Iterator[FaultyProxy]:
    yield running_proxy
    running_proxy.heal()
    running_proxy.wait_until_idle(WAIT_SECONDS)


@pytest.fixture
def empty_lake(
    proxy: FaultyProxy, kept_instance: dg.DagsterInstance, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Lake]:
    """A lake behind the proxy, without tables; over Spark Connect where the test asks for its server."""
    remote = request.getfixturevalue("connect_server") if "connect_server" in request.fixturenames else None
    for opened in open_lake(emptied(RestCatalog(uri=proxy.uri, properties=QUICK)), tmp_path, remote):
        yield Lake(opened.spark, opened.io_manager, kept_instance, tmp_path)


@pytest.fixture
def lake(empty_lake: Lake) -> Lake:
    """The lake with one table, of one snapshot with one row."""
    catalog = empty_lake.spark.pyiceberg_catalog
    catalog.create_namespace("db")
    catalog.create_table("db.t", SCHEMA, properties=FEW_RETRIES).append(arrow_rows(*OLD))
    return empty_lake


@pytest.fixture
def arrow_lake(lake: Lake) -> Lake:
    """The same lake with rows that Arrow writes."""
    io_manager = ArrowIOManager(spark=lake.spark, namespace="db")
    return Lake(lake.spark, io_manager, lake.instance, lake.directory)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that give up early; named before the lake, whose catalog is described once."""
    monkeypatch.setattr("dagster_iceberg_spark.config.rest_catalog.CLIENT_ANSWER_TIMEOUT_SECONDS", PATIENCE_SECONDS)


def arrow_rows(*rows: tuple[int, str]) -> pa.Table:
    return pa.Table.from_pylist([{"id": number, "v": value} for number, value in rows], schema=SCHEMA)


class Attempts:
    """An asset's query, which notes how many snapshots there are before a step is tried again, and heals the proxy."""

    def __init__(self, lake: Lake, proxy: FaultyProxy) -> None:
        self.lake = lake
        self.proxy = proxy
        self.counted: list[int] = []

    def __call__(self, spark: Any) -> Any:
        if self.counted:
            self.proxy.heal()
        self.counted.append(len(tokens(self.lake)) if self.lake.exists("t") else 0)
        return spark.sql(QUERY)


def tokens(lake: Lake) -> list[str]:
    """The commit tokens of the table's history; what pyiceberg wrote has none, and what is rolled back is not in it."""
    table = lake.table("t")
    history = ancestors_of(table.current_snapshot(), table.metadata)
    summaries = [snapshot.summary.additional_properties for snapshot in history if snapshot.summary is not None]
    return [summary["dagster.commit_token"] for summary in summaries if "dagster.commit_token" in summary]


def asset_of(query: Any, disposition: str) -> dg.AssetsDefinition:
    metadata = {
        "iceberg/write_disposition": disposition,
        "iceberg/merge_keys": ["id"],
        "iceberg/table_properties": FEW_RETRIES,
    }
    return frame_asset("t", query, metadata=metadata, retry_policy=dg.RetryPolicy(max_retries=1))


def resumed(lake: Lake, first: dg.ExecuteInProcessResult, asset: Any, **kwargs: Any) -> dg.ExecuteInProcessResult:
    """Run the asset again as Dagster does that resumes a run."""
    return lake.materialize(asset, tags=resuming(first.run_id), **kwargs)


def retried_errors(result: dg.ExecuteInProcessResult) -> list[type[Exception]]:
    """The package's errors for which steps were tried again."""
    found: list[type[Exception]] = []
    for event in result.all_events:
        if event.is_step_up_for_retry:
            chain: Any = event.step_retry_data.error
            while chain is not None and not hasattr(errors, chain.cls_name):
                chain = chain.cause
            found.append(Exception if chain is None else getattr(errors, chain.cls_name))
    return found


def assert_outcome_unknown(error: StepError, committed: list[str]) -> None:
    """The error leaves the outcome open, and names the token."""
    assert error.class_name == "CommitOutcomeUnknownError", error
    named = re.search(r"`dagster.commit_token` = (\w+)", str(error))
    assert named is not None, error
    assert committed in ([], [named[1]])


def assert_rows_are_there_once(lake: Lake, proxy: FaultyProxy, disposition: str, *others: tuple[int, str]) -> None:
    """Run into the faults that are injected, then with none, and find one snapshot with one set of rows."""
    attempts, rows = Attempts(lake, proxy), sorted([*ROWS[disposition], *others])
    result = lake.materialize(asset_of(attempts, disposition), raise_on_error=False)
    proxy.wait_until_idle(WAIT_SECONDS)
    committed = tokens(lake)
    assert len(committed) == 1 if result.success else len(committed) <= 1
    assert lake.rows("t", "id", "v") == (rows if committed else sorted([*OLD, *others]))
    assert all(counted <= 1 for counted in attempts.counted)
    assert all(issubclass(error, errors.RetryableError) for error in retried_errors(result)), retried_errors(result)
    if not result.success:
        assert_outcome_unknown(error_of(result), committed)
        proxy.heal()
        assert resumed(lake, result, asset_of(QUERY, disposition)).success
        assert len(tokens(lake)) == 1
        assert lake.rows("t", "id", "v") == rows


@pytest.mark.sample(14)
@pytest.mark.parametrize(("fault", "disposition"), CASES)
def test_a_fault_at_one_commit_leaves_its_rows_once(
    lake: Lake, proxy: FaultyProxy, fault: str, disposition: str
) -> None:
    proxy.inject(FAULTS[fault])
    assert_rows_are_there_once(lake, proxy, disposition)


@pytest.mark.sample(10)
@pytest.mark.parametrize(("fault", "disposition"), [case for case in CASES if case[1] != "merge"])
def test_a_fault_at_one_commit_by_arrow_leaves_its_rows_once(
    arrow_lake: Lake, proxy: FaultyProxy, fault: str, disposition: str
) -> None:
    proxy.inject(FAULTS[fault])
    assert_rows_are_there_once(arrow_lake, proxy, disposition)


@pytest.mark.parametrize("fault", ["409 after", "500 after", "sent twice, second answer"])
def test_a_fault_at_a_replace_that_carries_rows_over_leaves_them_once(
    empty_lake: Lake, proxy: FaultyProxy, fault: str
) -> None:
    """One file holds rows of the day that is replaced, and of the next."""
    lake, catalog = empty_lake, empty_lake.spark.pyiceberg_catalog
    times = [dt.datetime(2013, 1, day, hour, tzinfo=UTC) for day in (1, 2) for hour in (0, 23)]
    old = pa.table({"ts": times, "v": [0] * 4}, pa.schema([("ts", pa.timestamp("us", "UTC")), ("v", pa.int32())]))
    catalog.create_namespace("db")
    catalog.create_table("db.t", old.schema, properties=FEW_RETRIES).append(old)
    asset = hours_asset("t", value="2", partitions_def=DAYS, retry_policy=dg.RetryPolicy(max_retries=1))
    proxy.inject(FAULTS[fault])
    first = lake.materialize(asset, partition_key="2013-01-01", raise_on_error=False)
    if not first.success:
        assert_outcome_unknown(error_of(first), tokens(lake))
        assert resumed(lake, first, asset, partition_key="2013-01-01").success
    assert lake.rows("t", "v") == [0] * 2 + [2] * 24
    assert len(tokens(lake)) == 1


@pytest.mark.parametrize("fault", ["response dropped", "503 before"])
def test_a_fault_at_the_first_commit_to_a_table_leaves_its_rows_once(
    empty_lake: Lake, proxy: FaultyProxy, fault: str
) -> None:
    lake = empty_lake
    proxy.inject(FAULTS[fault])
    first = lake.materialize(asset_of(Attempts(lake, proxy), "append"), raise_on_error=False)
    if not first.success:
        assert_outcome_unknown(error_of(first), tokens(lake))
        resumed(lake, first, asset_of(QUERY, "append"))
    assert len(tokens(lake)) == 1
    assert lake.rows("t", "id", "v") == ROWS["replace"]


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "fault", ["request dropped", "response dropped", "409 before", "429 before", "500 before", "503 after"]
)
def test_a_fault_that_lasts_for_an_attempt_leaves_the_rows_of_the_next_once(
    lake: Lake, proxy: FaultyProxy, fault: str
) -> None:
    proxy.inject(FAULTS[fault], times=None)
    assert_rows_are_there_once(lake.with_options(commit_attempts=2), proxy, "append")


@pytest.mark.sample(3)
@pytest.mark.connect
@pytest.mark.parametrize(("fault", "disposition"), CONNECT_CASES)
def test_a_fault_behind_a_connect_server_leaves_the_rows_once(
    connect_server: str, lake: Lake, proxy: FaultyProxy, fault: str, disposition: str
) -> None:
    proxy.inject(FAULTS[fault])
    assert_rows_are_there_once(lake, proxy, disposition)


@pytest.mark.sample(3)
@pytest.mark.parametrize(("fault", "disposition"), CASES_OF_TWO_WRITERS)
def test_what_another_writer_commits_before_the_answer_stays(
    lake: Lake, proxy: FaultyProxy, fault: str, disposition: str
) -> None:
    proxy.inject(FAULTS[fault])
    append_after_the_first_commit(lake, proxy)
    assert_rows_are_there_once(lake, proxy, disposition, OTHERS)


def test_what_another_writer_has_built_upon_a_commit_without_its_files_is_left_to_a_person(
    lake: Lake, proxy: FaultyProxy
) -> None:
    """Iceberg deletes the files of a merge that it takes for refused; it cannot be taken back under another's."""
    proxy.inject(FAULTS["409 after"])
    append_after_the_first_commit(lake, proxy)
    before = lake.head("t").snapshot_id
    error = lake.failure(asset_of(QUERY, "merge"))
    assert error.class_name == "UnreadableCommitError"
    assert f"roll the table back to the snapshot {before} before it" in str(error)
    assert lake.arrow("t", snapshot_id=before).to_pylist() == arrow_rows(*OLD).to_pylist()


def append_after_the_first_commit(lake: Lake, proxy: FaultyProxy) -> None:
    """Let another writer append right after the commit that is to come, before its client gets an answer."""
    table = lake.table("t")

    def on_commit(moment: Moment) -> None:
        if moment == "after forwarding" and len(table.refresh().snapshots()) == 2:
            proxy.on_commit = lambda _: None
            table.append(arrow_rows(OTHERS))

    proxy.on_commit = on_commit


Arrival: TypeAlias = Literal["before the next attempt", "before the next commit", "after the next commit"]


_ARRIVALS: Final[dict[Moment, Arrival]] = {
    "before forwarding": "before the next commit",
    "after forwarding": "after the next commit",
}


class LateRequest:
    """Holds the first commit until its client has given up, and lets it go at some moment of what comes then."""

    def __init__(self, arrival: Arrival) -> None:
        self.arrival = arrival
        self.released = threading.Event()
        self.arrived = threading.Event()
        self._first: threading.Thread | None = None

    def query(self, spark: Any) -> Any:
        """The asset's query, of each attempt."""
        if self._first is not None and self.arrival == "before the next attempt":
            self.let_go()
        return spark.sql(QUERY)

    def __call__(self, moment: Moment) -> None:
        current = threading.current_thread()
        if self._first in (None, current):
            self._first = current
            if moment == "before forwarding":
                self.released.wait(WAIT_SECONDS)
            else:
                self.arrived.set()
        elif self.arrival == _ARRIVALS[moment]:
            self.let_go()

    def let_go(self) -> None:
        self.released.set()
        assert self.arrived.wait(WAIT_SECONDS)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("arrival", "disposition"),
    [*((arrival, "append") for arrival in get_args(Arrival)), ("before the next commit", "replace")],
)
def test_a_commit_that_arrives_when_its_client_has_given_up_leaves_its_rows_once(
    impatient: None, lake: Lake, proxy: FaultyProxy, arrival: Arrival, disposition: str
) -> None:
    late = proxy.on_commit = LateRequest(arrival)
    first = lake.materialize(asset_of(late.query, disposition), raise_on_error=False)
    late.let_go()
    if not first.success:
        assert_outcome_unknown(error_of(first), tokens(lake))
        resumed(lake, first, asset_of(QUERY, disposition))
    assert len(tokens(lake)) == 1
    assert lake.rows("t", "id", "v") == ROWS[disposition]
