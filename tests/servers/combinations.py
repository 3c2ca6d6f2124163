"""Catalogs and stores in combination, what is asked of each, and the page that says what was seen to work."""

import datetime as dt
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from dagster_iceberg_spark import (
    GlueCatalog,
    HadoopCatalog,
    HadoopStore,
    HiveCatalog,
    OAuth2,
    RestCatalog,
    S3Store,
    SqlCatalog,
)
from tests.servers.guards import GuardedProxy, OAuth2Proxy, SigningProxy, VendingProxy, takes_keys
from tests.servers.rest import RestServer
from tests.servers.s3 import KEYS, REGION, S3Server

VENDED: Final = {"access-key-id": "ASIAVENDED", "secret-access-key": "hush/vended", "session-token": "hush-token"}
CLIENT: Final = ("dagster", "hush/hush")


@dataclass(frozen=True)
class Asked:
    """What a combination is derived from.

    Args:
        request: For servers of the whole run.
        directory: The test's own.
        stack: Closes what is started for the test alone.
    """

    request: pytest.FixtureRequest
    directory: Path
    stack: ExitStack

    @property
    def s3(self) -> S3Server:
        server: S3Server = self.request.getfixturevalue("s3")
        return server

    @property
    def on_s3(self) -> str:
        return f"s3://{self.s3.bucket}/{self.directory.name}"


def sqlite(asked: Asked) -> Any:
    return SqlCatalog(uri=f"sqlite:///{asked.directory}/catalog.db", warehouse=str(asked.directory / "wh"))


def postgresql(asked: Asked) -> Any:
    return asked.request.getfixturevalue("postgresql_catalog")


def mysql(asked: Asked) -> Any:
    return SqlCatalog(uri=asked.request.getfixturevalue("mysql").uri(), warehouse=str(asked.directory / "wh"))


def rest(asked: Asked) -> Any:
    return RestCatalog(uri=asked.request.getfixturevalue("rest").uri)


def rest_oauth2(asked: Asked) -> Any:
    guard = asked.stack.enter_context(closing(OAuth2Proxy(asked.request.getfixturevalue("rest").uri, *CLIENT)))
    return RestCatalog(uri=guard.uri, authentication=OAuth2(client_id=CLIENT[0], client_secret=CLIENT[1]))


def rest_vended(asked: Asked) -> Any:
    """The store takes no other keys than those that the catalog hands out."""
    own = asked.s3.store().describe()
    served = {"warehouse": asked.on_s3, **own.spark, **own.spark_secrets}
    server = asked.stack.enter_context(closing(RestServer(asked.directory, served)))
    keys = {f"s3.{name}": value for name, value in VENDED.items()}
    vending = asked.stack.enter_context(closing(VendingProxy(server.uri, keys)))
    lets_through = takes_keys(VENDED["access-key-id"], VENDED["session-token"])
    guarded = asked.stack.enter_context(closing(GuardedProxy(asked.s3.endpoint, lets_through)))
    store = S3Store(endpoint=guarded.uri, path_style_access=True, region=REGION)
    return RestCatalog(uri=vending.uri, access_delegation="vended-credentials", store=store)


def rest_signing(asked: Asked) -> Any:
    """The store takes no request that the catalog has not signed."""
    versity = asked.request.getfixturevalue("versity")
    own = versity.store().describe()
    served = {"warehouse": f"s3://{versity.bucket}/{asked.directory.name}", **own.spark, **own.spark_secrets}
    server = asked.stack.enter_context(closing(RestServer(asked.directory, served)))
    keys = (str(versity.keys.access_key_id), str(versity.keys.secret_access_key))
    proxy = SigningProxy(server.uri, *keys, path="/v1/tables/sign", is_told=True)
    signing = asked.stack.enter_context(closing(proxy))
    store = S3Store(endpoint=versity.endpoint, path_style_access=True, region=REGION)
    return RestCatalog(uri=signing.uri, access_delegation="remote-signing", store=store)


def sqlite_s3(asked: Asked) -> Any:
    return sqlite_on(asked, asked.on_s3, asked.s3.store())


def nessie(asked: Asked) -> Any:
    """Nessie lends the keys."""
    store = S3Store(endpoint=asked.s3.endpoint, path_style_access=True, region=REGION)
    return RestCatalog.nessie(asked.request.getfixturevalue("nessie").uri, store=store)


def sqlite_versity(asked: Asked) -> Any:
    server = asked.request.getfixturevalue("versity")
    return sqlite_on(asked, f"s3://{server.bucket}/{asked.directory.name}", server.store())


def sqlite_adls(asked: Asked) -> Any:
    server = asked.request.getfixturevalue("azurite")
    return sqlite_on(asked, server.warehouse(asked.directory.name), server.store())


def sqlite_gcs(asked: Asked) -> Any:
    server = asked.request.getfixturevalue("gcs")
    return sqlite_on(asked, server.warehouse(asked.directory.name), server.store())


def sqlite_on(asked: Asked, warehouse: str, store: Any) -> Any:
    return SqlCatalog(uri=f"sqlite:///{asked.directory}/catalog.db", warehouse=warehouse, store=store)


def glue(asked: Asked) -> Any:
    return GlueCatalog(
        warehouse=asked.on_s3, region=REGION, endpoint=asked.s3.endpoint, credentials=KEYS, store=asked.s3.store()
    )


def hive(asked: Asked) -> Any:
    return HiveCatalog(uri=asked.request.getfixturevalue("hive").uri, warehouse=str(asked.directory / "wh"))


def hadoop(asked: Asked) -> Any:
    return HadoopCatalog(warehouse=str(asked.directory / "wh"))


def hadoop_hdfs(asked: Asked) -> Any:
    return HadoopCatalog(warehouse=f"{asked.request.getfixturevalue('hdfs').uri}{asked.directory}/wh")


def sqlite_hdfs(asked: Asked) -> Any:
    return sqlite_on(asked, f"{asked.request.getfixturevalue('hdfs').uri}{asked.directory}/wh", HadoopStore())


COMBINATIONS: Final[Mapping[str, Callable[[Asked], Any]]] = {
    "SQLite, local files": sqlite,
    "PostgreSQL, local files": postgresql,
    "MySQL (MariaDB), local files": mysql,
    "REST (Iceberg's reference server), local files": rest,
    "REST behind OAuth2, local files": rest_oauth2,
    "REST that hands out keys, S3 (moto)": rest_vended,
    "REST that signs requests, S3 (Versity's gateway)": rest_signing,
    "Nessie, S3 (moto)": nessie,
    "SQLite, S3 (moto)": sqlite_s3,
    "SQLite, S3 (Versity's gateway)": sqlite_versity,
    "SQLite, ADLS (Azurite)": sqlite_adls,
    "SQLite, GCS (fake-gcs-server)": sqlite_gcs,
    "SQLite, HDFS": sqlite_hdfs,
    "Glue (moto), S3 (moto)": glue,
    "Hive Metastore 2.3, local files": hive,
    "Hadoop, local files": hadoop,
    "Hadoop, HDFS": hadoop_hdfs,
}
"""In the order of the page."""


def is_asked_for_keys(combination: str) -> bool:
    """Return whether the server is asked if it takes an `Idempotency-Key`: those that speak Iceberg's REST protocol."""
    return combination.startswith(("REST", "Nessie"))


FEATURES: Final = (
    "classic Spark",
    "Spark Connect",
    "written by pyiceberg",
    "Arrow",
    "replace",
    "append",
    "merge",
    "lineage",
    "audits",
    "release one by one",
    "release at one instant",
    "maintenance",
    "first writes race",
    "commit conflicts",
    "refused login",
    "server down",
    "Idempotency-Key",
)
"""In the order of the page."""

EACH: Final = 3
"""How many combinations of a feature are in the sample, and how many features of a combination."""

IN_A_FILE: Final = (
    "SQLite, local files",
    "SQLite, S3 (moto)",
    "SQLite, S3 (Versity's gateway)",
    "SQLite, ADLS (Azurite)",
    "SQLite, GCS (fake-gcs-server)",
    "SQLite, HDFS",
)
_NO_BRANCHES: Final = "Nessie has no Iceberg branches"
_IN_TURN: Final = "the catalog commits one table at a time"
_AT_ONCE: Final = "the catalog commits all tables of a release at one instant"
_ONE_BY_ONE: Final = ("REST", "Glue", "Hive", "Hadoop")
_TOGETHER: Final = ("SQLite", "PostgreSQL", "MySQL")
_LOCAL: Final = "no server is involved"
_OPEN: Final = "the server accepts every client"
_NO_KEYS: Final = "the server announces no keys"
_OF_REST: Final = "only the REST protocol has keys"
_READ_ONLY: Final = "pyiceberg can read such a catalog but not write to it"
IMPOSSIBLE: Final[Mapping[tuple[str, str], str]] = {
    ("Hadoop, local files", "written by pyiceberg"): _READ_ONLY,
    ("Hadoop, HDFS", "written by pyiceberg"): _READ_ONLY,
    ("Hadoop, local files", "first writes race"): "on a local disk, only one process may write",
    ("Hadoop, local files", "commit conflicts"): "on a local disk, only one process may write",
    ("Glue (moto), S3 (moto)", "Spark Connect"): "a Connect server signs with its own identity, which the tests lack",
    ("Glue (moto), S3 (moto)", "first writes race"): "moto accepts an update of an old version, which Glue rejects",
    ("Glue (moto), S3 (moto)", "commit conflicts"): "moto accepts an update of an old version, which Glue rejects",
    ("Nessie, S3 (moto)", "first writes race"): "Nessie 0.99 accepts a table's first snapshot twice and loses one",
    ("Nessie, S3 (moto)", "audits"): _NO_BRANCHES,
    ("Nessie, S3 (moto)", "release one by one"): _NO_BRANCHES,
    ("Nessie, S3 (moto)", "release at one instant"): _NO_BRANCHES,
    ("Nessie, S3 (moto)", "maintenance"): "Nessie maintains its tables itself",
    **{(name, "release at one instant"): _IN_TURN for name in COMBINATIONS if name.startswith(_ONE_BY_ONE)},
    **{(name, "release one by one"): _AT_ONCE for name in COMBINATIONS if name.startswith(_TOGETHER)},
    **{(name, "server down"): _LOCAL for name in (*IN_A_FILE, "Hadoop, local files")},
    **{(name, "refused login"): _LOCAL for name in ("SQLite, local files", "Hadoop, local files")},
    **{
        (name, "refused login"): _OPEN
        for name in (
            "REST (Iceberg's reference server), local files",
            "REST that hands out keys, S3 (moto)",
            "REST that signs requests, S3 (Versity's gateway)",
            "Nessie, S3 (moto)",
            "SQLite, S3 (moto)",
            "SQLite, GCS (fake-gcs-server)",
            "SQLite, HDFS",
            "Hadoop, HDFS",
            "Glue (moto), S3 (moto)",
            "Hive Metastore 2.3, local files",
        )
    },
    **{(name, "Idempotency-Key"): _NO_KEYS for name in COMBINATIONS if is_asked_for_keys(name)},
    **{(name, "Idempotency-Key"): _OF_REST for name in COMBINATIONS if not is_asked_for_keys(name)},
}
"""What cannot be seen here, and why: by combination and feature."""

_HEAD: Final = """# Tested combinations of catalogs and stores

This page shows which catalogs and stores are tested together.

Each cell is the result of a test against a server that the test starts. The tests generate this page: all of them
ran last on {on}, and a sample runs on each change. A number refers to the reason why a combination cannot be tested.

| column | what the test verifies |
|---|---|
| classic Spark, Spark Connect | a table is created and replaced; Spark and pyiceberg read the same rows |
| written by pyiceberg | Spark reads and writes a table that pyiceberg has created and filled |
| Arrow | Arrow and Spark write a partitioned table in turn; with a Hadoop catalog, Arrow is refused by name |
| replace | each run replaces exactly the rows of its partition, with one snapshot each |
| append | each run appends its rows once, with one snapshot each |
| merge | each run merges its rows by their keys, with one snapshot each |
| lineage | the snapshot has the run, asset, partitions and commit token, as read by pyiceberg |
| audits | rows that pass are published, also beside the commit of another partition; rows that fail change nothing |
| release one by one | two tables are published after both are staged, also beside the commit of another partition |
| release at one instant | if another run commits to the second table in the middle, neither is published |
| maintenance | small files are joined, and snapshots expire, but not the one that a reader of changes needs |
| first writes race | sessions create one table at the same time: every partition is there, with one snapshot each |
| commit conflicts | sessions change one table at the same time: nothing is lost, with one snapshot each |
| refused login | the error says so, is not retried, and nothing is left behind |
| server down | an error within seconds, which may be retried |
| Idempotency-Key | a commit that is sent again, because its answer was lost, is made once |
"""


def page(passed: set[tuple[str, str]], on: dt.date) -> str:
    """Return the page.

    Args:
        passed: The combinations and features whose tests have passed.
        on: The day on which they ran.
    """
    reasons = list(dict.fromkeys(IMPOSSIBLE.values()))

    def cell(combination: str, feature: str) -> str:
        if (combination, feature) in IMPOSSIBLE:
            return f"({reasons.index(IMPOSSIBLE[combination, feature]) + 1})"
        return "yes" if (combination, feature) in passed else "**no**"

    rows = [f"| {name} | {' | '.join(cell(name, feature) for feature in FEATURES)} |" for name in COMBINATIONS]
    notes = [f"{number}. {reason}" for number, reason in enumerate(reasons, 1)]
    head = [f"| catalog, store | {' | '.join(FEATURES)} |", f"|---|{'---|' * len(FEATURES)}"]
    return "\n".join([_HEAD.replace("{on}", str(on)), *head, *rows, "", *notes, ""])


def written_cells(text: str) -> dict[tuple[str, str], str]:
    """Return the cells of the page, by combination and feature."""
    cells: dict[tuple[str, str], str] = {}
    for line in text.splitlines():
        name, *texts = [part.strip() for part in line.strip("|").split("|")]
        if name in COMBINATIONS:
            cells |= {(name, feature): cell for feature, cell in zip(FEATURES, texts, strict=True)}
    return cells


def expected() -> set[tuple[str, str]]:
    """Return what is tested."""
    return set(_possible())


def _possible() -> list[tuple[str, str]]:
    every = [(combination, feature) for combination in COMBINATIONS for feature in FEATURES]
    return [place for place in every if place not in IMPOSSIBLE]


@cache
def sampled() -> frozenset[tuple[str, str]]:
    """Return what runs on each change: three combinations of each feature, and three features of each combination.

    `make test-long` runs all of them.
    """
    chosen: list[tuple[str, str]] = []

    def count(name: str) -> int:
        return sum(name in place for place in chosen)

    while lacking := [place for place in _possible() if place not in chosen and min(map(count, place)) < EACH]:
        chosen.append(min(lacking, key=lambda place: sum(map(count, place))))
    return frozenset(chosen)
