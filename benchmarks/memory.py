"""The peak memory of reading a large table and of writing Arrow, with one process for each case.

Run it with `make bench-memory`. `--megabytes` says how large the table is, as Arrow holds it in memory.
"""

import argparse
import multiprocessing
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import pyarrow as pa
import pyspark

from dagster_iceberg_spark import IcebergPySparkIOManager, IcebergSparkResource, SqlCatalog
from dagster_iceberg_spark.versions import ICEBERG_EXTENSIONS, ICEBERG_SPARK_RUNTIME, SQLITE_JDBC

BATCH_ROWS = 262_144
ROW_BYTES = 8 * 4
MEGABYTE = 1024 * 1024


def resources_in(directory: Path, remote: str | None = None) -> dict[str, Any]:
    """Return the resources on SQLite and local files."""
    catalog = SqlCatalog(uri=f"sqlite:///{directory}/catalog.db", warehouse=str(directory / "warehouse"))
    conf = {"spark.master": "local[2]", "spark.driver.memory": "2g", "spark.ui.enabled": "false"}
    spark = IcebergSparkResource(catalog=catalog, spark_config={} if remote else conf, remote=remote)
    return {"spark": spark, "iceberg": IcebergPySparkIOManager(spark=spark, namespace="db")}


def batches(rows: int) -> Any:
    """Yield numbers that do not compress."""
    random = np.random.default_rng(0)
    for start in range(0, rows, BATCH_ROWS):
        count = min(BATCH_ROWS, rows - start)
        yield pa.RecordBatch.from_pydict({f"c{index}": random.integers(0, 2**62, count) for index in range(4)})


def writer(make: Callable[[], Any]) -> dg.AssetsDefinition:
    """Return the asset whose rows are written."""

    @dg.asset(io_manager_key="iceberg")
    def large() -> dg.Output[Any]:
        return dg.Output(make())

    return large


def reader(annotation: Any, consume: Callable[[Any], int], seen: list[int]) -> dg.AssetsDefinition:
    """Return an asset that reads it."""

    def body(large: Any) -> None:
        seen.append(consume(large))

    body.__annotations__["large"] = annotation
    return dg.asset(name="reader", ins={"large": dg.AssetIn()})(body)


def run(directory: Path, asset: dg.AssetsDefinition, *others: Any, remote: str | None = None) -> None:
    """Materialize the asset."""
    with dg.DagsterInstance.ephemeral() as instance:
        resources = resources_in(directory, remote)
        dg.materialize([asset, *others], selection=[asset], resources=resources, instance=instance)


@contextmanager
def connect_server(directory: Path) -> Iterator[str]:
    """Run a Spark Connect server with a heap of 1 GB. Yield its address, and print its peak at the end."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    home = Path(pyspark.__file__).parent
    conf = {
        "spark.connect.grpc.binding.port": str(port),
        "spark.jars.packages": f"{ICEBERG_SPARK_RUNTIME},{SQLITE_JDBC}",
        "spark.sql.extensions": ICEBERG_EXTENSIONS,
        "spark.local.dir": str(directory / "local"),
        "spark.ui.enabled": "false",
    }
    command = [str(home / "bin" / "spark-submit"), "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    command += ["--master", "local[2]", "--driver-memory", "1g"]
    for key, value in conf.items():
        command += ["--conf", f"{key}={value}"]
    log = directory / "server.log"
    with log.open("w") as output:
        environment = {**os.environ, "SPARK_HOME": str(home)}
        server = subprocess.Popen(  # noqa: S603 - a command of our own
            [*command, "spark-internal"], stdout=output, stderr=output, env=environment, start_new_session=True
        )
    try:
        while "Spark Connect server started" not in log.read_text(encoding="utf-8"):
            if server.poll() is not None:
                raise RuntimeError(log.read_text(encoding="utf-8")[-2000:])
            time.sleep(0.2)
        yield f"sc://127.0.0.1:{port}"
        status = Path(f"/proc/{server.pid}/status")  # where there is one
        if status.exists():
            peak = next(line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM"))
            print(f"{'  the server, with 1 GB of heap':<28} {int(peak) / 1024:8,.0f} MB")
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def write_stream(directory: Path, rows: int) -> int:
    """Write from an iterator of batches."""
    run(directory, writer(partial(batches, rows)))
    return rows


def write_stream_to_server(directory: Path, rows: int) -> int:
    """Write from an iterator of batches on a Spark Connect server."""
    with tempfile.TemporaryDirectory(dir=directory) as own, connect_server(Path(own)) as remote:
        run(Path(own), writer(partial(batches, rows)), remote=remote)
    return rows


def write_table(directory: Path, rows: int) -> int:
    """Write a table that is in memory."""
    table = pa.Table.from_batches(list(batches(rows)))
    run(directory, writer(lambda: table))
    return int(table.num_rows)


def hold_table(_: Path, rows: int) -> int:
    """Only hold the table in memory."""
    return int(pa.Table.from_batches(list(batches(rows))).num_rows)


def read_as(annotation: Any, consume: Callable[[Any], int], directory: Path, _: int) -> int:
    """Read the table."""
    seen: list[int] = []
    upstream = writer(list).to_source_asset()
    run(directory, reader(annotation, consume, seen), upstream)
    return seen[0]


def read_nothing(directory: Path, rows: int) -> int:
    """Read no rows, to measure the libraries alone."""
    return read_as(pa.RecordBatchReader, lambda loaded: loaded.schema.names.index("c0"), directory, rows)


def read_batches(directory: Path, rows: int) -> int:
    """Read batch by batch, slower than the disk delivers."""

    def consume(loaded: pa.RecordBatchReader) -> int:
        found = 0
        for batch in loaded:
            found += batch.num_rows
            time.sleep(0.005)
        return found

    return read_as(pa.RecordBatchReader, consume, directory, rows)


def read_table(directory: Path, rows: int) -> int:
    """Read all of it at once."""
    return read_as(pa.Table, lambda loaded: int(loaded.num_rows), directory, rows)


def measured(name: str, case: Callable[[Path, int], int], directory: Path, rows: int, results: Any) -> None:
    """Run the case and print the peak of the process."""
    before = time.monotonic()
    found = case(directory, rows)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    results.put({"case": name, "rows": found, "seconds": time.monotonic() - before, "peak": peak})


CASES: dict[str, Callable[[Path, int], int]] = {
    "write a stream of batches": write_stream,
    "write it on a server": write_stream_to_server,
    "read nothing": read_nothing,
    "read batch by batch": read_batches,
    "read as one table": read_table,
    "hold a table": hold_table,
    "write a table": write_table,
}


def main() -> None:
    """Measure each case in its own process. The JVM, which has its own limit, does not count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=2048)
    rows = parser.parse_args().megabytes * MEGABYTE // ROW_BYTES
    context = multiprocessing.get_context("spawn")
    print(f"{rows:,} rows of {ROW_BYTES} bytes: {rows * ROW_BYTES / MEGABYTE:,.0f} MB in Arrow")
    with tempfile.TemporaryDirectory() as directory:
        for name, case in CASES.items():
            results = context.Queue()
            process = context.Process(target=measured, args=(name, case, Path(directory), rows, results))
            process.start()
            process.join()
            if process.exitcode:
                sys.exit(f"{name}: failed")
            found = results.get()
            print(f"{name:<28} {found['peak'] / MEGABYTE:8,.0f} MB {found['seconds']:7.1f} s", flush=True)


if __name__ == "__main__":
    main()
