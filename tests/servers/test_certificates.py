"""A REST catalog behind a certificate that no public authority has signed."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dagster_iceberg_spark import RestCatalog
from dagster_iceberg_spark.catalog.look import find_table
from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.table.identifier import TableIdentifier
from tests.conftest import frame_asset, open_lake
from tests.servers.authority import Authority
from tests.servers.conftest import emptied
from tests.servers.proxy import HttpProxy
from tests.servers.rest import RestServer

pytestmark = [pytest.mark.server, pytest.mark.spark]


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


def test_both_engines_trust_the_authority_that_is_named(uri: str, authority: Authority, tmp_path: Path) -> None:
    assert uri.startswith("https://")
    for lake in open_lake(RestCatalog(uri=uri, ca_bundle=str(authority.bundle)), tmp_path, None):
        for _ in range(2):
            lake.materialize(frame_asset("t", "select id from range(3)"))
        assert lake.rows("t") == [0, 1, 2]


def test_an_unknown_authority_is_the_configuration_s_fault_in_both_engines(
    engine: str, uri: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    remote = request.getfixturevalue("connect_server") if engine == "connect" else None
    catalog = RestCatalog(uri=uri)
    for lake in open_lake(catalog, tmp_path, remote):
        with pytest.raises(ConfigurationError, match="of an authority that Spark's JVM trusts"):
            assert lake.session is not None
    with pytest.raises(ConfigurationError, match="set `ca_bundle` of a REST catalog to a PEM file"):
        find_table(catalog.describe(), TableIdentifier(("db",), "t"))


def test_a_file_without_certificates_is_refused(uri: str, tmp_path: Path) -> None:
    bundle = tmp_path / "empty.pem"
    bundle.write_text("no certificate")
    for lake in open_lake(RestCatalog(uri=uri, ca_bundle=str(bundle)), tmp_path, None):
        with pytest.raises(ConfigurationError, match="expected a PEM file with certificates"):
            assert lake.session is not None
