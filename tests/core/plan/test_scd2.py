"""When the versions of a history begin, and which batches are too old."""

import datetime as dt
from dataclasses import replace

import pytest

from dagster_iceberg_spark.errors import ConfigurationError, DataError
from dagster_iceberg_spark.plan.partitions.binding import BoundScope, bind_scope
from dagster_iceberg_spark.plan.write.merging import MergeRules
from dagster_iceberg_spark.plan.write.scd2 import boundary_of, history_properties, refuse_late
from dagster_iceberg_spark.table.lineage import Materialization
from dagster_iceberg_spark.table.scope import PartitionScope
from dagster_iceberg_spark.table.snapshot import TableState
from tests.core.table.samples import daily, keyed, schema, snapshot, table, utc

COLUMNS = schema(ts="timestamptz", carrier="string")
WHOLE = BoundScope(((),))
NEW_YEAR = utc(2024, 1, 1)
SCD2 = MergeRules(strategy="scd2")


def materialization(scope: PartitionScope) -> Materialization:
    return replace(
        Materialization("nyc/prices", "run", "job", "step", scope, None, (), "merge", "token", "0.1"),
        started_at=utc(2024, 5, 5),
    )


@pytest.mark.parametrize(
    ("rules", "scope", "boundary"),
    [
        (MergeRules(strategy="upsert"), daily("2024-01-02"), None),
        (SCD2, daily("2024-01-02"), utc(2024, 5, 5)),
        (SCD2.model_copy(update={"boundary": "partition"}), daily("2024-01-02"), utc(2024, 1, 2)),
        (SCD2.model_copy(update={"boundary": NEW_YEAR}), daily("2024-01-02"), NEW_YEAR),
    ],
    ids=["no history", "run", "partition", "an instant"],
)
def test_versions_begin_at_the_boundary(rules: MergeRules, scope: PartitionScope, boundary: dt.datetime | None) -> None:
    assert boundary_of(rules, materialization(scope), WHOLE, subject="t") == boundary


@pytest.mark.parametrize("scope", [daily("2024-01-02", "2024-01-03"), keyed("AA")], ids=["two days", "no window"])
def test_a_boundary_of_the_partition_needs_one_window(scope: PartitionScope) -> None:
    found = "a run of one time partition, at whose start .*`boundary` of `iceberg/merge`.*, found [02] of them"
    with pytest.raises(ConfigurationError, match=found):
        boundary_of(SCD2.model_copy(update={"boundary": "partition"}), materialization(scope), WHOLE, subject="t")


def test_a_partitioned_run_cannot_retire_versions_of_the_whole_table() -> None:
    part = bind_scope(keyed("AA"), COLUMNS, subject="t")
    rules = SCD2.model_copy(update={"retire": "all"})
    assert boundary_of(rules, materialization(keyed("AA")), WHOLE, subject="t") == utc(2024, 5, 5)
    found = r"`retire` of `iceberg/merge` as 'partitions' or 'never', .* found 'all'"
    with pytest.raises(ConfigurationError, match=found):
        boundary_of(rules, materialization(keyed("AA")), part, subject="t")


def written(scope: PartitionScope, boundary: dt.datetime) -> TableState:
    """A table with a history for that scope up to the boundary."""
    own = bind_scope(scope, COLUMNS, subject="t")
    summary = {**materialization(scope).properties(), **history_properties(boundary, own)}
    return table(COLUMNS, snapshots=[replace(snapshot(7), summary=summary)])


@pytest.mark.parametrize(
    ("scope", "boundary", "is_late"),
    [
        (keyed("AA"), utc(2024, 1, 2), True),
        (keyed("AA"), utc(2024, 1, 3), False),
        (keyed("AA"), utc(2024, 1, 4), False),
        (keyed("DL"), utc(2024, 1, 2), False),
    ],
    ids=["earlier", "the same again", "later", "earlier, for other rows"],
)
def test_a_batch_from_before_the_last_boundary_of_its_rows_is_refused(
    scope: PartitionScope, boundary: dt.datetime, is_late: bool
) -> None:
    own, state = bind_scope(scope, COLUMNS, subject="t"), written(keyed("AA"), utc(2024, 1, 3))
    if not is_late:
        refuse_late(boundary, own, materialization(scope), "main", state)
        return
    found = r"a boundary not before 2024-01-03T00:00:00\+00:00, that of snapshot 7, found 2024-01-02T00:00:00\+00:00"
    with pytest.raises(DataError, match=found):
        refuse_late(boundary, own, materialization(scope), "main", state)


def test_a_new_table_has_no_boundary() -> None:
    refuse_late(NEW_YEAR, WHOLE, materialization(keyed("AA")), "main", None)
