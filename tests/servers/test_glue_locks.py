"""Writers on Glue that wait for each other by a lock in DynamoDB.

moto's Glue takes an update of any version of a table, as Amazon's does not: without the lock, rows are lost here.
"""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Barrier
from typing import Any, Final

import pytest

from tests.lakes import SPARK_CONF, open_lake
from tests.servers import combinations
from tests.servers.s3 import S3Server
from tests.servers.writing import Done, Work, perform, resources_of

pytestmark = [pytest.mark.server, pytest.mark.spark]
WRITERS: Final = 4
ROUNDS: Final = 3
LOCKS: Final = "iceberg_locks"


def test_appends_of_many_writers_are_all_there(s3: S3Server, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    with ExitStack() as stack:
        catalog = combinations.glue(combinations.Asked(request, tmp_path, stack))
    locked = {"lock_table": LOCKS, "properties": {"dynamodb.endpoint": s3.endpoint}}
    catalog = catalog.model_copy(update=locked)
    writers = [
        resources_of(catalog, {**SPARK_CONF, "spark.sql.shuffle.partitions": str(number)})
        for number in range(2, 2 + WRITERS)
    ]
    table = tmp_path.name.replace("-", "_").lower()
    barrier = Barrier(WRITERS)

    def write(number: int) -> list[Done]:
        done = []
        for turn in range(ROUNDS):
            barrier.wait()
            done.append(perform(Work(table, f"select {number * ROUNDS + turn} as id", "append"), writers[number]))
        return done

    with ThreadPoolExecutor(WRITERS) as pool:
        done = [item for each in pool.map(write, range(WRITERS)) for item in each]
    assert [item.error for item in done] == [None] * len(done), [item.message for item in done]
    lakes: Any = open_lake(catalog, tmp_path, None)
    lake = next(lakes)
    assert lake.rows(table) == list(range(WRITERS * ROUNDS))
    assert LOCKS in s3.client("dynamodb").list_tables()["TableNames"]
    next(lakes, None)
