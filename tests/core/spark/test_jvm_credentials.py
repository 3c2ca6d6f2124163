"""Credentials in a JVM's system properties, tested without a JVM."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

from dagster_iceberg_spark.catalog import aws_credentials as found
from dagster_iceberg_spark.catalog.description import AwsIdentity, AwsKeys, CatalogDescription
from dagster_iceberg_spark.errors import CatalogUnavailableError, ConfigurationError, SparkEnvironmentError
from dagster_iceberg_spark.spark.session import jvm_credentials as credentials
from dagster_iceberg_spark.spark.session.jvm_credentials import (
    JvmIdentity,
    JvmProperties,
    aws_properties,
    set_jvm_properties,
)

LAKE = AwsIdentity(profile="lake")
PERMANENT = AwsKeys("AKIA", "hush")
FIRST, SECOND = AwsKeys("ASIA1", "hush1", "token1"), AwsKeys("ASIA2", "hush2", "token2")


class FakeContext:
    """A SparkContext with only system properties."""

    def __init__(self, master: str = "local[2]") -> None:
        self.master = master
        self.properties: dict[str, str] = {}
        system = SimpleNamespace(setProperty=self.properties.__setitem__, clearProperty=self._clear)
        self._jvm = SimpleNamespace(java=SimpleNamespace(lang=SimpleNamespace(System=system)))

    def _clear(self, name: str) -> None:
        self.properties.pop(name, None)


def description(**fields: Any) -> CatalogDescription:
    properties = {"type": "jdbc", "s3.endpoint": "http://s3"}
    given = {"name": "lake", "kind": "SQL", "endpoint": "x", "spark_properties": properties, "aws": LAKE}
    return CatalogDescription(**{**given, "pyiceberg_properties": properties, **fields})


@pytest.fixture
def jvm(monkeypatch: pytest.MonkeyPatch) -> JvmIdentity:
    jvm = JvmIdentity()
    monkeypatch.setattr(credentials, "_jvm_identity", jvm)
    return jvm


def test_the_keys_become_system_properties(jvm: JvmIdentity) -> None:
    context = FakeContext()
    jvm.take(LAKE, context, FIRST)
    assert context.properties == {
        "aws.accessKeyId": "ASIA1",
        "aws.secretAccessKey": "hush1",
        "aws.sessionToken": "token1",
    }
    for jvm_s in (context, FakeContext()):
        jvm.take(LAKE, jvm_s, PERMANENT)
        assert jvm_s.properties == {"aws.accessKeyId": "AKIA", "aws.secretAccessKey": "hush"}


def test_a_second_identity_in_one_jvm_is_refused(jvm: JvmIdentity) -> None:
    context = FakeContext()
    jvm.take(LAKE, context, PERMANENT)
    with pytest.raises(SparkEnvironmentError, match="one AWS profile or role for all catalogs of a process, found two"):
        jvm.take(AwsIdentity(profile="other"), context, FIRST)
    assert context.properties["aws.accessKeyId"] == "AKIA"
    jvm.take(AwsIdentity(profile="other"), FakeContext(), FIRST)


def test_renewed_keys_reach_the_jvm_even_after_an_outage(jvm: JvmIdentity, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[AwsKeys | Exception] = [CatalogUnavailableError("no answer"), SECOND]

    def current(identity: AwsIdentity) -> AwsKeys:
        assert identity == LAKE
        answer = answers.pop(0) if answers else SECOND
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(credentials, "REFRESH_SECONDS", 0.01)
    monkeypatch.setattr(found, "current_keys", current)
    context = FakeContext()
    jvm.take(LAKE, context, FIRST)
    deadline = time.monotonic() + 30
    while context.properties["aws.accessKeyId"] == "ASIA1" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert context.properties["aws.sessionToken"] == "token2"
    jvm.take(AwsIdentity(), FakeContext(), PERMANENT)  # another JVM, so that the thread of the first one ends


def properties_for(
    master: str, monkeypatch: pytest.MonkeyPatch, *, region: str | None = "eu-west-1", **fields: Any
) -> dict[str, str]:
    monkeypatch.setattr(found, "current_keys", lambda _: PERMANENT)
    monkeypatch.setattr(found, "region_of", lambda _: region)
    session: Any = SimpleNamespace(sparkContext=FakeContext(master))
    return dict(aws_properties(session, description(**fields)))


def test_a_local_session_takes_the_keys_from_its_jvm(jvm: JvmIdentity, monkeypatch: pytest.MonkeyPatch) -> None:
    """A credentials provider would take precedence over the store's own keys and over vended credentials."""
    taken: list[Any] = []
    monkeypatch.setattr(JvmIdentity, "take", lambda _, *what: taken.append(what))
    assert properties_for("local[2]", monkeypatch) == {"client.region": "eu-west-1"}
    assert [(identity, keys) for identity, _, keys in taken] == [(LAKE, PERMANENT)]
    assert properties_for("local[2]", monkeypatch, aws=AwsIdentity(keys=PERMANENT)) == {"client.region": "eu-west-1"}
    assert len(taken) == 1, "given keys are passed as properties"
    glue = {"type": "glue"}
    assert properties_for("local", monkeypatch, aws=AwsIdentity(keys=PERMANENT), spark_properties=glue)
    assert len(taken) == 2, "Glue's client has no properties for them"


def test_glue_keys_for_the_nodes_of_a_cluster_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="expected keys that Spark's nodes have by themselves"):
        properties_for("yarn", monkeypatch, aws=AwsIdentity(keys=PERMANENT), spark_properties={"type": "glue"})


def test_a_role_needs_a_region_on_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    role = AwsIdentity(role_arn="arn:aws:iam::1:role/lake")
    with pytest.raises(ConfigurationError, match="expected a `region` for the role, found none"):
        properties_for("yarn", monkeypatch, region=None, aws=role)


def test_rest_requests_are_signed_for_the_region_found(jvm: JvmIdentity, monkeypatch: pytest.MonkeyPatch) -> None:
    signed = {"type": "rest", "rest.auth.type": "sigv4"}
    assert properties_for("local", monkeypatch, spark_properties=signed)["rest.signing-region"] == "eu-west-1"
    given = {**signed, "rest.signing-region": "us-east-1"}
    assert "rest.signing-region" not in properties_for("local", monkeypatch, spark_properties=given)


def test_cluster_nodes_assume_the_role_themselves(jvm: JvmIdentity, monkeypatch: pytest.MonkeyPatch) -> None:
    role = AwsIdentity(role_arn="arn:aws:iam::1:role/lake", external_id="x7", role_session_name="dagster")
    assert properties_for("yarn", monkeypatch, aws=role) == {
        "client.region": "eu-west-1",
        "client.factory": "org.apache.iceberg.aws.AssumeRoleAwsClientFactory",
        "client.assume-role.arn": "arn:aws:iam::1:role/lake",
        "client.assume-role.region": "eu-west-1",
        "client.assume-role.external-id": "x7",
        "client.assume-role.session-name": "dagster",
    }
    assert properties_for("yarn", monkeypatch) == {"client.region": "eu-west-1"}


def test_a_catalog_without_aws_has_no_aws_properties() -> None:
    session: Any = None
    assert aws_properties(session, description(aws=None)) == {}


CLIENT = {"AZURE_CLIENT_ID": "c", "AZURE_CLIENT_SECRET": "hush"}


@pytest.fixture
def jvm_properties(monkeypatch: pytest.MonkeyPatch) -> JvmProperties:
    properties = JvmProperties()
    monkeypatch.setattr(credentials, "_jvm_properties", properties)
    return properties


def test_system_properties_are_set_in_a_local_jvm(jvm_properties: JvmProperties) -> None:
    session: Any = SimpleNamespace(sparkContext=FakeContext())
    for catalog in (description(), description(system_properties=CLIENT), description()):
        set_jvm_properties(session, catalog)
    assert session.sparkContext.properties == CLIENT


def test_a_second_client_in_one_jvm_is_refused(jvm_properties: JvmProperties) -> None:
    first: Any = SimpleNamespace(sparkContext=FakeContext())
    second: Any = SimpleNamespace(sparkContext=FakeContext())
    set_jvm_properties(first, description(system_properties=CLIENT))
    other = description(system_properties={**CLIENT, "AZURE_CLIENT_SECRET": "hush2"})
    with pytest.raises(SparkEnvironmentError, match="system property AZURE_CLIENT_SECRET for all catalogs") as caught:
        set_jvm_properties(first, other)
    assert "hush" not in str(caught.value)
    set_jvm_properties(second, other)
    assert second.sparkContext.properties["AZURE_CLIENT_SECRET"] == "hush2"


def test_system_properties_for_cluster_nodes_are_refused(jvm_properties: JvmProperties) -> None:
    session: Any = SimpleNamespace(sparkContext=FakeContext("yarn"))
    with pytest.raises(ConfigurationError, match="do not get AZURE_CLIENT_ID, AZURE_CLIENT_SECRET"):
        set_jvm_properties(session, description(system_properties=CLIENT))
    set_jvm_properties(session, description())
