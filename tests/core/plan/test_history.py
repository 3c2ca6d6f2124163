"""The history of a table, as people read it."""

import pytest

from dagster_iceberg_spark.plan.read.history import few_keys


@pytest.mark.parametrize(
    ("keys", "shown"), [([], ""), (["a"], "a"), (["b", "a"], "a, b"), (["c", "b", "a"], "a..c (3)")]
)
def test_few_keys_are_listed_and_many_counted(keys: list[str], shown: str) -> None:
    assert few_keys(keys) == shown
