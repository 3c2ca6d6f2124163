"""A writer of its own: run as a program, it materializes what each line of its input tells, in JSON."""

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import dagster as dg

from dagster_iceberg_spark import HiveCatalog, IcebergPySparkIOManager, IcebergSparkResource, RestCatalog, SqlCatalog
from tests.lakes import ArrowIOManager, error_of, frame_asset

DAYS: Final = dg.DailyPartitionsDefinition("2013-01-01", end_date="2013-03-01")


@dataclass(frozen=True)
class Work:
    """One materialization.

    Args:
        table: The asset, and its table.
        query: Its rows.
        disposition: How they are written.
        partition: The partition; None: the asset has none.
    """

    table: str
    query: str
    disposition: str
    partition: str | None = None


@dataclass(frozen=True)
class Done:
    """What became of it.

    Args:
        run_id: The run.
        error: The package's error that ended it, if any.
        message: What the error says.
        may_retry: Whether a RetryPolicy would have tried again.
    """

    run_id: str
    error: str | None = None
    message: str = ""
    may_retry: bool = False


def resources_of(catalog: Any, spark_config: Mapping[str, str], *, by_arrow: bool = False) -> dict[str, Any]:
    spark = IcebergSparkResource(catalog=catalog, spark_config=dict(spark_config))
    kind = ArrowIOManager if by_arrow else IcebergPySparkIOManager
    return {"spark": spark, "iceberg": kind(spark=spark, namespace="db")}


def perform(work: Work, resources: Mapping[str, Any]) -> Done:
    metadata = {"iceberg/write_disposition": work.disposition, "iceberg/merge_keys": ["id"]}
    partitions: dict[str, Any] = {}
    if work.partition is not None:
        metadata["partition_expr"] = "ts"
        partitions["partitions_def"] = DAYS
    asset = frame_asset(work.table, work.query, metadata=metadata, **partitions)
    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize(
            [asset], resources=dict(resources), instance=instance, partition_key=work.partition, raise_on_error=False
        )
        if result.success:
            return Done(result.run_id)
        error = error_of(result)
        return Done(result.run_id, error.class_name, str(error), error.allow_retries)


def catalog_of(told: Mapping[str, Any]) -> Any:
    kinds: dict[str, Any] = {"rest": RestCatalog, "hive": HiveCatalog, "sql": SqlCatalog}
    return kinds[told["kind"]](**told)


def main() -> None:
    answers, sys.stdout = sys.stdout, sys.stderr  # nothing but answers goes to the one who asked
    opened: dict[str, dict[str, Any]] = {}
    for line in sys.stdin:
        told = json.loads(line)
        name = json.dumps(told["catalog"])
        if name not in opened:
            opened[name] = resources_of(catalog_of(told["catalog"]), told["spark_config"], by_arrow=told["by_arrow"])
            opened[name]["spark"].spark_session.range(1).count()
        answer = {} if told["work"] is None else asdict(perform(Work(**told["work"]), opened[name]))
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
