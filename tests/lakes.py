"""Lakes for tests: a catalog with its session and its IO manager, and what tests do with them."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import dagster as dg
import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession

from dagster_iceberg_spark import DuckLakeMirror, IcebergPySparkIOManager, IcebergSparkResource, SqlCatalog
from dagster_iceberg_spark.features.testing.lake import empty_catalog
from dagster_iceberg_spark.resource import SESSIONS
from dagster_iceberg_spark.versions import (
    ICEBERG_AWS_BUNDLE,
    ICEBERG_AZURE_BUNDLE,
    ICEBERG_EXTENSIONS,
    ICEBERG_GCP_BUNDLE,
    ICEBERG_SPARK_RUNTIME,
    ICEBERG_VERSION,
    MYSQL_JDBC,
    POSTGRESQL_JDBC,
    SPARK_VERSION,
    SQLITE_JDBC,
)

# A test that needs no engine starts in half the time without these imports.
if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

TESTED_BUNDLES = (
    ICEBERG_AZURE_BUNDLE.replace(ICEBERG_VERSION, "1.10.0"),
    ICEBERG_GCP_BUNDLE.replace(ICEBERG_VERSION, "1.11.0"),
)
"""Older versions than the package uses, since mirrors of Maven Central lag behind."""

CONNECT_JARS = ("org.apache.spark:spark-connect_2.12:3.5.7",) if SPARK_VERSION == "3.5" else ()
"""Spark has Connect in its own distribution from 4.0 on."""
JARS = (ICEBERG_SPARK_RUNTIME, SQLITE_JDBC, *CONNECT_JARS)
SERVER_JARS = (*JARS, ICEBERG_AWS_BUNDLE, MYSQL_JDBC, POSTGRESQL_JDBC, *TESTED_BUNDLES)
SPARK_CONF = {
    "spark.master": "local[2]",
    "spark.driver.memory": "2g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "Asia/Tokyo",
    "spark.jars.packages": ",".join(JARS),
}
"""A session with a time zone that no test uses, so that no result depends on it."""
CONNECT_CONF = {key: value for key, value in SPARK_CONF.items() if key.startswith("spark.sql.")}
CONNECT_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
SERVER_START_SECONDS = 120


def add_server_jars() -> None:
    """Give all JVMs the jars of servers. A Spark Connect server copies all of its jars for each new session."""
    SPARK_CONF["spark.jars.packages"] = ",".join(SERVER_JARS)


Query = str | Callable[[SparkSession], Any]


@dataclass
class Lake:
    """A catalog with its resources, and shortcuts for tests."""

    spark: IcebergSparkResource
    io_manager: IcebergPySparkIOManager
    instance: dg.DagsterInstance
    directory: Path
    heads: dict[str, int] = field(default_factory=dict)
    """The newest snapshots of the tables that are written once."""

    @property
    def session(self) -> SparkSession:
        return self.spark.spark_session

    @property
    def resources(self) -> dict[str, Any]:
        return {"spark": self.spark, "iceberg": self.io_manager, "io_manager": dg.mem_io_manager}

    def with_options(self, **options: Any) -> "Lake":
        """Return the same lake with an IO manager that has other options."""
        given = {"namespace": "db", **mirror_options(self.directory), **options}
        io_manager = type(self.io_manager)(spark=self.spark, **given)
        return Lake(self.spark, io_manager, self.instance, self.directory)

    def materialize(self, *assets: Any, raise_on_error: bool = True, **kwargs: Any) -> dg.ExecuteInProcessResult:
        return dg.materialize(
            list(assets), resources=self.resources, instance=self.instance, raise_on_error=raise_on_error, **kwargs
        )

    def materialize_range(self, *assets: Any, first: str, last: str, **kwargs: Any) -> dg.ExecuteInProcessResult:
        tags = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}
        return self.materialize(*assets, tags=tags, **kwargs)

    def once(self, asset: dg.AssetsDefinition, *, first: str | None = None, last: str | None = None) -> None:
        """Materialize an asset, or a range of its partitions, unless an earlier test has done so."""
        name = asset.key.path[-1]
        if name not in self.heads:
            if first is not None and last is not None:
                self.materialize_range(asset, first=first, last=last)
            else:
                self.materialize(asset)
            self.heads[name] = self.head(name).snapshot_id

    def failure(self, *assets: Any, **kwargs: Any) -> "StepError":
        """Materialize assets that must fail, and return the package's error."""
        result = self.materialize(*assets, raise_on_error=False, **kwargs)
        assert not result.success
        return error_of(result)

    def table(self, name: str, namespace: str = "db") -> "Table":
        return self.spark.pyiceberg_catalog.load_table((namespace, name))

    def head(self, name: str) -> "Snapshot":
        snapshot = self.table(name).current_snapshot()
        assert snapshot is not None
        return snapshot

    def arrow(self, name: str, **scan: Any) -> pa.Table:
        return self.table(name).scan(**scan).to_arrow()

    def rows(self, name: str, *columns: str) -> list[Any]:
        """Return all rows, sorted. For one column, return its values."""
        table = self.arrow(name)
        picked = [table.column(column).to_pylist() for column in columns or table.column_names]
        return sorted(picked[0] if len(picked) == 1 else zip(*picked, strict=True))

    def summaries(self, name: str) -> list[Mapping[str, str]]:
        snapshots = sorted(self.table(name).snapshots(), key=lambda snapshot: snapshot.sequence_number or 0)
        return [
            {"operation": item.summary.operation.value, **item.summary.additional_properties}
            for item in snapshots
            if item.summary is not None
        ]

    def exists(self, name: str) -> bool:
        return bool(self.spark.pyiceberg_catalog.table_exists(("db", name)))


def arrow_of(frame: DataFrame) -> pa.Table:
    """The rows of a DataFrame, as pyspark 4.0 and newer give them by `toArrow`."""
    from dagster_iceberg_spark.spark.versions import version_of

    return version_of(frame.sparkSession).arrow_of(frame)


def annotation_of(annotation: Any, lake: Lake) -> Any:
    """The annotation, or in its place the class of DataFrames over Connect, which was another one in pyspark 3.5."""
    frame: Any = lake.session.range(0)
    return type(frame) if annotation is DataFrame and not isinstance(frame, DataFrame) else annotation


def resuming(run_id: str) -> dict[str, str]:
    """Return the tags that Dagster gives to a run that resumes a failed run."""
    return {"dagster/parent_run_id": run_id, "dagster/root_run_id": run_id, "dagster/is_resume_retry": "true"}


def around_write(patch: pytest.MonkeyPatch, replacement: Callable[[Callable[[], Any], Any], Any]) -> None:
    """Call the replacement in place of each write of an engine, with the write itself and its plan."""
    from dagster_iceberg_spark.arrow.write.engine import ArrowEngine
    from dagster_iceberg_spark.spark.write.engine import SparkEngine

    for kind in (SparkEngine, ArrowEngine):
        genuine: Any = kind.write

        def write(self: Any, plan: Any, names: Any, genuine: Any = genuine) -> Any:
            return replacement(lambda: genuine(self, plan, names), plan)

        patch.setattr(kind, "write", write)


def while_it_writes(fault: Callable[[], None], monkeypatch: pytest.MonkeyPatch, *, seconds: float) -> None:
    """Trigger the fault once, this many seconds after the engine has started to write."""
    begun = threading.Event()

    def write(genuine: Callable[[], Any], _: Any) -> Any:
        if not begun.is_set():
            begun.set()
            threading.Timer(seconds, fault).start()
        return genuine()

    around_write(monkeypatch, write)


@contextmanager
def dying(patch: pytest.MonkeyPatch, *, after_commit: bool = True) -> Iterator[None]:
    """Let runs inside the block die after their commit, before Dagster knows of it, or before their commit."""

    def dies(genuine: Callable[[], Any], _: Any) -> None:
        if after_commit:
            genuine()
        message = "gone"
        raise SystemError(message)

    with patch.context() as patched:
        around_write(patched, dies)
        yield


Before: TypeAlias = Callable[[Callable[[], Any]], None]
"""What the fixture `before_publication` is."""


def error_of(result: dg.ExecuteInProcessResult) -> "StepError":
    """Return the package's error of a failed run: the cause of a Failure, or the error itself."""
    failures = [event for event in result.all_events if event.is_step_failure]
    data = failures[-1].step_failure_data
    assert data.error is not None
    chain = data.error
    while chain.cause is not None and chain.cls_name in (
        "DagsterExecutionHandleOutputError",
        "DagsterExecutionLoadInputError",
        "DagsterExecutionStepExecutionError",
        "Failure",
    ):
        chain = chain.cause
    return StepError(chain.cls_name or "", chain.message, allow_retries=data.user_failure_data is None)


class StepError(Exception):
    """A step's error as serialized by Dagster."""

    def __init__(self, class_name: str, message: str, *, allow_retries: bool) -> None:
        super().__init__(message.split(f"{class_name}: ", 1)[-1].strip())
        self.class_name = class_name
        self.allow_retries = allow_retries


def metadata_of(result: dg.ExecuteInProcessResult, asset: str, partition: str | None = None) -> dict[str, Any]:
    """Return the metadata of an asset's materialization as plain values."""
    for event in result.get_asset_materialization_events():
        materialization = event.step_materialization_data.materialization
        if materialization.asset_key.path[-1] == asset and partition in (None, materialization.partition):
            return {key: value.value for key, value in materialization.metadata.items()}
    pytest.fail(f"no materialization of {asset} {partition or ''}")


def add_column(lake: Lake, table: str, name: str, column_type: str, default: Any) -> None:
    """Add a column with a default to a table of format 3, as another engine does. This needs a classic session."""
    spark: Any = lake.session
    iceberg = spark._jvm.org.apache.iceberg
    change = iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, f"lake.db.{table}").updateSchema()
    added, literal = iceberg.types.Types.fromPrimitiveString(column_type), iceberg.expressions.Literal.of(default)
    change.addColumn(None, name, added, None, literal).commit()


def frame_asset(name: str, query: Query, **kwargs: Any) -> dg.AssetsDefinition:
    """Return an asset that returns a query's result. `{start}`, `{end}` and `{key}` stand for its partition."""

    def _asset(context: dg.AssetExecutionContext, spark: IcebergSparkResource) -> Any:
        if callable(query):
            return query(spark.spark_session)
        return spark.spark_session.sql(query.format(**_partition_words(context)))

    asset: dg.AssetsDefinition = dg.asset(name=name, io_manager_key="iceberg", **kwargs)(_asset)
    return asset


def _partition_words(context: dg.AssetExecutionContext) -> dict[str, str]:
    if not context.has_partition_key and not context.has_partition_key_range:
        return {}
    keys: Sequence[str] = context.partition_keys
    words = {"key": keys[0], "keys": ", ".join(repr(key) for key in keys)}
    definition = context.assets_def.partitions_def
    if isinstance(definition, dg.TimeWindowPartitionsDefinition):
        window = context.partition_time_window
        words["start"] = f"timestamp_seconds({int(window.start.timestamp())})"
        words["end"] = f"timestamp_seconds({int(window.end.timestamp())})"
    return words


HOURS = "select explode(sequence({start}, {end} - interval 1 second, interval 1 hour)) as ts, {value} as v"


def hours_asset(name: str = "hours", value: str = "1", **kwargs: Any) -> dg.AssetsDefinition:
    """Return an asset with one row for each hour of its window, in the column `ts`, and a value in `v`."""
    kwargs.setdefault("metadata", {"partition_expr": "ts"})
    return frame_asset(name, HOURS.replace("{value}", value), **kwargs)


class ConnectServer:
    """A Spark Connect server that tests can kill and restart on the same port."""

    def __init__(self, directory: Path, conf: Mapping[str, str] | None = None) -> None:
        self.port = free_port()
        self._conf = conf or {}
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"sc://127.0.0.1:{self.port}"

    def start(self) -> None:
        home, log = Path(pyspark.__file__).parent, self._directory / "server.log"
        conf = {
            **{key: value for key, value in SPARK_CONF.items() if not key.startswith("spark.sql.")},
            **self._conf,
            "spark.sql.extensions": ICEBERG_EXTENSIONS,
            "spark.connect.grpc.binding.port": str(self.port),
            "spark.connect.grpc.binding.address": "127.0.0.1",
        }
        command = [str(home / "bin" / "spark-submit"), "--class", CONNECT_SERVER]
        for key, value in conf.items():
            command += ["--conf", f"{key}={value}"]
        with log.open("a") as output:
            self._process = subprocess.Popen(
                [*command, "spark-internal"],
                stdout=output,
                stderr=output,
                cwd=self._directory,
                env={**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"},
                start_new_session=True,
            )
        wait_for_port(self.port, self._process, log, seconds=SERVER_START_SECONDS)

    def kill(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


def sqlite_in(directory: Path) -> SqlCatalog:
    return SqlCatalog(uri=f"sqlite:///{directory}/catalog.db", warehouse=str(directory / "wh"))


def empty(directory: Path) -> None:
    """Drop all tables of the lake in this directory, and delete what else is there."""
    for path in directory.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif not path.name.startswith("catalog.db"):
            path.unlink()
    empty_catalog(directory / "catalog.db")


class ArrowIOManager(IcebergPySparkIOManager):
    """Stores the rows of DataFrames as Arrow tables, which Arrow writes where it can."""

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        if hasattr(obj, "isStreaming") and not obj.isStreaming:
            obj = arrow_of(obj)
        super().handle_output(context, obj)


def open_lake(catalog: Any, directory: Path, remote: str | None, *, by_arrow: bool = False) -> Iterator[Lake]:
    """Yield a lake on the catalog and close its session afterwards, unless another resource uses it too."""
    spark = spark_on(catalog, remote)
    kind = ArrowIOManager if by_arrow else IcebergPySparkIOManager
    io_manager = kind(spark=spark, namespace="db", **mirror_options(directory))
    with dg.DagsterInstance.ephemeral() as instance:
        yield Lake(spark, io_manager, instance, directory)
    release(spark)


def open_emptied_lake(directory: Path, remote: str | None, *, by_arrow: bool = False) -> Iterator[Lake]:
    """Yield the lake in this directory without the tables of earlier tests."""
    empty(directory)
    yield from open_lake(sqlite_in(directory), directory, remote, by_arrow=by_arrow)


@contextmanager
def open_session(directory: Path, remote: str | None) -> Iterator[None]:
    """Keep the session of the lakes in this directory open from one test to the next."""
    spark = spark_on(sqlite_in(directory), remote)
    assert spark.spark_session is not None
    yield
    release(spark)


def spark_on(catalog: Any, remote: str | None) -> IcebergSparkResource:
    conf = CONNECT_CONF if remote else SPARK_CONF
    return IcebergSparkResource(catalog=catalog, spark_config=conf, remote=remote, jars="provided")


def start_classic() -> None:
    """Start the process's JVM. After a first session on Spark Connect, pyspark opens no classic one in the process."""
    with tempfile.TemporaryDirectory() as name, open_session(Path(name), None):
        pass


def release(spark: IcebergSparkResource) -> None:
    SESSIONS.release(id(spark), stops_when_unused="yes" if spark.remote else "no")


def mirror_options(directory: Path) -> dict[str, Any]:
    """Return a mirror for every table of the tests, if the environment variable MIRROR_MODE names its mode."""
    mode: Any = os.environ.get("MIRROR_MODE")
    return {"mirror": DuckLakeMirror(catalog=f"sqlite:///{directory}/mirror.ducklake", mode=mode)} if mode else {}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def wait_for_port(port: int, process: subprocess.Popen[Any], log: Path, *, seconds: float) -> None:
    """Wait until the server accepts connections. Fail immediately if it has died."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            pytest.fail(f"the server died:\n{log.read_text()[-4000:]}")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.2)
        else:
            return
    pytest.fail(f"the server did not start in {seconds:.0f} s:\n{log.read_text()[-4000:]}")
