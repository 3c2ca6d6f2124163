"""Runs in sessions that a service hands out: on a real Spark Connect server, with an address for each session."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

from dagster_iceberg_spark import EmrServerlessSession, IcebergPySparkIOManager, IcebergSparkResource
from dagster_iceberg_spark.resource import SESSIONS
from tests.features.remote_sessions.services import Aws, Clock
from tests.lakes import CONNECT_CONF, Lake, frame_asset, sqlite_in
from tests.servers.relay import Relay

pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.connect]

ROLE = "arn:aws:iam::123456789012:role/spark"
MERGE = {"iceberg/write_disposition": "merge", "iceberg/merge_keys": ["id"]}


@pytest.fixture
def relays(aws: Aws, connect_server: str) -> Iterator[dict[str, Relay]]:
    """The connections to the sessions of EMR."""
    opened: dict[str, Relay] = {}

    def address_of(session_id: str) -> str:
        if session_id not in opened:
            opened[session_id] = Relay(int(connect_server.rpartition(":")[2]))
        return f"http://127.0.0.1:{opened[session_id].port}"

    aws.address_of = address_of
    yield opened
    for relay in opened.values():
        relay.close()


@contextmanager
def lake_of(directory: Path, **fields: Any) -> Iterator[Lake]:
    spark = IcebergSparkResource(catalog=sqlite_in(directory), spark_config=CONNECT_CONF, jars="provided", **fields)
    manager = IcebergPySparkIOManager(spark=spark, namespace="db")
    with dg.DagsterInstance.ephemeral() as instance:
        yield Lake(spark, manager, instance, directory)
    SESSIONS.release(id(spark), stops_when_unused="yes")


@pytest.fixture
def lake(relays: dict[str, Relay], tmp_path: Path) -> Iterator[Lake]:
    session = EmrServerlessSession(application_id="a1", execution_role_arn=ROLE, region="eu-west-1")
    with lake_of(tmp_path, remote=session) as lake:
        yield lake


def test_a_run_after_the_end_of_a_session_opens_another_one(lake: Lake, aws: Aws, relays: dict[str, Relay]) -> None:
    lake.materialize(frame_asset("t", "select 1 as id, 'a' as v", metadata=MERGE))
    lake.materialize(frame_asset("t", "select 2 as id, 'b' as v", metadata=MERGE))
    assert len(aws.started) == 1
    aws.sessions["s1"] = ["TERMINATED"]
    relays["s1"].close()
    lake.materialize(frame_asset("t", "select 2 as id, 'c' as v", metadata=MERGE))
    assert lake.rows("t", "id", "v") == [(1, "a"), (2, "c")]
    assert list(aws.sessions) == ["s1", "s2"]


def test_a_retry_after_the_end_of_a_session_opens_another_one(lake: Lake, aws: Aws, relays: dict[str, Relay]) -> None:
    """The session ends while the asset runs. The step fails, and its retry writes in another session."""
    attempts = list[str]()

    def rows(spark: Any) -> Any:
        frame = spark.sql("select 1 as id, 'a' as v")
        if not attempts:
            aws.sessions["s1"] = ["TERMINATED"]
            spark.client.release_session()
        attempts.append(spark.session_id)
        return frame

    lake.materialize(frame_asset("t", rows, metadata=MERGE, retry_policy=dg.RetryPolicy(max_retries=1)))
    assert lake.rows("t", "id", "v") == [(1, "a")]
    assert len(set(attempts)) == 2
    assert list(aws.sessions) == ["s1", "s2"]


def test_requests_carry_the_renewed_token(lake: Lake, aws: Aws, clock: Clock) -> None:
    session: Any = lake.session
    carried = session.client._builder.metadata()
    assert dict(carried)["x-aws-proxy-auth"] == "hush=1;"
    clock.now, aws.token_seconds = clock.now + 3500, 9000
    assert session.range(3).count() == 3
    assert dict(carried)["x-aws-proxy-auth"] == "hush=2;"


def test_a_session_of_a_subclass_can_be_wrapped(connect_server: str, tmp_path: Path) -> None:
    """As of Dataproc's client, whose class is a subclass of pyspark's in another module."""
    from pyspark.sql.connect.session import SparkSession

    session = type("DataprocSparkSession", (SparkSession,), {"__module__": "google.cloud"})(connection=connect_server)
    with lake_of(tmp_path, pyspark=SimpleNamespace(spark_session=session)) as lake:
        for value in ("a", "b"):
            lake.materialize(frame_asset("t", f"select 1 as id, '{value}' as v", metadata=MERGE))
        assert lake.rows("t", "v") == ["b"]
    session.stop()
