"""Each way to log in to a REST catalog, against a proxy that lets nobody else through."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from dagster_iceberg_spark import BasicAuthentication, BearerToken, ConfigurationError, OAuth2, RestCatalog, SigV4
from dagster_iceberg_spark.config.stores import AwsCredentials
from tests.lakes import frame_asset, open_lake
from tests.servers.conftest import emptied
from tests.servers.guards import GuardedProxy, OAuth2Proxy, takes_basic, takes_bearer, takes_sigv4
from tests.servers.rest import RestServer

pytestmark = [pytest.mark.server, pytest.mark.spark]

SECRET = "hush/+hush=hush"
KEYS = AwsCredentials(access_key_id="AKIAEXAMPLE", secret_access_key=SECRET)
LOGINS: dict[str, Any] = {
    "oauth2": OAuth2(client_id="dagster", client_secret=SECRET, scope="lake", audience="tables", resource="r"),
    "bearer": BearerToken(token=SECRET),
    "basic": BasicAuthentication(username="dagster", password=SECRET),
    "sigv4": SigV4(region="eu-west-1", service="execute-api", credentials=KEYS),
}
WRONG: dict[str, Any] = {
    "oauth2": OAuth2(client_id="dagster", client_secret="amiss"),
    "bearer": BearerToken(token="amiss"),
    "basic": BasicAuthentication(username="dagster", password="amiss"),
    "sigv4": SigV4(
        region="eu-west-1", credentials=AwsCredentials(access_key_id="AKIAEXAMPLE", secret_access_key="amiss")
    ),
}


def guard_of(login: str, uri: str) -> GuardedProxy:
    if login == "oauth2":
        return OAuth2Proxy(uri, "dagster", SECRET)
    lets_through = {
        "bearer": takes_bearer(SECRET),
        "basic": takes_basic("dagster", SECRET),
        "sigv4": takes_sigv4("AKIAEXAMPLE", SECRET, "eu-west-1", "execute-api"),
    }
    return GuardedProxy(uri, lets_through[login])


@pytest.fixture(params=list(LOGINS))
def login(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def guard(login: str, rest: RestServer) -> Iterator[GuardedProxy]:
    emptied(RestCatalog(uri=rest.uri))
    with closing(guard_of(login, rest.uri)) as guard:
        yield guard


@pytest.fixture
def remote(engine: str, request: pytest.FixtureRequest) -> str | None:
    return request.getfixturevalue("connect_server") if engine == "connect" else None


@pytest.mark.sample(5)
def test_both_engines_log_in(login: str, guard: GuardedProxy, remote: str | None, tmp_path: Path) -> None:
    read: list[list[int]] = []

    @dg.asset
    def by_spark(t: DataFrame) -> None:
        read.append(sorted(row.id for row in t.collect()))

    @dg.asset
    def by_pyiceberg(t: pa.Table) -> None:
        read.append(sorted(t.column("id").to_pylist()))

    catalog = RestCatalog(uri=guard.uri, authentication=LOGINS[login], headers={"X-Tenant": "nyc"})
    for lake in open_lake(catalog, tmp_path, remote):
        lake.materialize(frame_asset("t", "select id from range(3)"), by_spark, by_pyiceberg)
    assert read == [[0, 1, 2]] * 2
    assert guard.refused == 0
    assert {headers.get("X-Tenant") for headers in guard.passed} == {"nyc"}
    assert not any("X-Iceberg-Access-Delegation" in headers for headers in guard.passed), "nobody asked for keys"


@pytest.mark.sample(5)
def test_wrong_credentials_are_the_configuration_s_fault(
    login: str, guard: GuardedProxy, remote: str | None, tmp_path: Path
) -> None:
    catalog = RestCatalog(uri=guard.uri, authentication=WRONG[login])
    for lake in open_lake(catalog, tmp_path, remote):
        for name in ("spark_session", "pyiceberg_catalog"):
            with pytest.raises(ConfigurationError, match="REST catalog 'lake' at http") as caught:
                getattr(lake.spark, name)
            assert "amiss" not in str(caught.value)
    assert guard.passed == []


def test_a_token_that_expires_while_spark_writes_is_asked_for_again(
    rest: RestServer, remote: str | None, tmp_path: Path
) -> None:
    emptied(RestCatalog(uri=rest.uri))
    with closing(OAuth2Proxy(rest.uri, "dagster", SECRET, token_seconds=4)) as guard:
        slow = "select id, java_method('java.lang.Thread', 'sleep', 500L) is null as v from range(0, 30, 1, 2)"
        for lake in open_lake(RestCatalog(uri=guard.uri, authentication=LOGINS["oauth2"]), tmp_path, remote):
            lake.materialize(frame_asset("t", slow))
            assert lake.rows("t", "id") == list(range(30))
            assert len(lake.summaries("t")) == 1
    assert len(guard.asked) > 3
    assert {form["scope"] for form in guard.asked} == {"lake"}
    assert {(form.get("audience"), form.get("resource")) for form in guard.asked} == {("tables", "r")}
