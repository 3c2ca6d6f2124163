"""Tables as of one point, read by Trino, and by all engines at once while others release.

docs/serving.md: What a client sees
"""

import datetime as dt
import itertools
import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import dagster as dg
import pyarrow as pa
import pytest

from dagster_iceberg_spark import IcebergPySparkIOManager, IcebergSparkResource, build_release
from tests.lakes import Lake
from tests.served_lake import TOKEN, ServedLake, by_duckdb, open_in_spark, serving
from tests.servers.trino import Trino, TrinoError

# The first run fetches Trino.
pytestmark = [pytest.mark.server, pytest.mark.timeout(900)]
_MINUTES: Final = 5
_TABLES: Final = 6
_PAUSE_SECONDS: Final = 1.0
"""Of a reader after each read, so that the releases get their share of the machine."""


@contextmanager
def opened(trino: Trino, name: str, address: str, point: str) -> Iterator[str]:
    """Yield the name of a catalog of Trino that shows a point."""
    properties = {
        "iceberg.catalog.type": "rest",
        "iceberg.rest-catalog.uri": address,
        "iceberg.rest-catalog.warehouse": point,
        "iceberg.rest-catalog.security": "OAUTH2",
        "iceberg.rest-catalog.oauth2.token": TOKEN,
        "fs.native-local.enabled": "true",
        "local.location": "/",
    }
    settings = ", ".join(f"\"{key}\" = '{value}'" for key, value in properties.items())
    trino.rows(f"CREATE CATALOG {name} USING iceberg WITH ({settings})")
    try:
        yield name
    finally:
        trino.rows(f"DROP CATALOG {name}")


def test_trino_reads_tables_that_agree_and_cannot_write(
    tmp_path: Path, made_instance: dg.DagsterInstance, trino: Trino
) -> None:
    lake = ServedLake(tmp_path, made_instance)
    lake.write(1)
    lake.tag("2026-11")
    lake.write(2, environment="pr-7")
    lake.write(3, columns=2)
    now = dt.datetime.now(dt.timezone.utc).isoformat()
    both = "SELECT o.v, d.v FROM {0}.shop.orders o, {0}.shop.daily d"
    points = {"release/2026-11": 1, "env/pr-7": 2, f"run/{lake.runs[0]}": 1, f"at/{now}": 3}
    with serving(lake):
        for number, (point, value) in enumerate(points.items()):
            with opened(trino, f"point{number}", lake.address, point) as name:
                assert trino.rows(both.format(name)) == [(value, value)], point
                assert trino.rows(f"SHOW TABLES FROM {name}.shop") == [("daily",), ("orders",)]
                columns = [row[0] for row in trino.rows(f"SHOW COLUMNS FROM {name}.shop.orders")]
                assert columns == (["v", "w1"] if value == 3 else ["v"])
        with opened(trino, "written", lake.address, "release/2026-11") as name:
            for statement in (
                f"INSERT INTO {name}.shop.orders VALUES (9)",
                f"DELETE FROM {name}.shop.orders",
                f"DROP TABLE {name}.shop.orders",
                f"CREATE TABLE {name}.shop.other (v integer)",
            ):
                with pytest.raises(TrinoError):
                    trino.rows(statement)
            assert trino.rows(both.format(name)) == [(1, 1)]
            with pytest.raises(TrinoError, match="release: 2026-11"), opened(trino, "no", lake.address, "release/no"):
                trino.rows("SHOW SCHEMAS FROM no")


class RollingRelease:
    """Tables that are released together again and again. All rows of a release have one value."""

    def __init__(self, lake: ServedLake) -> None:
        self.lake, self.value = lake, 0
        members = [self._member(number) for number in range(_TABLES)]
        self._assets = [*members, build_release("release", members, name="rolling")]
        spark = IcebergSparkResource(catalog=lake.catalog)
        self._resources = {"iceberg": IcebergPySparkIOManager(spark=spark, namespace="shop")}

    def _member(self, number: int) -> dg.AssetsDefinition:
        @dg.asset(name=f"t{number}", io_manager_key="iceberg", metadata={"iceberg/publish": "release"})
        def rows() -> pa.Table:
            return pa.table({"v": [self.value]})

        return rows

    def publish(self) -> None:
        self.value += 1
        dg.materialize(self._assets, resources=self._resources, instance=self.lake.instance)


def all_tables(catalog: str) -> str:
    return " UNION ALL ".join(f"SELECT v FROM {catalog}.shop.t{number}" for number in range(_TABLES))


def by_pyiceberg(lake: ServedLake, point: str) -> list[int]:
    return [value for values in lake.values(point).values() for value in values]


def by_trino(trino: Trino) -> Callable[[ServedLake, str], list[int]]:
    def read(lake: ServedLake, point: str) -> list[int]:
        with opened(trino, "rolling", lake.address, point) as name:
            return [row[0] for row in trino.rows(all_tables(name))]

    return read


def by_spark(session: Any) -> Callable[[ServedLake, str], list[int]]:
    names = (f"served{number}" for number in itertools.count())

    def read(lake: ServedLake, point: str) -> list[int]:
        name = next(names)
        open_in_spark(session, lake, point, name=name)
        return [row[0] for row in session.sql(all_tables(name)).collect()]

    return read


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("catalog", ["sqlite"], indirect=True)
def test_no_engine_sees_half_of_a_release(
    tmp_path: Path, made_instance: dg.DagsterInstance, trino: Trino, classic_lake: Lake
) -> None:
    lake = ServedLake(tmp_path, made_instance)
    release, until = RollingRelease(lake), time.monotonic() + 60 * _MINUTES
    readers: dict[str, Callable[[ServedLake, str], list[int]]] = {
        "pyiceberg": by_pyiceberg,
        "DuckDB": lambda lake, point: [row[0] for row in by_duckdb(lake, point, all_tables("served"))],
        "Trino": by_trino(trino),
        "Spark": by_spark(classic_lake.session),
    }

    def read(name: str) -> list[list[int]]:
        seen = list[list[int]]()
        while time.monotonic() < until:
            now = dt.datetime.now(dt.timezone.utc).isoformat()
            seen.append(readers[name](lake, ("release/rolling", f"at/{now}")[len(seen) % 2]))
            time.sleep(_PAUSE_SECONDS)
        return seen

    release.publish()
    with serving(lake), ThreadPoolExecutor(len(readers)) as pool:
        answers = {name: pool.submit(read, name) for name in readers}
        while time.monotonic() < until and not any(answer.done() for answer in answers.values()):
            release.publish()
    found = {name: answer.result() for name, answer in answers.items()}
    reads = {name: len(seen) for name, seen in found.items()}
    logging.getLogger(__name__).info("%s releases, reads: %s", release.value, reads)
    for name, seen in found.items():
        assert all(len(rows) == _TABLES and len(set(rows)) == 1 for rows in seen), name
        assert len({rows[0] for rows in seen}) > 1, f"{name} sees releases come"
