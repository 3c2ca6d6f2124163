"""A job whose process dies at a chosen moment, as a program of its own: `CRASHING` in the environment tells how.

Python cannot be told from outside to die between two of its statements, so the statements are wrapped here.
"""

import json
import os
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import dagster as dg
import pyarrow as pa

from dagster_iceberg_spark import IcebergPySparkIOManager, IcebergSparkResource, SqlCatalog
from dagster_iceberg_spark.arrow.write import engine as arrow
from dagster_iceberg_spark.arrow.write.files import DataFiles
from dagster_iceberg_spark.catalog import data_commit, transaction
from dagster_iceberg_spark.spark.write import engine

VARIABLE: Final = "CRASHING"
ASSET: Final = "t"
ROWS: Final = 40
SLOW_QUERY: Final = (
    "select id, if(java_method('java.lang.Thread', 'sleep', {sleep}L) is null, 0, 1) as v "
    f"from range(0, {ROWS}, 1, 2)"
)
"""Rows that come one by one, so that there is a time while files are written."""


@dataclass(frozen=True)
class Crash:
    """What the process does, and when it dies.

    Args:
        directory: Holds the catalog, the tables, the Dagster instance, and the mark of a crash that has been.
        point: One of `POINTS`; anything else: never.
        remote: The Spark Connect server; None: a classic session.
        spark_config: Settings of the session, and their values.
        disposition: How the rows are written.
        retries: How often the asset's RetryPolicy tries again, each time in a new process; None: the run is one.
        seconds: For the point "some time": how long after the beginning of the write.
        sleep: Milliseconds for each row.
        by_arrow: Whether the asset returns an Arrow table, which is written without a JVM.
    """

    directory: str
    point: str = "never"
    remote: str | None = None
    spark_config: tuple[tuple[str, str], ...] = ()
    disposition: str = "append"
    retries: int | None = None
    seconds: float = 0.0
    sleep: int = 10
    by_arrow: bool = False

    @classmethod
    def told(cls) -> "Crash":
        told = json.loads(os.environ[VARIABLE])
        return cls(**{**told, "spark_config": tuple(map(tuple, told["spark_config"]))})

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, VARIABLE: json.dumps(asdict(self))}

    @property
    def database(self) -> Path:
        return Path(self.directory, "catalog.db")

    @property
    def instance(self) -> str:
        directory = Path(self.directory, "instance")
        directory.mkdir(exist_ok=True)
        return str(directory)

    @property
    def mark(self) -> Path:
        return Path(self.directory, "crashed")

    def resources(self) -> dict[str, Any]:
        catalog = SqlCatalog(uri=f"sqlite:///{self.database}", warehouse=str(Path(self.directory, "wh")))
        spark = IcebergSparkResource(catalog=catalog, spark_config=dict(self.spark_config), remote=self.remote)
        engine: Any = "arrow" if self.by_arrow else "auto"
        return {"spark": spark, "iceberg": IcebergPySparkIOManager(spark=spark, namespace="db", engine=engine)}

    def die(self) -> None:
        """Die as a process does that is killed: once."""
        if not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def die_when(self, has_come: Callable[[], bool]) -> None:
        """Die as soon as it has come, while the process does something else."""

        def watch() -> None:
            while not has_come():
                time.sleep(0.005)
            self.die()

        threading.Thread(target=watch, daemon=True).start()


def job() -> dg.JobDefinition:
    """The job of one asset; every process of the run builds it anew, with what kills it."""
    crash = Crash.told()
    arm(crash)
    policy = None if crash.retries is None else dg.RetryPolicy(max_retries=crash.retries)
    metadata = {"iceberg/write_disposition": crash.disposition, "iceberg/merge_keys": ["id"]}

    @dg.asset(name=ASSET, io_manager_key="iceberg", retry_policy=policy, metadata=metadata)
    def asset(spark: IcebergSparkResource) -> Any:
        if crash.by_arrow:
            return pa.table({"id": range(ROWS)})
        return spark.spark_session.sql(SLOW_QUERY.format(sleep=crash.sleep))

    executor = dg.in_process_executor if crash.retries is None else dg.multiprocess_executor
    definitions = dg.Definitions(
        assets=[asset],
        jobs=[dg.define_asset_job("job", selection=[asset])],
        resources=crash.resources(),
        executor=executor,
    )
    return definitions.resolve_job_def("job")


@cache
def arm(crash: Crash) -> None:
    """Arrange for the crash, unless it has been: once in each process."""
    points = POINTS | ARROW_POINTS
    if not crash.mark.exists() and crash.point in points:
        points[crash.point](crash)


def wrap(
    owner: Any, name: str, *, before: Callable[..., None] | None = None, after: Callable[..., None] | None = None
) -> None:
    """Do something before or after each call of a function."""
    original = getattr(owner, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if before is not None:
            before(*args, **kwargs)
        result = original(*args, **kwargs)
        if after is not None:
            after(*args, **kwargs)
        return result

    setattr(owner, name, wrapped)


def before_the_write(crash: Crash) -> None:
    wrap(engine, "write", before=lambda *_: crash.die())


def while_files_are_written(crash: Crash) -> None:
    def has_files() -> bool:
        return any(Path(crash.directory, "wh").glob("**/*.parquet"))

    wrap(engine, "write", before=lambda *_: crash.die_when(has_files))


def before_the_commit(crash: Crash) -> None:
    """Lock the catalog's database against writers, and die when a metadata file waits to be made the current one.

    The lock dies with the process: what is left of the engine may commit at once.
    """

    def lock(*_: Any) -> None:
        connection = locked(crash)
        die_when_a_commit_waits(crash, lambda: connection.in_transaction)

    wrap(engine, "write", before=lock)


def while_the_commit_waits(crash: Crash) -> None:
    """Die likewise, where someone else holds the lock."""
    wrap(engine, "write", before=lambda *_: die_when_a_commit_waits(crash, lambda: True))


def locked(crash: Crash) -> sqlite3.Connection:
    """Return a connection that keeps all others from writing the catalog's database, not from reading it."""
    connection = sqlite3.connect(crash.database, isolation_level=None, check_same_thread=False)
    connection.execute("BEGIN IMMEDIATE")
    return connection


def die_when_a_commit_waits(crash: Crash, is_locked: Callable[[], bool]) -> None:
    """Die when a metadata file has been written that no catalog points at yet."""

    def metadata_files() -> set[Path]:
        return set(Path(crash.directory, "wh").glob("**/*.metadata.json"))

    known = metadata_files()
    crash.die_when(lambda: is_locked() and metadata_files() != known)


def after_the_commit(crash: Crash) -> None:
    wrap(engine, "write", after=lambda *_: crash.die())


def after_the_return(crash: Crash) -> None:
    wrap(IcebergPySparkIOManager, "handle_output", after=lambda *_: crash.die())


def before_the_record(crash: Crash) -> None:
    def die(_: Any, entry: dg.EventLogEntry, **__: Any) -> None:
        if is_materialization(entry):
            crash.die()

    wrap(dg.DagsterInstance, "handle_new_event", before=die)


def after_the_record(crash: Crash) -> None:
    def die(_: Any, entry: dg.EventLogEntry, **__: Any) -> None:
        if is_materialization(entry):
            crash.die()

    wrap(dg.DagsterInstance, "handle_new_event", after=die)


def at_some_time(crash: Crash) -> None:
    def start(*_: Any) -> None:
        ends = time.monotonic() + crash.seconds
        crash.die_when(lambda: time.monotonic() >= ends)

    wrap(IcebergPySparkIOManager, "handle_output", before=start)


def is_materialization(entry: dg.EventLogEntry) -> bool:
    event = entry.dagster_event
    return event is not None and event.event_type == dg.DagsterEventType.ASSET_MATERIALIZATION


def around(owner: Any, name: str, *, after: bool = False) -> Callable[[Crash], None]:
    """Return a point before or after a call of a function."""

    def arm_call(crash: Crash) -> None:
        def die(*_: Any, **__: Any) -> None:
            crash.die()

        wrap(owner, name, **{"after" if after else "before": die})

    return arm_call


ARROW_POINTS: Final = {
    "before the table is created": around(arrow, "create_table"),
    "after the table is created": around(arrow, "create_table", after=True),
    "before data files": around(DataFiles, "write"),
    "after data files": around(DataFiles, "write", after=True),
    "after manifests": around(data_commit, "commit_table"),
    "after the metadata file": around(transaction, "_move_pointer"),
    "before the commit of the database": around(transaction, "_move_pointer", after=True),
    "after the commit": around(transaction, "_commit_by_sql", after=True),
    "after the write": around(arrow.ArrowEngine, "write", after=True),
    "after the return of the write": after_the_return,
    "before the materialization": before_the_record,
    "after the materialization": after_the_record,
}
"""The boundaries of a write by Arrow."""

POINTS: Final = {
    "before the write": before_the_write,
    "while files are written": while_files_are_written,
    "before the commit": before_the_commit,
    "while the commit waits": while_the_commit_waits,
    "after the commit": after_the_commit,
    "after the return": after_the_return,
    "before the record": before_the_record,
    "after the record": after_the_record,
    "at some time": at_some_time,
}


def run(crash: Crash) -> bool:
    """Run the job as a launched run does."""
    with (
        dg.DagsterInstance.local_temp(crash.instance) as instance,
        dg.execute_job(dg.reconstructable(job), instance, raise_on_error=False) as result,
    ):
        return result.success


def resume(crash: Crash, run_id: str) -> bool:
    """Go on where a failed run of the job broke off, here and now, with the tags that Dagster gives to such a run."""
    return run_here(
        crash, {"dagster/parent_run_id": run_id, "dagster/root_run_id": run_id, "dagster/is_resume_retry": "true"}
    )


def run_here(crash: Crash, tags: Mapping[str, str] | None = None) -> bool:
    """Run the job in this process."""
    os.environ[VARIABLE] = json.dumps(asdict(crash))
    with dg.DagsterInstance.local_temp(crash.instance) as instance:
        return job().execute_in_process(instance=instance, tags=tags, raise_on_error=False).success


if __name__ == "__main__":
    from tests.core.behaviour import crashing

    sys.exit(0 if crashing.run(Crash.told()) else 1)
