"""A catalog's password reaches the catalog and nothing that anybody reads."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

from dagster_iceberg_spark import (
    AdlsStore,
    ConfigurationError,
    EmbeddedCatalog,
    GcsStore,
    HadoopStore,
    IcebergSparkResource,
    RestCatalog,
    SqlCatalog,
)
from dagster_iceberg_spark.spark.session.session import launch_conf
from tests.lakes import SPARK_CONF, frame_asset, free_port, open_lake
from tests.servers import evidence
from tests.servers.conftest import emptied
from tests.servers.guards import GuardedProxy, OAuth2Proxy, takes_bearer
from tests.servers.postgresql import PASSWORD, PostgreSqlServer
from tests.servers.rest import RestServer
from tests.servers.s3 import REGION, S3Server

WRONG: str = "wr@ng w:rd/%hushhush"
SPELLINGS = {
    spell(word) for word in (PASSWORD, WRONG) for spell in (str, quote_plus, lambda text: quote(text, safe=""))
}
"""The passwords as they are, and as URIs have them."""
TAIL = "hushhush"
"""What every spelling ends with, whoever escaped it and how."""
LOGIN = f"s3cr3t/+{TAIL}"
"""What the REST catalogs and the store ask for."""
SECONDS = 200

PLACES = {
    "repr of resource": "SqlCatalog",
    "repr of IO manager": "IcebergPySparkIOManager",
    "repr of catalog configuration": "SqlCatalog",
    "repr of catalog description": "PostgreSQL catalog",
    "repr of session settings": "SessionSettings",
    "repr of session": "IcebergSession",
    "repr of pyiceberg catalog": "lake",
    "event log of a good run": "Committed snapshot",
    "materializations of a good run": "iceberg/snapshot_id",
    "event log of a run that fails in the engine": "on purpose",
    "event log of a write with wrong password": "password authentication failed",
    "event log of a read with wrong password": "password authentication failed",
    "session with wrong password": "password authentication failed",
    "pyiceberg catalog with wrong password": "password authentication failed",
    "event log of a write with unused port": "refused",
    "event log of a read with unused port": "refused",
    "session with unused port": "refused",
    "pyiceberg catalog with unused port": "refused",
    "snapshot summaries": "dagster.run_id",
    "table metadata": "dagster.run_id",
    "UI, environment": "spark.sql.catalog.lake.uri",
    "UI, SQL": "Completed Queries",
    "UI, SQL executions": "jdbc.password",
    "UI, jobs and stages": "Stages",
    "UI, executors and threads": "Thread dump",
    "threads": "main",
    **{f"event log of a good run with {login}": "Committed snapshot" for login in ("OAuth2", "token", "S3")},
    **{f"reprs with {login}": "'guarded_" for login in ("OAuth2", "token", "S3")},
    **{f"event log of a run with a wrong {login}": "Cannot" for login in ("OAuth2", "token")},
    **{f"pyiceberg catalog with a wrong {login}": "Cannot" for login in ("OAuth2", "token")},
    "REST API, environment": "spark.sql.catalog.lake.uri",
    "REST API, SQL": "db.written",
    "command line": "spark.sql.catalog.lake.uri",
    "Spark's event log": "jdbc.password",
    "output": "Committed snapshot",
    "output of the JVM": "INFO ",
}
"""Every text that is looked at, and what it holds if it is the right one."""

pytestmark = [pytest.mark.server, pytest.mark.spark]


@pytest.fixture(scope="module")
def texts(
    postgresql: PostgreSqlServer,
    postgresql_catalog: SqlCatalog,
    rest: RestServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[str, str]]:
    """What a process of its own gathered, and what it printed."""
    directory = tmp_path_factory.mktemp("secrets")
    emptied(RestCatalog(uri=rest.uri))
    with (
        closing(S3Server()) as s3,
        closing(OAuth2Proxy(rest.uri, "dagster", LOGIN)) as oauth2,
        closing(GuardedProxy(rest.uri, takes_bearer(LOGIN))) as bearer,
    ):
        yield gathered_in(directory, postgresql, emptied(postgresql_catalog), logins(s3, oauth2, bearer, directory))


def logins(s3: S3Server, oauth2: OAuth2Proxy, bearer: GuardedProxy, directory: Path) -> dict[str, Any]:
    """Catalogs, in the form of Dagster's configuration; the store's keys are those of the environment."""

    def rest_catalog(name: str, uri: str, **authentication: Any) -> dict[str, Any]:
        return {"rest": {"name": f"guarded_{name}", "uri": uri, "authentication": authentication}}

    store = {"endpoint": s3.endpoint, "path_style_access": True, "region": REGION}
    on_s3 = {"name": "guarded_s3", "uri": f"sqlite:///{directory}/s3.db", "warehouse": f"s3://{s3.bucket}/wh"}
    wrong = f"amiss {TAIL}"
    return {
        "logins": {
            "OAuth2": rest_catalog("oauth2", oauth2.uri, oauth2={"client_id": "dagster", "client_secret": LOGIN}),
            "token": rest_catalog("token", bearer.uri, bearer={"token": LOGIN}),
            "S3": {"sql": {**on_s3, "store": {"s3": store}}},
        },
        "wrong logins": {
            "OAuth2": rest_catalog("wrong", oauth2.uri, oauth2={"client_id": "dagster", "client_secret": wrong}),
            "token": rest_catalog("wrong", bearer.uri, bearer={"token": wrong}),
        },
    }


def gathered_in(
    directory: Path, postgresql: PostgreSqlServer, postgresql_catalog: SqlCatalog, asked: dict[str, Any]
) -> dict[str, str]:
    events = directory / "events"
    events.mkdir()
    told = {
        **asked,
        "uri": postgresql.uri(),
        "wrong password": postgresql.uri(password=WRONG),
        "unused port": postgresql.uri(port=free_port()),
        "warehouse": postgresql_catalog.warehouse,
        "answer": str(directory / "answer.json"),
        "spark_config": {
            **SPARK_CONF,
            "spark.ui.enabled": "true",
            "spark.ui.port": str(free_port()),
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": events.as_uri(),
            "spark.eventLog.compress": "false",
        },
    }
    answer = subprocess.run(
        [sys.executable, "-m", evidence.__name__],
        input=json.dumps(told),
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
        env={
            **os.environ,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE",
            "AWS_SECRET_ACCESS_KEY": LOGIN,
            "AWS_SESSION_TOKEN": LOGIN,
        },
        cwd=Path(__file__).parents[2],
    )
    printed = answer.stdout + answer.stderr
    assert answer.returncode == 0, printed[-6000:]
    logged = "\n".join(path.read_text() for path in events.rglob("*") if path.is_file())
    gathered: dict[str, str] = json.loads(Path(directory / "answer.json").read_text())
    return {**gathered, "Spark's event log": logged, "output": printed, "output of the JVM": printed}


HELD: dict[str, Any] = {
    "in the URI": SqlCatalog(uri=f"postgresql://me:{quote(PASSWORD, safe='')}@h/db", warehouse="s3://w"),
    "in the URI's query": SqlCatalog(
        uri=f"postgresql://h/db?user=me&password={quote_plus(PASSWORD)}", warehouse="s3://w"
    ),
    "in the store's properties": SqlCatalog(
        uri="postgresql://h/db", warehouse="s3://w", properties={"s3.secret-access-key": PASSWORD}
    ),
    "of an Azure account": RestCatalog(uri="http://h", properties={"adls.account-key": PASSWORD}),
    "of an Azure store": SqlCatalog(
        uri="postgresql://h/db", warehouse="abfss://w@a.dfs.core.windows.net", store=AdlsStore(account_key=PASSWORD)
    ),
    "of a Google store": SqlCatalog(uri="postgresql://h/db", warehouse="gs://w", store=GcsStore(token=PASSWORD)),
    "of Hadoop's": SqlCatalog(
        uri="postgresql://h/db",
        warehouse="wasbs://w@a.blob.core.windows.net",
        store=HadoopStore(configuration={"fs.azure.sas.w.a.blob.core.windows.net": PASSWORD}),
    ),
    "in a connection string": RestCatalog(uri="http://h", properties={"adls.connection-string.a": PASSWORD}),
    "in a credential": RestCatalog(uri="http://h", properties={"credential": f"me:{PASSWORD}"}),
    "in a token": RestCatalog(uri="http://h", properties={"token": PASSWORD}),
    "in a header": RestCatalog(uri="http://h", properties={"header.Authorization": f"Bearer {PASSWORD}"}),
    "of an embedded catalog": EmbeddedCatalog(properties={"s3.session-token": PASSWORD}),
}
"""Each place where a user may put a secret."""
REFUSED: dict[str, Any] = {
    "unescaped in a SQL catalog's URI": SqlCatalog(uri=f"postgresql://me:{PASSWORD}@h/db", warehouse="s3://w"),
    "of a client's key": SqlCatalog(uri=f"postgresql://me@h/db?sslpassword={quote_plus(PASSWORD)}", warehouse="s3://w"),
    "in a REST catalog's URI": RestCatalog(uri=f"http://me:{quote(PASSWORD, safe='')}@h"),
}


@pytest.mark.parametrize("catalog", HELD.values(), ids=list(HELD))
def test_a_secret_shows_in_no_configuration_and_on_no_command_line(catalog: Any, tmp_path: Path) -> None:
    spark = IcebergSparkResource(catalog=catalog)
    spark._storage_directory = str(tmp_path)
    settings = spark.session_settings()
    shown = [
        spark,
        catalog,
        catalog.properties and [catalog],
        spark.catalog_description,
        settings,
        launch_conf(settings),
    ]
    assert leaks("\n".join(f"{item!r}\n{item!s}" for item in shown)) == []
    secrets = [value for value in spark.catalog_description.spark_secrets.values() if TAIL in value]
    spelled = " ".join(f"{value} {quote(value, safe='')} {quote_plus(value)}" for value in secrets)
    assert leaks(spelled) != []
    assert leaks(spark.catalog_description.redact(spelled)) == []


@pytest.mark.parametrize("catalog", REFUSED.values(), ids=list(REFUSED))
def test_a_password_that_cannot_be_kept_is_refused_without_showing_it(catalog: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        catalog.describe()
    assert leaks(f"{caught.value} {caught.value.__cause__} {catalog!r} {catalog!s}") == []


def leaks(text: str) -> list[str]:
    """Where a password shows, with what is around it."""
    found = [spelling for spelling in (*SPELLINGS, TAIL) if spelling in text]
    return [text[max(0, text.index(spelling) - 200) : text.index(spelling) + 60] for spelling in found]


@pytest.mark.parametrize("place", PLACES)
def test_the_password_shows_in_no_text(texts: dict[str, str], place: str) -> None:
    assert PLACES[place] in texts[place]
    assert leaks(texts[place]) == []


@pytest.mark.parametrize("place", [place for place in PLACES if "wrong password" in place])
def test_a_wrong_password_is_the_configuration_s_fault_whichever_engine_finds_it(
    texts: dict[str, str], place: str
) -> None:
    assert "dagster_iceberg_spark.errors.ConfigurationError: Cannot" in texts[place]


@pytest.mark.connect
def test_the_password_shows_in_no_log_of_a_connect_server(
    postgresql_catalog: SqlCatalog, connect_server: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    for lake in open_lake(emptied(postgresql_catalog), tmp_path, connect_server):
        lake.materialize(frame_asset("t", "select 1 as id"))
        lake.failure(frame_asset("t", "select if(id < 0, id, raise_error('on purpose')) as id from range(1)"))
    (log,) = {path.resolve() for path in tmp_path_factory.getbasetemp().glob("connect*/server.log")}
    assert "on purpose" in log.read_text()
    assert leaks(log.read_text()) == []


def test_every_text_that_was_gathered_is_looked_at(texts: dict[str, str]) -> None:
    assert {place: leaks(text) for place, text in texts.items() if leaks(text)} == {}
