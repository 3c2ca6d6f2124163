"""The session's life: lazy, shared, counted, wrapped, refused where it cannot work."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster_pyspark import LazyPySparkResource

from dagster_iceberg_spark import (
    CatalogUnavailableError,
    ConfigurationError,
    EmbeddedCatalog,
    IcebergPySparkIOManager,
    IcebergSparkResource,
    SparkEnvironmentError,
    SqlCatalog,
    resource,
)
from dagster_iceberg_spark.resource import SESSIONS
from dagster_iceberg_spark.spark.session.session import attach_catalog, launch_conf
from dagster_iceberg_spark.versions import ICEBERG_SPARK_RUNTIME, SQLITE_JDBC
from tests.lakes import CONNECT_CONF, SPARK_CONF, Lake, error_of, frame_asset, free_port, release

pytestmark = pytest.mark.spark


@pytest.fixture
def lake(own_lake: Lake) -> Lake:
    return own_lake


def same_again(lake: Lake) -> IcebergSparkResource:
    """Another resource with the lake's configuration."""
    return IcebergSparkResource(
        catalog=lake.spark.catalog, spark_config=lake.spark.spark_config, remote=lake.spark.remote, jars=lake.spark.jars
    )


def test_resources_with_one_configuration_share_one_counted_session(lake: Lake) -> None:
    other = same_again(lake)
    assert other.spark_session is lake.session
    assert SESSIONS.users_of(lake.spark.iceberg_session) == 2
    other.teardown_after_execution(dg.build_init_resource_context())
    assert SESSIONS.users_of(lake.spark.iceberg_session) == 1
    assert lake.session.range(1).count() == 1


def test_the_resource_of_the_io_manager_and_the_one_beside_it_use_one_session(lake: Lake) -> None:
    seen = []

    @dg.asset(io_manager_key="iceberg")
    def t(spark: IcebergSparkResource) -> Any:
        seen.append(spark.spark_session)
        return spark.spark_session.range(1)

    beside = same_again(lake)
    resources = {"spark": beside, "iceberg": IcebergPySparkIOManager(spark=lake.spark, namespace="db")}
    dg.materialize([t], resources=resources, instance=lake.instance)
    assert lake.session.range(2).count() == 2
    assert seen == [lake.session]


@pytest.mark.full
def test_a_session_stops_with_its_last_user_where_that_is_asked_for(connect_server: str, tmp_path: Path) -> None:
    catalog = SqlCatalog(uri=f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path))
    first, second = (
        IcebergSparkResource(
            catalog=catalog, remote=connect_server, spark_config=CONNECT_CONF, stop_session="when_unused"
        )
        for _ in range(2)
    )
    session = first.spark_session
    assert second.spark_session is session
    first.teardown_after_execution(dg.build_init_resource_context())
    assert session.range(1).count() == 1
    second.teardown_after_execution(dg.build_init_resource_context())
    assert session.is_stopped  # type: ignore[attr-defined]


def test_a_stopped_session_is_replaced(connect_server: str, tmp_path: Path) -> None:
    catalog = SqlCatalog(uri=f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path))
    config = {"catalog": catalog, "remote": connect_server, "spark_config": CONNECT_CONF}
    IcebergSparkResource(**config).spark_session.stop()
    again = IcebergSparkResource(**config).spark_session
    assert again.range(1).count() == 1
    again.stop()


@pytest.mark.since("4.0")  # a client of 3.5 cannot end a session
@pytest.mark.parametrize("who", ["a new run", "the same run, later"])
def test_a_session_that_its_server_has_dropped_is_replaced(
    who: str, connect_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = SqlCatalog(uri=f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path))
    config = {"catalog": catalog, "remote": connect_server, "spark_config": CONNECT_CONF}
    first = IcebergSparkResource(**config)
    session: Any = first.spark_session
    session.client.release_session()
    if who == "a new run":
        again = IcebergSparkResource(**config).spark_session
    else:
        assert first.spark_session is session
        monkeypatch.setattr(resource, "IDLE_SECONDS", 0.0)
        again = first.spark_session
    assert again.range(1).count() == 1
    again.stop()


@pytest.mark.full
def test_two_catalogs_of_one_name_do_not_mix(lake: Lake, tmp_path: Path) -> None:
    lake.materialize(frame_asset("t", "select 1 as a"))
    elsewhere = SqlCatalog(uri=f"sqlite:///{tmp_path}/other/catalog.db", warehouse=str(tmp_path / "other"))
    spark = IcebergSparkResource(catalog=elsewhere, spark_config=lake.spark.spark_config, remote=lake.spark.remote)
    other = Lake(spark, IcebergPySparkIOManager(spark=spark, namespace="db"), lake.instance, tmp_path)
    other.materialize(
        frame_asset("t", "select 2 as a", metadata={"iceberg/write_disposition": "merge", "iceberg/merge_keys": ["a"]})
    )
    assert (lake.rows("t", "a"), other.rows("t", "a")) == ([1], [2])


KEYS_OF_A_CATALOG = ("io-impl", "mine", "theirs", "defaults")


@pytest.mark.full
def test_what_an_instance_of_one_run_had_is_let_go_of(classic_lake: Lake, tmp_path: Path) -> None:
    """The default catalog lies under the instance, and an ephemeral one takes it with it."""
    merge = {"iceberg/write_disposition": "merge", "iceberg/merge_keys": ["id"]}
    open_files = []
    for number in range(4):
        catalog = EmbeddedCatalog(directory=str(tmp_path / str(number)))
        spark = IcebergSparkResource(catalog=catalog, spark_config=SPARK_CONF, jars="provided")
        lake = Lake(spark, IcebergPySparkIOManager(spark=spark, namespace="db"), classic_lake.instance, tmp_path)
        lake.materialize(frame_asset("t", "select 1 as id", metadata=merge))
        shutil.rmtree(catalog.directory or "")
        java: Any = classic_lake.session.sparkContext._jvm
        jvm = int(java.java.lang.ProcessHandle.current().pid())
        open_files.append([sum(is_below(tmp_path, file) for file in open_by(pid)) for pid in (os.getpid(), jvm)])
    assert open_files[1:] == [open_files[1]] * 3
    assert sum(shared.session.catalog.is_gone for shared in SESSIONS._shared.values()) == 1


def open_by(pid: int) -> list[str]:
    """What a process has open."""
    return [str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir() if entry.is_symlink()]


def is_below(directory: Path, file: str) -> bool:
    return file.startswith(str(directory)) and "catalog.db" in file


def test_a_catalog_has_nothing_of_the_one_that_the_jvm_was_started_with(
    classic_lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what the package has put there; what spark-defaults.conf says stays."""
    context: Any = classic_lake.session.sparkContext
    started_with = context._jsc.sc().conf()
    started_with.set("spark.sql.catalog.lake.io-impl", "com.example.Other")
    started_with.set("spark.sql.catalog.lake.defaults", "3")
    monkeypatch.setattr("dagster_iceberg_spark.spark.session.session._left_in_jvm", {"spark.sql.catalog.lake.io-impl"})
    try:
        catalog = SqlCatalog(uri=f"sqlite:///{tmp_path}/new.db", warehouse=str(tmp_path), properties={"mine": "1"})
        conf = {**SPARK_CONF, "spark.sql.catalog.lake.theirs": "2"}
        opened = IcebergSparkResource(catalog=catalog, spark_config=conf).iceberg_session
        with opened.sibling({}) as beside:
            for session in (opened.spark, beside):
                found = [session.conf.get(f"spark.sql.catalog.lake.{key}", None) for key in KEYS_OF_A_CATALOG]
                assert found == [None, "1", "2", "3"]
    finally:
        started_with.remove("spark.sql.catalog.lake.io-impl")
        started_with.remove("spark.sql.catalog.lake.defaults")


def test_a_frame_of_another_classic_session_lands_in_the_right_catalog(classic_lake: Lake) -> None:
    other = classic_lake.session.newSession()
    for _ in range(2):
        classic_lake.materialize(frame_asset("t", lambda _: other.sql("select 7 as a")))
    assert classic_lake.rows("t", "a") == [7]


@pytest.mark.full
@pytest.mark.since("4.0", "connect")
@pytest.mark.each_engine
def test_a_frame_is_written_as_its_session_resolves_it(lake: Lake) -> None:
    """As docs/sessions.md says: over Spark Connect, when it is written, and a checkpoint may be gone by then."""
    is_connect = "connect" in type(lake.session).__module__

    @dg.multi_asset(outs={name: dg.AssetOut(io_manager_key="iceberg") for name in ("one", "two", "kept")})
    def outputs(spark: IcebergSparkResource) -> tuple[Any, Any, Any]:
        frames = []
        for number in (1, 2):
            spark.spark_session.sql(f"select {number} as v").createOrReplaceTempView("stage")
            frames.append(spark.spark_session.sql("select v from stage"))
        one, two = frames
        return one, two, spark.spark_session.range(2).cache()

    lake.materialize(outputs)
    assert [lake.rows(name) for name in ("one", "two", "kept")] == [[2 if is_connect else 1], [2], [0, 1]]

    @dg.asset(io_manager_key="iceberg")
    def checkpointed(spark: IcebergSparkResource) -> Any:
        return spark.spark_session.range(2).localCheckpoint()

    result = lake.materialize(checkpointed, raise_on_error=False)
    if not result.success:
        assert is_connect
        assert (error_of(result).class_name, lake.exists("checkpointed")) == ("ConfigurationError", False)


@pytest.mark.full
def test_a_frame_of_another_connect_session_is_refused(classic_lake: Lake, connect_server: str, tmp_path: Path) -> None:
    catalog = SqlCatalog(uri=f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path))
    other = IcebergSparkResource(catalog=catalog, remote=connect_server).spark_session
    error = classic_lake.failure(frame_asset("t", lambda _: other.sql("select 7 as a")))
    assert error.class_name == "OutputTypeError"
    assert not classic_lake.exists("t")


def test_a_resource_of_dagster_pyspark_is_wrapped(classic_lake: Lake) -> None:
    assert classic_lake.session.range(1).count() == 1
    theirs = LazyPySparkResource(spark_config={})
    spark = IcebergSparkResource(
        catalog=SqlCatalog(
            name="wrapped", uri=f"sqlite:///{classic_lake.directory}/w.db", warehouse=str(classic_lake.directory / "w")
        ),
        pyspark=theirs,
    )
    lake = Lake(
        spark, IcebergPySparkIOManager(spark=spark, namespace="db"), classic_lake.instance, classic_lake.directory
    )
    lake.materialize(frame_asset("t", "select 1 as a"))
    assert lake.rows("t", "a") == [1]
    assert spark.spark_session is spark.pyspark.spark_session
    assert spark.spark_context is spark.spark_session.sparkContext
    assert spark.spark_session.conf.get("spark.sql.catalog.wrapped.type") == "jdbc"


def test_a_wrapped_session_with_another_catalog_of_that_name_is_refused(classic_lake: Lake, tmp_path: Path) -> None:
    other = SqlCatalog(uri=f"sqlite:///{tmp_path}/other.db", warehouse=str(tmp_path / "other")).describe()
    with pytest.raises(SparkEnvironmentError, match=r"other\.db"):
        attach_catalog(classic_lake.session, other)


def test_a_connect_session_has_no_context(connect_server: str, tmp_path: Path) -> None:
    catalog = SqlCatalog(uri=f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path))
    spark = IcebergSparkResource(catalog=catalog, remote=connect_server)
    with pytest.raises(ConfigurationError, match="spark_session"):
        _ = spark.spark_context
    spark.spark_session.stop()


def test_a_connect_server_that_is_not_there_is_found_in_seconds(tmp_path: Path) -> None:
    catalog = SqlCatalog(uri=f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path))
    spark = IcebergSparkResource(catalog=catalog, remote=f"sc://127.0.0.1:{free_port()}/;token=hush-hush")
    with pytest.raises(CatalogUnavailableError, match=r"sc://127\.0\.0\.1") as caught:
        _ = spark.spark_session
    assert "hush-hush" not in str(caught.value)


@pytest.mark.full
def test_a_session_without_iceberg_is_told_what_it_lacks(tmp_path: Path) -> None:
    """In a process of its own: a JVM's jars cannot be taken away."""
    script = f"""
import dagster as dg
from dagster_pyspark import PySparkResource
from dagster_iceberg_spark import IcebergSparkResource, SparkEnvironmentError, SqlCatalog
for extensions in ("", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"):
    config = {{"spark.master": "local[1]", "spark.ui.enabled": "false", "spark.sql.extensions": extensions}}
    theirs = PySparkResource(spark_config=config)
    catalog = SqlCatalog(uri="sqlite:///{tmp_path}/c.db", warehouse="{tmp_path}")
    theirs.setup_for_execution(dg.build_init_resource_context())
    try:
        IcebergSparkResource(catalog=catalog, pyspark=theirs).spark_session
    except SparkEnvironmentError as error:
        print(error)
    theirs.spark_session.stop()
"""
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    answer = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment, timeout=200
    )
    without_extensions, without_runtime = answer.stdout.strip().splitlines()
    assert "spark.sql.extensions" in without_extensions
    assert ICEBERG_SPARK_RUNTIME in without_extensions
    assert ICEBERG_SPARK_RUNTIME in without_runtime


def test_what_the_jvm_starts_with_follows_from_the_configuration(tmp_path: Path) -> None:
    catalog = SqlCatalog(uri=f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path), properties={"clients": "3"})
    theirs = {"spark.sql.extensions": "com.example.Mine", "spark.jars.packages": "com.example:mine:1"}
    spark = IcebergSparkResource(catalog=catalog, spark_config={**SPARK_CONF, **theirs})
    conf = launch_conf(spark.session_settings())
    assert conf["spark.jars.packages"].split(",") == ["com.example:mine:1", ICEBERG_SPARK_RUNTIME, SQLITE_JDBC]
    assert conf["spark.sql.extensions"].startswith("com.example.Mine,org.apache.iceberg")
    assert conf["spark.sql.catalog.lake.clients"] == "3"
    assert conf["spark.sql.catalog.lake.cache-enabled"] == "false"
    assert conf.items() >= {"spark.master": "local[2]", "spark.sql.session.timeZone": "Asia/Tokyo"}.items()


def test_a_setting_that_spark_completes_is_set(
    classic_lake: Lake, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark puts the scheme in front of its warehouse. The other setting came too late for the JVM."""
    warehouse = classic_lake.session.conf.get("spark.sql.warehouse.dir")
    assert warehouse is not None
    assert warehouse.startswith("file:")
    for value, is_late in {warehouse.removeprefix("file:"): False, str(tmp_path): True}.items():
        conf = {**SPARK_CONF, "spark.sql.warehouse.dir": value}
        spark = IcebergSparkResource(catalog=classic_lake.spark.catalog, spark_config=conf, jars="provided")
        assert spark.spark_session is not None
        assert ("`spark.sql.warehouse.dir` stays as it was set" in caplog.text) == is_late
        release(spark)


def test_provided_jars_add_no_coordinates(tmp_path: Path) -> None:
    catalog = SqlCatalog(uri=f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path))
    assert "spark.jars.packages" not in launch_conf(
        IcebergSparkResource(catalog=catalog, jars="provided").session_settings()
    )


def test_a_fork_of_the_process_does_not_use_its_session(classic_lake: Lake) -> None:
    """Both would write to one connection, and read one another's answers."""
    assert classic_lake.session.range(1).count() == 1
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # only what is told through the pipe counts: nothing of the tests may end here
        try:
            classic_lake.spark.spark_session.range(1).count()
            said = "no error"
        except BaseException as error:  # noqa: BLE001 - handed over
            said = f"{type(error).__name__}: {error}"
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        said = answer.read()
    os.waitpid(child, 0)
    assert said.startswith("SparkEnvironmentError: Cannot use the Spark session: expected the process that opened it, ")
    assert classic_lake.session.range(2).count() == 2
