"""Long work shows that it is alive."""

import pytest

from dagster_iceberg_spark.spark.write.execution import reported_progress
from tests.lakes import Lake

pytestmark = pytest.mark.spark


@pytest.mark.full
def test_a_long_query_reports_its_tasks(lake: Lake) -> None:
    lines: list[str] = []
    slow = lake.session.range(0, 400_000_000, 1, 40).selectExpr("sum(hash(id)) as h")
    with reported_progress(lake.session, lines.append, subject="db.t", interval_seconds=0.5):
        slow.collect()
    assert lines
    assert lines[0].startswith("Writing db.t: ")
