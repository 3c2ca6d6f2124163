"""Two tables that Arrow writes, and a server that serves them as of one point."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog

from dagster_iceberg_spark import IcebergPySparkIOManager, IcebergSparkResource, SqlCatalog
from dagster_iceberg_spark.features.mirror.creation import duckdb_with

TOKEN = "let-me-in"


class ServedLake:
    """Tables that Arrow writes, and a server of them."""

    def __init__(self, directory: Path, instance: dg.DagsterInstance) -> None:
        self.directory, self.instance = directory, instance
        self.catalog = SqlCatalog(name="lake", uri=f"sqlite:///{directory}/catalog.db", warehouse=f"{directory}/wh")
        self.runs: list[str] = []
        self.address = ""

    def write(self, value: int, *, environment: str | None = None, columns: int = 1) -> None:
        @dg.asset(io_manager_key="iceberg")
        def orders() -> pa.Table:
            return pa.table({"v": [value], **{f"w{number}": [value] for number in range(1, columns)}})

        @dg.asset(io_manager_key="iceberg")
        def daily(orders: pa.Table) -> pa.Table:
            return orders.select(["v"])

        spark = IcebergSparkResource(catalog=self.catalog)
        io_manager = IcebergPySparkIOManager(spark=spark, namespace="shop", environment=environment)
        result = dg.materialize([orders, daily], resources={"iceberg": io_manager}, instance=self.instance)
        self.runs.append(result.run_id)

    def tag(self, name: str) -> None:
        for table in ("orders", "daily"):
            found = load_catalog("lake", type="sql", uri=f"sqlite:///{self.directory}/catalog.db")
            loaded = found.load_table(("shop", table))
            snapshot = loaded.current_snapshot()
            assert snapshot is not None
            loaded.manage_snapshots().create_tag(snapshot.snapshot_id, name).commit()

    def at(self, point: str, *, token: str = TOKEN, **options: str) -> Catalog:
        return load_catalog("served", type="rest", uri=self.address, warehouse=point, token=token, **options)

    def values(self, point: str, **options: str) -> dict[str, list[int]]:
        catalog = self.at(point, **options)
        names = [".".join(parts) for parts in catalog.list_tables("shop")]
        return {name: catalog.load_table(name).scan().to_arrow()["v"].to_pylist() for name in names}


@contextmanager
def serving(lake: ServedLake) -> Iterator[None]:
    """Serve a lake by a process of its own while the block runs."""
    uri = f"sqlite:///{lake.directory}/catalog.db"
    catalog = ("--kind", "sql", "--uri", uri, "--warehouse", "wh", "--set", "name=lake")
    command = [sys.executable, "-m", "dagster_iceberg_spark", "serve", *catalog, "--port", "0"]
    environment = {**os.environ, "DAGSTER_ICEBERG_TOKEN": TOKEN}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, cwd=lake.directory
    ) as server:
        try:
            assert server.stdout is not None
            line = server.stdout.readline()
            found = re.search(r"at (http://[\d.:]+), until", line)
            assert found is not None, line + server.stdout.read()
            lake.address = found[1]
            threading.Thread(target=server.stdout.read, daemon=True).start()
            yield
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(30)


def by_duckdb(lake: ServedLake, point: str, query: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query by DuckDB, which knows the point as the catalog `served`."""
    with duckdb_with("avro", "iceberg", "httpfs") as connection:
        how = f"TYPE iceberg, ENDPOINT '{lake.address}', TOKEN '{TOKEN}', ACCESS_DELEGATION_MODE 'none'"
        connection.execute(f"ATTACH '{point}' AS served ({how})")
        return connection.execute(query).fetchall()


def open_in_spark(session: Any, lake: ServedLake, point: str, *, name: str) -> None:
    """Make a point a catalog of a Spark session."""
    own = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "rest", ".uri": lake.address, ".token": TOKEN}
    for key, value in {**own, ".warehouse": point}.items():
        session.conf.set(f"spark.sql.catalog.{name}{key}", value)
