"""A REST catalog behind a certificate that no public authority has signed."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dagster_iceberg_spark import RestCatalog
from dagster_iceberg_spark.catalog.look import find_table
from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.table.identifier import TableIdentifier
from tests.lakes import open_lake
from tests.servers.authority import Authority
from tests.servers.conftest import emptied
from tests.servers.proxy import HttpProxy
from tests.servers.rest import RestServer

pytestmark = [pytest.mark.server, pytest.mark.spark]

IMPORT = ("keytool", "-importcert", "-noprompt", "-storepass", "changeit", "-file")
TRUSTING = """
import sys
from pathlib import Path
from dagster_iceberg_spark import RestCatalog
from tests import lakes
uri, bundle, trust_store, directory = sys.argv[1:]
trust = f"-Djavax.net.ssl.trustStore={trust_store} -Djavax.net.ssl.trustStorePassword=changeit"
lakes.SPARK_CONF["spark.driver.extraJavaOptions"] = trust
for lake in lakes.open_lake(RestCatalog(uri=uri, ca_bundle=bundle), Path(directory), None):
    for _ in range(2):
        lake.materialize(lakes.frame_asset("t", "select id from range(3)"))
    print(lake.rows("t"))
"""


@pytest.fixture(autouse=True)
def _nothing_of_the_machine_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """What these variables name wins over what is configured (https://github.com/psf/requests/issues/3829)."""
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def uri(rest: RestServer, authority: Authority) -> Iterator[str]:
    emptied(RestCatalog(uri=rest.uri))
    with closing(HttpProxy(rest.uri, authority.tls)) as proxy:
        yield proxy.uri


def test_both_engines_trust_an_authority_as_the_docs_say(uri: str, authority: Authority, tmp_path: Path) -> None:
    """In a process of its own: a JVM reads its trust store once."""
    assert uri.startswith("https://")
    trust_store = tmp_path / "trust.p12"
    subprocess.run([*IMPORT, authority.bundle, "-keystore", trust_store], check=True, capture_output=True)
    answer = subprocess.run(
        [sys.executable, "-c", TRUSTING, uri, str(authority.bundle), str(trust_store), str(tmp_path)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=200,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
    )
    assert answer.stdout.splitlines()[-1] == "[0, 1, 2]"


def test_an_unknown_authority_is_the_configuration_s_fault_in_both_engines(
    engine: str, uri: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    remote = request.getfixturevalue("connect_server") if engine == "connect" else None
    catalog = RestCatalog(uri=uri)
    for lake in open_lake(catalog, tmp_path, remote):
        with pytest.raises(ConfigurationError, match=r"Spark's JVM trusts.*-Djavax.net.ssl.trustStore"):
            assert lake.session is not None
    with pytest.raises(ConfigurationError, match="set `ca_bundle` of a REST catalog to a PEM file"):
        find_table(catalog.describe(), TableIdentifier(("db",), "t"))
