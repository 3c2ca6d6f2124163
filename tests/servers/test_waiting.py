"""Runs of the same partition that wait for each other, on real catalogs.

docs/partitions.md: Two runs of the same partition
"""

import itertools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import dagster as dg
import pyarrow as pa
import pytest

from dagster_iceberg_spark import IcebergPySparkIOManager, IcebergSparkResource
from tests.core.arrow.writing import timed_writes
from tests.instances import shared_instance

pytestmark = pytest.mark.server
_RUNS: Final = 6


@pytest.mark.parametrize("catalog", ["rest", "postgresql"], indirect=True)
def test_writes_of_a_partition_never_overlap(catalog: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spark = IcebergSparkResource(catalog=catalog)
    resources = {"iceberg": IcebergPySparkIOManager(spark=spark, namespace="db", engine="arrow")}
    metadata = {"iceberg/concurrent_writes": "wait", "iceberg/write_disposition": "append"}

    @dg.asset(io_manager_key="iceberg", metadata=metadata)
    def t() -> pa.Table:
        return pa.table({"v": [1]})

    with shared_instance(tmp_path) as instance:

        def run() -> bool:
            return dg.materialize([t], resources=resources, instance=instance).success

        assert run()
        spans = timed_writes(monkeypatch, seconds=0.2)
        with ThreadPoolExecutor(_RUNS) as pool:
            assert all(pool.map(lambda _: run(), range(_RUNS)))
    assert len(spans) == _RUNS, "no run writes twice"
    assert all(before[2] <= after[1] for before, after in itertools.pairwise(sorted(spans)))
    table = spark.pyiceberg_catalog.load_table(("db", "t"))
    assert sorted(table.refs()) == ["main"]
    assert table.scan().to_arrow().num_rows == _RUNS + 1
