"""The filter that rejects rows which a run does not own, as SQL."""

from types import SimpleNamespace
from typing import Any

from dagster_iceberg_spark.plan.write.write_plan import Guard
from dagster_iceberg_spark.spark.expressions import refusal
from dagster_iceberg_spark.spark.failures import MICROSECONDS, OUTSIDE_END, OUTSIDE_MARKER
from dagster_iceberg_spark.table.predicate import Comparison, In, all_of
from tests.core.table.samples import utc

ROWS = all_of([Comparison("TS", ">=", utc(2013, 1, 1)), In("carrier", ("UA",))])
GUARD = Guard(owned=ROWS, columns=("TS", "carrier"), drops=False, partitions="2013-01-01|UA")


def frame(**types: str) -> Any:
    fields = [
        SimpleNamespace(name=name, dataType=SimpleNamespace(typeName=lambda kind=kind: kind))
        for name, kind in types.items()
    ]
    return SimpleNamespace(schema=SimpleNamespace(fields=fields))


def test_an_owned_row_is_kept_and_any_other_raises() -> None:
    filter_ = refusal(frame(ts="timestamp", carrier="string"), GUARD)
    assert filter_.startswith("CASE WHEN ((`TS` >= ")
    assert "(`carrier` = 'UA')) AND spark_partition_id() >= 0 THEN TRUE ELSE raise_error(concat(" in filter_


def test_the_message_has_the_partitions_and_the_row_with_instants_as_numbers() -> None:
    filter_ = refusal(frame(ts="timestamp", carrier="string"), GUARD)
    message = filter_.partition("raise_error(")[2]
    assert f"'{OUTSIDE_MARKER}2013-01-01|UA: TS='" in message
    assert "unix_micros(`TS`)" in message
    assert f"'{MICROSECONDS}, carrier='" in message
    assert message.endswith(f"'{OUTSIDE_END}')) END")


def test_a_wall_clock_is_shown_as_it_is() -> None:
    assert "unix_micros" not in refusal(frame(ts="timestamp_ntz", carrier="string"), GUARD)
