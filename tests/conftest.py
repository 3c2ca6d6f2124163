"""Which tests run when, and the fixtures that all share: the engines, and a lake on each.

Nothing here imports Dagster, Spark or pyiceberg before a test needs them.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pytest

if TYPE_CHECKING:
    import dagster as dg

    from tests.lakes import Before, Lake

# No test uses the machine's time zone either. Spark's JVM inherits it.
os.environ["TZ"] = "America/St_Johns"
time.tzset()

# Tests do not see the machine's AWS settings, and no client waits for credentials of an EC2 instance.
for name in [name for name in os.environ if name.startswith("AWS_")]:
    del os.environ[name]
os.environ.update(AWS_EC2_METADATA_DISABLED="true", AWS_CONFIG_FILE=os.devnull, AWS_SHARED_CREDENTIALS_FILE=os.devnull)

# The tests start many JVMs and run little in each: compiling less takes 40 % less processor time, and not verifying
# bytecode takes 20 % less at the start. Compiling less also reduces the code cache to 48 MB. A long-lived JVM fills it,
# then sweeps and recompiles, and finally interprets its code.
_JAVA_OPTIONS: Final = (
    "-XX:TieredStopAtLevel=1",
    "-XX:ReservedCodeCacheSize=240m",
    "-XX:+UseSerialGC",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
)
os.environ.setdefault("JDK_JAVA_OPTIONS", " ".join(_JAVA_OPTIONS))

Opened: TypeAlias = tuple[Path, str | None]
"""The directory of a file's lakes, and the address of the Spark Connect server, if there is one."""

SEEN: Final = pytest.StashKey[set[tuple[str, str]]]()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the cases of tests that need an engine by when they run. Put the most important case first.

    `make test` runs the first case of a test on classic Spark, and `make test-full` the others. On Spark Connect, a
    test with the mark `each_engine` has its first case in `make test-full`, or in `make test` if the mark says "quick".
    If it says "all", its other cases are in `make test-full` too. The rest of the product runs in `make test-long`.
    """
    engine = _engine_of(item)
    item.add_marker(pytest.mark.xdist_group(_process_of(item, engine)))
    if not engine or item.get_closest_marker("slow") is not None:
        return
    seen = item.session.stash.setdefault(SEEN, set())
    test = (_test_of(item), engine)
    is_first = test not in seen
    seen.add(test)
    if is_first and any(item.get_closest_marker(name) for name in ("feature", "each_engine")):
        item.add_marker(pytest.mark.versions)
    when = _when(item, engine, is_first=is_first)
    if when is not None:
        item.add_marker(when)


def _test_of(item: pytest.Item) -> str:
    """Return what the cases of a test have in common."""
    return f"{item.path}::{getattr(item, 'originalname', item.name)}"


def _engine_of(item: pytest.Item) -> str:
    """Return the engine that the test needs, or an empty text. Tests with servers have both."""
    if item.get_closest_marker("spark") is None or item.get_closest_marker("server") is not None:
        return ""
    if "connect_server" in getattr(item, "fixturenames", ()):
        return "connect"
    callspec = getattr(item, "callspec", None)
    return str(callspec.params.get("engine", "classic")) if callspec is not None else "classic"


def _when(item: pytest.Item, engine: str, *, is_first: bool) -> pytest.MarkDecorator | None:
    """Return the mark of a case, or None for `make test`."""
    if engine == "arrow":
        return pytest.mark.full if is_first else pytest.mark.slow
    if engine != "connect" or "engine" not in getattr(item, "fixturenames", ()):
        return None if is_first else pytest.mark.full
    each = item.get_closest_marker("each_engine")
    chooses = any("engine" in str(mark.args[0]) for mark in item.iter_markers("parametrize"))
    if each is not None and is_first and "quick" in each.args:
        return None
    if chooses or (each is not None and (is_first or "all" in each.args)):
        return pytest.mark.full
    return pytest.mark.slow


def _process_of(item: pytest.Item, engine: str) -> str:
    """Return the group of a test, whose tests run in one process. The largest groups run first.

    Long tests that start their own processes are a group, or the last of them would run alone at the end.
    """
    if item.get_closest_marker("processes") is not None:
        return "processes"
    return "connect" if engine == "connect" else item.nodeid.partition("::")[0]


@pytest.hookimpl(tryfirst=True, specname="pytest_collection_modifyitems")  # before they are selected
def pytest_sample_grids(items: list[pytest.Item]) -> None:
    """Leave cases of tests with the mark `sample` to `make test-long`. The first case stays, and others in between."""
    grids: dict[tuple[str, str], list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sample") is not None:
            grids.setdefault((_test_of(item), _engine_of(item)), []).append(item)
    for cases in grids.values():
        number = cases[0].get_closest_marker("sample").args[0]  # type: ignore[union-attr]
        chosen = {len(cases) * position // number for position in range(number)}
        for position, item in enumerate(cases):
            if position not in chosen:
                item.add_marker(pytest.mark.slow)


@pytest.hookimpl(tryfirst=True, specname="pytest_collection_modifyitems")
def pytest_leave_out_arrow(items: list[pytest.Item], config: pytest.Config) -> None:
    """Run only the tests of the core's behavior by Arrow, but not those with the mark `by_spark`."""
    is_left_out = [_engine_of(item) == "arrow" and not _is_for_arrow(item) for item in items]
    config.hook.pytest_deselected(items=list(compress(items, is_left_out)))
    items[:] = [item for item, is_left in zip(items, is_left_out, strict=True) if not is_left]


def _is_for_arrow(item: pytest.Item) -> bool:
    uses_lake = "lake" in getattr(item, "fixturenames", ())
    return "behaviour" in item.path.parts and uses_lake and item.get_closest_marker("by_spark") is None


@pytest.hookimpl(trylast=True)  # after the tests have been selected
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run tests without an engine first. Give the JVM the jars that the selected tests need."""
    items.sort(key=_needs_an_engine)
    if any(item.get_closest_marker("server") is not None for item in items):
        from tests.lakes import add_server_jars

        add_server_jars()


def _needs_an_engine(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) is not None for name in ("spark", "server"))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Keep Hypothesis's plugin from importing Hypothesis for its summary, which takes as long as a file of tests."""
    if "hypothesis" not in sys.modules:
        session.config.pluginmanager.unregister(name="hypothesispytest")


@pytest.fixture(scope="session", params=["classic", pytest.param("connect", marks=pytest.mark.connect), "arrow"])
def engine(request: pytest.FixtureRequest) -> str:
    """Run the test in a classic session, on Spark Connect, and with rows that Arrow writes where it can.

    With Arrow, the DataFrames of a classic session become Arrow tables before the IO manager stores them.
    """
    return str(request.param)


@pytest.fixture(scope="session")
def connect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a real Spark Connect server and yield its address."""
    from dagster_iceberg_spark.resource import SESSIONS
    from tests.lakes import ConnectServer, start_classic

    start_classic()
    server = ConnectServer(tmp_path_factory.mktemp("connect"))
    try:
        server.start()
        yield server.address
    finally:
        # At exit, pyspark's own clean-up would wait minutes for a server that is gone.
        SESSIONS.close_all()
        server.kill()


@pytest.fixture(scope="module")
def kept_instance(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[dg.DagsterInstance]":
    """A persistent instance, so that runs can be resumed."""
    from tests.instances import local_instance

    with local_instance(tmp_path_factory.mktemp("instance")) as instance:
        yield instance


@pytest.fixture
def made_instance() -> "Iterator[dg.DagsterInstance]":
    import dagster as dg

    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture(scope="module")
def opened(engine: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    """A session for the lakes of a file's tests, and their directory."""
    from tests.lakes import open_session

    remote = request.getfixturevalue("connect_server") if engine == "connect" else None
    directory = tmp_path_factory.mktemp("lake")
    with open_session(directory, remote):
        yield directory, remote


@pytest.fixture
def lake(opened: Opened, engine: str) -> "Iterator[Lake]":
    """An empty lake on SQLite and local files."""
    from tests.lakes import open_emptied_lake

    yield from open_emptied_lake(*opened, by_arrow=engine == "arrow")


@pytest.fixture(scope="module")
def read_lake(opened: Opened, tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Lake]":
    """A lake that keeps its tables. The tests of a file write each with `once`, and only read them after that."""
    from tests.lakes import open_lake, sqlite_in

    directory, (_, remote) = tmp_path_factory.mktemp("read"), opened
    for lake in open_lake(sqlite_in(directory), directory, remote):
        yield lake
        assert {name: lake.head(name).snapshot_id for name in lake.heads} == lake.heads


@pytest.fixture
def own_lake(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> "Iterator[Lake]":
    """An empty lake with a session of its own, for tests of sessions and catalogs."""
    from tests.lakes import open_lake, sqlite_in

    remote = request.getfixturevalue("connect_server") if engine == "connect" else None
    yield from open_lake(sqlite_in(tmp_path), tmp_path, remote)


@pytest.fixture
def kept_lake(lake: "Lake", kept_instance: "dg.DagsterInstance") -> "Lake":
    """A lake whose runs can be resumed."""
    from tests.lakes import Lake

    return Lake(lake.spark, lake.io_manager, kept_instance, lake.directory)


@pytest.fixture(scope="module")
def classic_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of the lakes of a file's tests, which have one classic session."""
    from tests.lakes import open_session

    directory = tmp_path_factory.mktemp("lake")
    with open_session(directory, None):
        yield directory


@pytest.fixture
def classic_lake(classic_directory: Path) -> "Iterator[Lake]":
    """An empty lake with a classic session, for behavior that does not depend on the engine."""
    from tests.lakes import open_emptied_lake

    yield from open_emptied_lake(classic_directory, None)


@pytest.fixture
def before_publication(monkeypatch: pytest.MonkeyPatch) -> "Before":
    """Run something once, after the audits and before the publication."""
    from dagster_iceberg_spark.commit import staged_write as publication

    def once(action: Callable[[], Any]) -> None:
        publish, left = getattr(publication, "publish"), [action]  # noqa: B009 - not exported

        def published(*args: Any, **kwargs: Any) -> Any:
            if left:
                left.pop()()
            return publish(*args, **kwargs)

        monkeypatch.setattr(publication, "publish", published)

    return once
