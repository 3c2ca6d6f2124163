"""Mirrors with PostgreSQL and with files on S3."""

import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from dagster_iceberg_spark import DuckLakeMirror
from dagster_iceberg_spark.features.mirror.options import MirrorMode
from tests.features.mirror.mirroring import duckdb_of, in_order, state_of
from tests.lakes import error_of, frame_asset, metadata_of, open_lake
from tests.servers import combinations
from tests.servers.postgresql import PASSWORD, PostgreSqlServer

pytestmark = [pytest.mark.server, pytest.mark.spark]


@pytest.mark.sample(4)
@pytest.mark.parametrize("mode", ["register", "view", "copy"])
@pytest.mark.parametrize("catalog", ["sqlite", "sqlite_s3", "rest_vended"])
def test_a_ducklake_in_postgresql_shows_tables_on_every_store(
    request: pytest.FixtureRequest, postgresql: PostgreSqlServer, tmp_path: Path, catalog: str, mode: MirrorMode
) -> None:
    name = f"mirror_{uuid.uuid4().hex}"
    postgresql.create_database(name)
    with ExitStack() as stack:
        asked = combinations.Asked(request, tmp_path, stack)
        is_local = catalog == "sqlite"
        keys = {f"s3.{name}": value for name, value in combinations.VENDED.items()} if "vended" in catalog else {}
        data_path = str(tmp_path / "files") if is_local else f"{asked.on_s3}/mirror"
        mirror = DuckLakeMirror(catalog=postgresql.uri(database=name), data_path=data_path, mode=mode)
        for opened in open_lake(getattr(combinations, catalog)(asked), tmp_path, None):
            lake = opened.with_options(mirror=mirror)
            for disposition in ("append", "append", "replace"):
                rows = "select id, timestamp '2013-01-01 05:00:00' as ts, map('k', id) as m from range(3)"
                metadata = {"iceberg/write_disposition": disposition}
                result = lake.materialize(frame_asset("people", rows, metadata=metadata))
                assert state_of(metadata_of(result, "people"))["state"] == "current"
                with duckdb_of(lake, keys) as connection:
                    found = in_order(connection.sql("from m.db.people").to_arrow_table())
                assert repr(found) == repr(in_order(lake.arrow("people")))


def test_a_ducklake_that_is_gone_is_a_warning_without_a_password(
    postgresql: PostgreSqlServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    uri = postgresql.uri(database="no_such_database")
    mirror = DuckLakeMirror(catalog=uri, data_path=str(tmp_path / "files"))
    assert PASSWORD not in repr(mirror)
    for opened in open_lake(combinations.sqlite(_asked(tmp_path)), tmp_path, None):
        lake = opened.with_options(mirror=mirror)
        result = lake.materialize(frame_asset("people", "select 1 as id"))
        state = state_of(metadata_of(result, "people"))
        assert (state["state"], "no_such_database" in state["error"]) == ("behind", True)
        assert PASSWORD[-8:] not in f"{state}{caplog.text}"
        failing = opened.with_options(mirror=mirror.model_copy(update={"on_failure": "error"}))
        error = error_of(failing.materialize(frame_asset("people", "select 2 as id"), raise_on_error=False))
        assert (error.class_name, error.allow_retries) == ("MirrorFailedError", True)
        assert lake.rows("people") == [2]


def _asked(directory: Path) -> Any:
    request: Any = None
    return combinations.Asked(request, directory, ExitStack())
