"""Gathers, in a process with a JVM of its own, every text in which a catalog's password could show.

Run by test_secrets.py: takes its instructions as JSON on standard input and writes JSON, a text by its place.
"""

import json
import subprocess
import sys
import traceback
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
from pyspark import SparkContext

from dagster_iceberg_spark import IcebergPySparkIOManager, IcebergSparkResource, SqlCatalog

Texts = dict[str, str]


def resources_of(catalog: Any, told: dict[str, Any]) -> dict[str, Any]:
    """The resources on a catalog: of a text, PostgreSQL's; of a mapping, what it configures, in Dagster's form."""
    if isinstance(catalog, str):
        catalog = SqlCatalog(uri=catalog, warehouse=told["warehouse"])
    spark = IcebergSparkResource(catalog=catalog, spark_config=told["spark_config"])
    return {"spark": spark, "iceberg": IcebergPySparkIOManager(spark=spark, namespace="db")}


@dg.asset(io_manager_key="iceberg", metadata={"iceberg/write_disposition": "merge", "iceberg/merge_keys": ["id"]})
def written(spark: IcebergSparkResource) -> Any:
    """Merged, so that the write's snapshot properties are in a session's configuration too."""
    return spark.spark_session.sql("select 1 as id")


@dg.asset(io_manager_key="iceberg")
def read(written: Any) -> Any:
    return written.selectExpr("id + 1 as id")


@dg.asset
def read_without_session(written: pa.Table) -> None:
    assert written.num_rows == 1


@dg.asset(io_manager_key="iceberg")
def broken(spark: IcebergSparkResource) -> Any:
    return spark.spark_session.sql("select if(id < 0, id, raise_error('on purpose')) as id from range(1)")


def run(name: str, assets: list[Any], resources: dict[str, Any], texts: Texts, **kwargs: Any) -> bool:
    """Materialize, and keep the event log."""
    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize(assets, resources=resources, instance=instance, raise_on_error=False, **kwargs)
        entries = [dg.serialize_value(entry) for entry in instance.all_logs(result.run_id)]
        texts[f"event log of {name}"] = "\n".join(entries)
        metadata = [
            event.step_materialization_data.materialization for event in result.get_asset_materialization_events()
        ]
        texts[f"materializations of {name}"] = f"{metadata!r}\n{[item.metadata for item in metadata]!r}"
    return bool(result.success)


def attempt(name: str, action: Callable[[], Any], texts: Texts) -> None:
    """Keep the error that a direct call raises, with its whole chain of causes."""
    try:
        action()
    except Exception:  # noqa: BLE001 - whatever it is, it is evidence
        texts[name] = traceback.format_exc()
    else:
        texts[name] = "no error"


def objects(resources: dict[str, Any]) -> Texts:
    spark, io_manager = resources["spark"], resources["iceberg"]
    named = {
        "resource": spark,
        "IO manager": io_manager,
        "catalog configuration": spark.catalog,
        "catalog description": spark.catalog_description,
        "session settings": spark.session_settings(),
        "session": spark.iceberg_session,
        "pyiceberg catalog": spark.pyiceberg_catalog,
    }
    return {f"repr of {name}": f"{value!r}\n{value!s}\n{[value]}" for name, value in named.items()}


def tables(resources: dict[str, Any]) -> Texts:
    table = resources["spark"].pyiceberg_catalog.load_table(("db", "written"))
    summaries = [snapshot.summary.additional_properties for snapshot in table.snapshots()]
    return {"snapshot summaries": str(summaries), "table metadata": table.metadata.model_dump_json()}


def pages(context: SparkContext) -> Texts:
    address = f"http://127.0.0.1:{context.uiWebUrl.rsplit(':', 1)[1]}"  # type: ignore[union-attr]
    application = f"{address}/api/v1/applications/{context.applicationId}"
    executions = json.loads(fetched(f"{application}/sql?length=1000&details=false"))
    details = [fetched(f"{address}/SQL/execution/?id={execution['id']}") for execution in executions]
    return {
        "UI, environment": fetched(f"{address}/environment/"),
        "UI, SQL": fetched(f"{address}/SQL/"),
        "UI, SQL executions": "\n".join(details),
        "UI, executors and threads": fetched(f"{address}/executors/")
        + fetched(f"{address}/executors/threadDump/?executorId=driver"),
        "UI, jobs and stages": fetched(f"{address}/jobs/") + fetched(f"{address}/stages/"),
        "REST API, environment": fetched(f"{application}/environment"),
        "REST API, SQL": fetched(f"{application}/sql?length=1000&details=true&planDescription=true"),
    }


def fetched(address: str) -> str:
    with urllib.request.urlopen(address, timeout=60) as answer:
        return str(answer.read().decode())


def process(context: SparkContext) -> Texts:
    jvm = context._gateway.proc.pid  # type: ignore[union-attr]
    ours = [pid for pid in processes() if jvm in (pid, *ancestors(pid))]
    lines = [Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode() for pid in ours]
    properties = subprocess.run(
        ["ps", "-ww", "-o", "args", "-p", str(jvm)], capture_output=True, text=True, check=False
    )
    return {"command line": "\n".join([*lines, properties.stdout])}


def processes() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def ancestors(pid: int) -> list[int]:
    try:
        parent = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except FileNotFoundError:
        return []
    return [parent, *ancestors(parent)] if parent > 1 else []


def main() -> None:
    told = json.load(sys.stdin)
    texts: Texts = {}
    good = resources_of(told["uri"], told)
    context = good["spark"].spark_context
    context.setLogLevel("INFO")  # more than anybody sees: what is not in there is nowhere
    assert run("a good run", [written, read, read_without_session], good, texts)
    assert not run("a run that fails in the engine", [broken], good, texts)
    for login, catalog in told["logins"].items():
        resources = resources_of(catalog, told)
        assert run(f"a good run with {login}", [written, read_without_session], resources, texts), login
        texts[f"reprs with {login}"] = "\n".join(objects(resources).values())
    for login, catalog in told["wrong logins"].items():
        resources = resources_of(catalog, told)
        assert not run(f"a run with a wrong {login}", [written], resources, texts), login
        attempt(
            f"pyiceberg catalog with a wrong {login}", partial(getattr, resources["spark"], "pyiceberg_catalog"), texts
        )
    texts["threads"] = str(context._jvm.java.lang.Thread.getAllStackTraces().keySet().toString())
    texts.update(objects(good) | tables(good) | pages(context) | process(context))
    for name in ("wrong password", "unused port"):
        bad = resources_of(told[name], told)
        only = {"selection": [read_without_session]}
        assert not run(f"a write with {name}", [written], bad, texts)
        assert not run(f"a read with {name}", [written, read_without_session], bad, texts, **only)
        for attribute, way in (("spark_session", "session"), ("pyiceberg_catalog", "pyiceberg catalog")):
            attempt(f"{way} with {name}", partial(getattr, bad["spark"], attribute), texts)
    Path(told["answer"]).write_text(json.dumps(texts))
    context.stop()


if __name__ == "__main__":
    main()
