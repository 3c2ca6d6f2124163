"""How the files of a table are listed, among which orphans are found.

docs/maintenance.md: Files that belong to no snapshot
"""

from dataclasses import replace

import pytest

from dagster_iceberg_spark.features.maintenance.spark import lists_by_prefix
from tests.core.table.samples import table


@pytest.mark.parametrize(
    ("location", "by_prefix"),
    [
        ("/lake/t", "false"),
        ("file:/lake/t", "false"),
        ("hdfs://host/lake/t", "false"),
        ("s3://bucket/t", "true"),
        ("abfss://c@account.dfs.core.windows.net/t", "true"),
    ],
)
def test_object_stores_are_listed_by_prefix(location: str, by_prefix: str) -> None:
    assert lists_by_prefix(replace(table(), location=location)) == by_prefix
