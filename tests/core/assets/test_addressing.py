"""The table in which an asset is stored, and the partitions of a run."""

import re
from typing import Any

import dagster as dg
import pytest

from dagster_iceberg_spark.assets.address import DEFAULT_NAMESPACE, partition_scope, plain_metadata, table_of
from dagster_iceberg_spark.errors import MetadataKeyError, PartitioningError
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.scope import PartitionScope, TimeWindow
from tests.core.table.samples import NEW_YORK, utc

DAYS = dg.DailyPartitionsDefinition("2013-01-01", timezone=NEW_YORK)
CARRIERS = dg.StaticPartitionsDefinition(["AA", "B|6", "UA"])
BOTH = dg.MultiPartitionsDefinition({"day": DAYS, "carrier": dg.StaticPartitionsDefinition(["AA", "UA"])})
KEY = dg.AssetKey(["raw", "nyc", "flights"])


def scope(definition: dg.PartitionsDefinition, keys: list[str], columns: Any = "ts") -> PartitionScope:
    return partition_scope(definition, keys, columns, subject="nyc/flights")


def output(**context: Any) -> dg.OutputContext:
    return dg.build_output_context(**{"asset_key": KEY, **context})


@pytest.mark.parametrize(
    ("key", "metadata", "namespace", "table"),
    [
        (["flights"], {}, None, (DEFAULT_NAMESPACE, "flights")),
        (["raw", "nyc", "flights"], {}, None, ("nyc", "flights")),
        (["raw", "nyc", "flights"], {}, "db", ("db", "flights")),
        (["raw", "nyc", "flights"], {"schema": "a.b"}, "db", ("a", "b", "flights")),
        (["raw", "flights"], {"iceberg/table": "x.`y.z`", "schema": "no"}, "db", ("x", "y.z")),
        (["flights"], {}, "with.dot", ("with.dot", "flights")),
    ],
)
def test_a_table_is_named_by_its_asset_unless_the_definition_names_it(
    key: list[str], metadata: dict[str, Any], namespace: str | None, table: tuple[str, ...]
) -> None:
    assert table_of(dg.AssetKey(key), metadata, namespace, subject="a").parts == table


def test_an_op_s_output_must_name_its_table() -> None:
    with pytest.raises(MetadataKeyError, match="expected the table's name in its metadata, as `iceberg/table`"):
        table_of(None, {"schema": "a"}, "db", subject="the output 'result' of op")


def test_each_dynamic_output_has_its_own_table() -> None:
    found = table_of(None, {"iceberg/table": "a.t"}, None, mapping_key="k1", subject="a")
    assert found == TableIdentifier(("a",), "t__k1")


def test_a_day_is_a_window_in_its_time_zone_across_clock_changes() -> None:
    days = scope(DAYS, ["2013-03-10", "2013-11-03"])
    assert [slices[0].window for slices in days.partitions] == [
        TimeWindow(utc(2013, 3, 10, 5), utc(2013, 3, 11, 4)),
        TimeWindow(utc(2013, 11, 3, 4), utc(2013, 11, 4, 5)),
    ]
    (dimension,) = days.dimensions
    assert dimension.calendar is not None
    assert (dimension.name, dimension.column, dimension.calendar.granule) == (None, "ts", "day")
    assert (dimension.calendar.timezone, dimension.calendar.key_format) == (NEW_YORK, "%Y-%m-%d")


@pytest.mark.parametrize(
    ("definition", "key", "granule"),
    [
        (dg.HourlyPartitionsDefinition("2013-01-01-00:00"), "2013-01-01-05:00", "hour"),
        (dg.DailyPartitionsDefinition("2013-01-01", minute_offset=30), "2013-01-01", "hour"),
        (dg.DailyPartitionsDefinition("2013-01-01", hour_offset=6), "2013-01-01", "hour"),
        (dg.WeeklyPartitionsDefinition("2013-01-06"), "2013-01-06", "day"),
        (dg.MonthlyPartitionsDefinition("2013-01-01"), "2013-02-01", "month"),
        (dg.MonthlyPartitionsDefinition("2013-01-01", day_offset=15), "2013-01-15", "day"),
    ],
)
def test_the_granule_follows_the_partitions_schedule(
    definition: dg.PartitionsDefinition, key: str, granule: str
) -> None:
    (dimension,) = scope(definition, [key]).dimensions
    assert dimension.calendar is not None
    assert dimension.calendar.granule == granule


def test_static_and_dynamic_keys_have_no_windows() -> None:
    for definition in (CARRIERS, dg.DynamicPartitionsDefinition(name="carriers")):
        carriers = scope(definition, ["B|6"], "carrier")
        assert carriers.dimensions[0].calendar is None
        assert [(slices[0].key, slices[0].window) for slices in carriers.partitions] == [("B|6", None)]


def test_multi_partition_keys_are_split_into_dimensions() -> None:
    pairs = scope(BOTH, ["AA|2013-01-01", "UA|2013-01-02"], {"day": "ts", "carrier": "c"})
    assert [(item.name, item.column) for item in pairs.dimensions] == [("carrier", "c"), ("day", "ts")]
    assert [tuple(item.key for item in slices) for slices in pairs.partitions] == [
        ("AA", "2013-01-01"),
        ("UA", "2013-01-02"),
    ]
    assert pairs.partitions[0][1].window == TimeWindow(utc(2013, 1, 1, 5), utc(2013, 1, 2, 5))
    assert pairs.keys == ("AA|2013-01-01", "UA|2013-01-02")


@pytest.mark.parametrize(
    ("definition", "columns", "message"),
    [
        (
            DAYS,
            None,
            'the column that holds the partition, found none. Hint: add metadata {"partition_expr": "<column>"}',
        ),
        (DAYS, {"day": "ts"}, "found {'day': 'ts'}"),
        (BOTH, "ts", "a column for each of the dimensions carrier, day, found 'ts'"),
        (BOTH, {"day": "ts"}, "found {'day': 'ts'}. Hint: add metadata"),
        (BOTH, {"day": "ts", "carrier": "c", "x": "y"}, "a column for each of the dimensions carrier, day"),
        (BOTH, None, 'add metadata {"partition_expr": {"carrier": "<column>", "day": "<column>"}} to the asset'),
    ],
)
def test_an_unsuitable_partition_expr_is_refused(definition: Any, columns: Any, message: str) -> None:
    with pytest.raises(PartitioningError, match=re.escape(message)):
        scope(definition, [], columns)


def test_metadata_values_are_unwrapped() -> None:
    metadata = {"a": dg.MetadataValue.text("x"), "b": 1, "c": dg.MetadataValue.json(["y"])}
    assert plain_metadata(metadata) == {"a": "x", "b": 1, "c": ["y"]}
    assert plain_metadata(None) == {}
