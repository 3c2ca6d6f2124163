"""The rows that are explained, as JSON.

docs/lineage.md: Why is this row here?
"""

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pytest

from dagster_iceberg_spark.features.lineage.why import Origin

NOON = dt.datetime(2024, 1, 31, 12, tzinfo=dt.timezone.utc)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, None),
        (True, True),
        (2**53, 2**53),
        (2**53 + 1, "9007199254740993"),
        (-(2**63), "-9223372036854775808"),
        (0.5, 0.5),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (Decimal("1.50"), "1.50"),
        (NOON, "2024-01-31T12:00:00+00:00"),
        (NOON.date(), "2024-01-31"),
        (b"\x00\xff", "00ff"),
        ({"at": NOON, "ids": [1, 2**60]}, {"at": "2024-01-31T12:00:00+00:00", "ids": [1, "1152921504606846976"]}),
        ([("key", None)], [["key", None]]),
    ],
    ids=repr,
)
def test_a_value_is_exact_in_json(value: Any, shown: Any) -> None:
    document = Origin("db.t", None, rows=[{"c": value}]).document()
    assert document["rows"] == [{"c": shown}]
    assert json.loads(json.dumps(document, allow_nan=False)) == document
