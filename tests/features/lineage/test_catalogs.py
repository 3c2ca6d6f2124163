"""The tables that lineage knows.

docs/lineage.md: What was derived from a snapshot?
"""

import dagster as dg

from dagster_iceberg_spark.features.lineage.lineage_catalogs import keys_by


def test_the_first_and_the_last_of_many_keys_stand_for_those_between() -> None:
    days = dg.DailyPartitionsDefinition("2013-01-01", end_date="2013-03-01")
    listed = keys_by(days)
    january = listed("2013-01-01..2013-01-31 (31)")
    assert january is not None
    assert (len(january), "2013-01-17" in january) == (31, True)
    assert listed("2013-01-01..2013-01-31 (30)") is None  # one of them was not written: which is not known
    assert listed("2013-01-01") == frozenset({"2013-01-01"})
    assert keys_by(dg.DynamicPartitionsDefinition(name="x"))("a..b (2)") is None
    assert keys_by(None)('["a"]') == frozenset("a")


def test_of_several_dimensions_each_lies_between_its_ends() -> None:
    days = dg.DailyPartitionsDefinition("2013-01-01", end_date="2014-01-01")
    airports = dg.StaticPartitionsDefinition(["EWR", "JFK", "LGA"])
    january = keys_by(dg.MultiPartitionsDefinition({"airport": airports, "day": days}))(
        "EWR|2013-01-01..LGA|2013-01-31 (93)"
    )
    assert january is not None
    assert (len(january), "JFK|2013-01-31" in january, "JFK|2013-02-01" in january) == (93, True, False)
    dynamic = dg.MultiPartitionsDefinition({"airport": dg.DynamicPartitionsDefinition(name="x"), "day": days})
    assert keys_by(dynamic)("EWR|2013-01-01..LGA|2013-01-31 (93)") is None
