"""The rows of an input, by the keys that rows have copied."""

import datetime as dt
from typing import Any

import pytest

from dagster_iceberg_spark.features.lineage.why import rows_by_key
from dagster_iceberg_spark.table.predicate import And, In, Or
from tests.core.table.samples import schema

COLUMNS = schema(id="long", at="timestamptz", share="double")
AT = dt.datetime(2024, 3, 1, tzinfo=dt.timezone.utc)


@pytest.mark.parametrize(
    ("keys", "copied", "rows", "expected"),
    [
        (["id"], {"x": "id"}, [{"x": 1}, {"x": 2}, {"x": 1}], Or((In("id", (1,)), In("id", (2,))))),
        (["id", "at"], {"x": "id", "at": "at"}, [{"x": 1, "at": AT}], And((In("id", (1,)), In("at", (AT,))))),
        (["id", "at"], {"x": "id"}, [{"x": 1}], None),
        (["id"], {"x": "id"}, [{"x": 1}, {"x": None}], None),
        (["at"], {"at": "at"}, [{"at": AT.replace(tzinfo=None)}], None),
        (["share"], {"share": "share"}, [{"share": 0.5}], None),
        ([], {"x": "id"}, [{"x": 1}], None),
        (["gone"], {"x": "gone"}, [{"x": 1}], None),
        (["id"], {"x": "id"}, [], None),
    ],
)
def test_keys_tell_rows(keys: list[str], copied: dict[str, str], rows: list[dict[str, Any]], expected: Any) -> None:
    assert rows_by_key(keys, copied, rows, COLUMNS) == expected
