"""Sessions of EMR Serverless and of EMR on EC2: one for a process, started, reused, replaced and terminated.

docs/clusters.md: EMR Serverless; EMR on EC2
"""

import copy
import pickle
import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import Any

import boto3.session
import dagster as dg
import pytest

from dagster_iceberg_spark import (
    CatalogUnavailableError,
    ConfigurationError,
    CredentialsExpiredError,
    EmrServerlessSession,
    EmrSession,
    IcebergSparkResource,
    InMemoryCatalog,
    SparkEnvironmentError,
)
from dagster_iceberg_spark.features.remote_sessions import emr
from tests.features.remote_sessions.services import Aws, Clock

ROLE = "arn:aws:iam::123456789012:role/spark"
CONFIGURATION = {"spark.executor.memory": "4g", "spark.hadoop.password": "hush"}


def serverless(**fields: Any) -> EmrServerlessSession:
    return EmrServerlessSession(application_id="a1", execution_role_arn=ROLE, region="eu-west-1", **fields)


def on_ec2(**fields: Any) -> EmrSession:
    return EmrSession(cluster_id="j-1", region="eu-west-1", **fields)


BOTH = pytest.mark.parametrize("provider", [serverless, on_ec2])


def test_serverless_sends_the_token_in_its_own_header(aws: Aws) -> None:
    assert serverless().connect_url() == "sc://s1.example.com:443/;use_ssl=true;x-aws-proxy-auth=hush%3D1%3B"


def test_ec2_sends_the_session_with_the_token(aws: Aws) -> None:
    expected = "sc://s1.example.com:443/;use_ssl=true;x-aws-proxy-auth=hush%3D1%3B;authorization=s1"
    assert on_ec2().connect_url() == expected


def test_the_settings_of_a_serverless_session_reach_aws(aws: Aws) -> None:
    serverless(idle_timeout_minutes=5, configuration=CONFIGURATION).connect_url()
    [sent] = aws.started
    assert (sent["executionRoleArn"], sent["idleTimeoutMinutes"]) == (ROLE, 5)
    [settings] = sent["configurationOverrides"]["runtimeConfiguration"]
    assert settings == {"classification": "spark-defaults", "properties": CONFIGURATION}


def test_the_settings_of_a_session_on_ec2_reach_aws(aws: Aws) -> None:
    on_ec2(idle_timeout_minutes=5, configuration=CONFIGURATION, execution_role_arn=ROLE).connect_url()
    [sent] = aws.started
    assert (sent["ClusterId"], sent["ExecutionRoleArn"], sent["SessionIdleTimeoutInMinutes"]) == ("j-1", ROLE, 5)
    assert sent["EngineConfigurations"] == [{"Classification": "spark-defaults", "Properties": CONFIGURATION}]
    assert sent["Name"], "AWS's guide requires a name"


@BOTH
def test_a_starting_session_is_waited_for(provider: Any, aws: Aws, clock: Clock) -> None:
    aws.states, begun = ("SUBMITTED", "STARTING", "IDLE"), clock.now
    assert provider().connect_url().startswith("sc://s1.")
    assert clock.now - begun == 10


@BOTH
@pytest.mark.parametrize("copied", [lambda it: it, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
def test_copies_of_a_provider_share_one_session(provider: Any, copied: Any, aws: Aws) -> None:
    first = provider(configuration={"a": "b"})
    first.connect_url()
    assert copied(first).connect_url().startswith("sc://s1.")
    assert len(aws.started) == 1


def test_threads_share_one_session(aws: Aws) -> None:
    urls: list[str] = []
    threads = [threading.Thread(target=lambda: urls.append(serverless().connect_url())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {url.partition(".")[0] for url in urls} == {"sc://s1"}
    assert len(aws.started) == 1


@BOTH
@pytest.mark.parametrize("state", ["TERMINATING", "TERMINATED", "FAILED", None])
def test_a_session_that_has_ended_is_replaced(provider: Any, state: str | None, aws: Aws) -> None:
    provider().connect_url()
    aws.sessions["s1"] = [str(state)]
    if state is None:
        aws.sessions["s2"] = aws.sessions.pop("s1")  # AWS has forgotten it
    assert not provider().connect_url().startswith("sc://s1.")
    assert len(aws.started) == 2


@BOTH
def test_a_session_that_fails_is_an_error_with_its_details(provider: Any, aws: Aws) -> None:
    aws.states, aws.details = ("FAILED",), "no capacity"
    with pytest.raises(SparkEnvironmentError, match=r"s1 of Emr.*found the state FAILED \(no capacity\)"):
        provider().connect_url()


def test_a_session_that_is_not_ready_in_time_is_an_error_and_the_next_attempt_waits_for_it(
    aws: Aws, clock: Clock
) -> None:
    aws.states = ("STARTING",)
    with pytest.raises(CatalogUnavailableError, match=r"ready within 60 s, found the state STARTING.*wait_seconds"):
        serverless(wait_seconds=60).connect_url()
    aws.sessions["s1"] = ["IDLE"]
    assert serverless(wait_seconds=60).connect_url().startswith("sc://s1.")
    assert len(aws.started) == 1


def test_a_lost_answer_starts_no_second_session(aws: Aws) -> None:
    aws.loses_answers = True
    with pytest.raises(CatalogUnavailableError, match="InternalServerException"):
        serverless().connect_url()
    aws.loses_answers = False
    assert serverless().connect_url().startswith("sc://s1.")
    assert len(aws.started) == 1


@BOTH
def test_a_session_of_the_user_is_used_and_kept(provider: Any, aws: Aws) -> None:
    aws.sessions["mine"] = ["BUSY"]
    session = provider(session_id="mine")
    assert session.connect_url().startswith("sc://mine.")
    session.close()
    assert (aws.started, aws.terminated) == ([], [])


@BOTH
@pytest.mark.parametrize(("states", "found"), [(["TERMINATED"], "TERMINATED"), (None, "unknown to AWS")])
def test_a_session_of_the_user_that_has_ended_is_an_error(
    provider: Any, states: list[str] | None, found: str, aws: Aws
) -> None:
    if states is not None:
        aws.sessions["mine"] = states
    with pytest.raises(SparkEnvironmentError, match=rf"session mine .*{found}.*leave `session_id` out"):
        provider(session_id="mine").connect_url()
    assert aws.started == []


@BOTH
def test_closing_terminates_the_session_and_a_later_address_starts_another(provider: Any, aws: Aws) -> None:
    session = provider()
    session.connect_url()
    session.close()
    session.close()
    assert aws.terminated == ["s1"]
    assert session.connect_url().startswith("sc://s2.")


def test_the_process_terminates_its_sessions_at_exit(aws: Aws) -> None:
    program = f"""
from dagster_iceberg_spark import EmrServerlessSession
EmrServerlessSession(application_id="a1", execution_role_arn="{ROLE}", region="eu-west-1").connect_url()
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    assert aws.terminated == ["s1"]


def test_each_address_has_a_new_token(aws: Aws) -> None:
    assert serverless().connect_url() != serverless().connect_url()


def test_the_token_of_a_session_is_renewed_before_it_expires(aws: Aws, clock: Clock) -> None:
    serverless().connect_url()
    assert serverless().connect_metadata() == {"x-aws-proxy-auth": "hush=1;"}
    clock.now += 3500
    assert serverless().connect_metadata() == {"x-aws-proxy-auth": "hush=2;"}
    assert (aws.tokens, len(aws.started)) == (2, 1)


def test_metadata_start_no_session(aws: Aws, clock: Clock) -> None:
    session = serverless()
    session.connect_url()
    session.close()
    clock.now += 9000
    session.connect_metadata()
    assert (len(aws.started), aws.tokens) == (1, 1)


def test_a_token_that_cannot_be_renewed_is_kept(aws: Aws, clock: Clock) -> None:
    serverless().connect_url()
    clock.now += 3500
    aws.refusal = (500, "InternalServerException")
    assert serverless().connect_metadata() == serverless().connect_metadata() == {"x-aws-proxy-auth": "hush=1;"}


@pytest.mark.parametrize(
    ("refusal", "error"),
    [
        ((400, "ValidationException"), SparkEnvironmentError),
        ((403, "AccessDeniedException"), ConfigurationError),
        ((403, "ExpiredTokenException"), CredentialsExpiredError),
        ((429, "ThrottlingException"), CatalogUnavailableError),
        ((500, "InternalServerException"), CatalogUnavailableError),
    ],
)
def test_errors_of_aws_are_errors_of_the_package(refusal: tuple[int, str], error: type[Exception], aws: Aws) -> None:
    aws.refusal = refusal
    with pytest.raises(error, match=f"a1.*{refusal[1]}"):
        serverless().connect_url()


def test_settings_that_the_client_rejects_are_an_error_of_the_configuration(aws: Aws) -> None:
    with pytest.raises(SparkEnvironmentError, match=r"EmrServerlessSession\(a1\).*executionRoleArn"):
        EmrServerlessSession(application_id="a1", execution_role_arn="short", region="eu-west-1").connect_url()


def test_an_old_client_of_aws_is_an_error_that_names_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    old = SimpleNamespace(client=lambda *_, **__: SimpleNamespace())
    monkeypatch.setattr(boto3.session, "Session", lambda **_: old)
    with pytest.raises(ConfigurationError, match=r"expected the Python package boto3>=1\.43\.72"):
        on_ec2(wait_seconds=1).connect_url()
    emr._held.clear()


def test_serverless_needs_a_role_or_a_session() -> None:
    with pytest.raises(ConfigurationError, match="expected `execution_role_arn` or `session_id`, found neither"):
        EmrServerlessSession(application_id="a1")


@BOTH
def test_no_secret_is_shown(provider: Any, aws: Aws, caplog: pytest.LogCaptureFixture) -> None:
    session = provider(configuration=CONFIGURATION)
    resource = IcebergSparkResource(remote=session, catalog=InMemoryCatalog(key="secrets"))
    session.connect_url()
    aws.sessions["s1"] = ["TERMINATED"]
    session.connect_url()
    assert "s1 is TERMINATED" in caplog.text
    aws.refusal = (400, "ValidationException")
    with pytest.raises(SparkEnvironmentError) as refused:
        session.connect_url()
    assert "hush" not in f"{session!r} {resource!r} {resource.session_settings()!r} {refused.value} {caplog.text}"


def test_copies_that_dagster_makes_share_one_session(aws: Aws) -> None:
    seen = []

    @dg.asset
    def asks(spark: IcebergSparkResource) -> None:
        seen.append(spark.session_settings().endpoint())

    for _ in range(2):
        dg.materialize([asks], resources={"spark": IcebergSparkResource(remote=serverless())})
    assert len(aws.started) == 1
    assert len(seen) == 2
