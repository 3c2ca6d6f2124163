"""The plan of one write: everything that is decided before anything happens."""

from dataclasses import replace
from typing import Any

import pytest

from dagster_iceberg_spark.errors import ConfigurationError, PartitioningError, SchemaMismatchError, TableOwnershipError
from dagster_iceberg_spark.plan.options.output_options import parse_write_options
from dagster_iceberg_spark.plan.write.draft import (
    CREATION_PROPERTIES,
    MAXIMUM_COUNTED_PARTITIONS,
    SINGLE_PARTITION_OPTIONS,
    WriteDraft,
    draft_write,
    plan_finish,
)
from dagster_iceberg_spark.plan.write.overwrite_filter import ColumnBounds, DataFile
from dagster_iceberg_spark.plan.write.write_plan import Append, Merge, Overwrite, WritePlan
from dagster_iceberg_spark.plan.write.write_request import TableRequest
from dagster_iceberg_spark.table.lineage import Materialization
from dagster_iceberg_spark.table.partitioning import PartitionSpec, SortField, parse_partition_field
from dagster_iceberg_spark.table.predicate import EVERY_ROW, In
from dagster_iceberg_spark.table.schema import STRING, TIMESTAMPTZ, Field, ListType, Schema, StructType, parse_type
from dagster_iceberg_spark.table.scope import PartitionScope
from dagster_iceberg_spark.table.snapshot import TableState
from dagster_iceberg_spark.table.updates import (
    AddColumn,
    AddPartitionField,
    CreateBranch,
    DropColumn,
    DropPartitionField,
    RenameColumn,
    SetProperties,
    SetSortOrder,
)
from tests.core.table.evaluator import matches
from tests.core.table.samples import NEW_YORK, TABLE, daily, keyed, keys_by_day, schema, snapshot, spec, table, utc

FRAME = schema(ts="timestamptz", carrier="string", delay="int")
DAY = daily("2024-01-02")
OWNED = {"dagster.asset_key": "nyc/flights"}
NOON = utc(2024, 1, 2, 12)


def request(
    *, asset_key: str | None = "nyc/flights", named: bool = False, docs: dict[str, str] | None = None, **options: Any
) -> TableRequest:
    metadata = {f"iceberg/{key}": value for key, value in options.items()}
    return TableRequest(TABLE, asset_key, named, parse_write_options(metadata, subject="a"), docs or {})


def materialization(scope: PartitionScope) -> Materialization:
    return Materialization("nyc/flights", "run", "job", "step", scope, None, (), "replace", "token", "0.1")


def drafted(
    state: TableState | None = None, scope: PartitionScope = DAY, frame: Schema = FRAME, **asked: Any
) -> WriteDraft:
    return draft_write(request(**asked), materialization(scope), frame, state)


def planned(
    state: TableState | None = None,
    scope: PartitionScope = DAY,
    frame: Schema = FRAME,
    files: list[DataFile] | None = None,
    **asked: Any,
) -> WritePlan:
    return drafted(state, scope, frame, **asked).plan(files)


def existing(frame: Schema = FRAME, *fields: str, **changes: Any) -> TableState:
    """Return a table of this asset with one snapshot."""
    changes.setdefault("properties", OWNED)
    changes.setdefault("snapshots", [snapshot(7)])
    return table(frame, specs=[spec(*(fields or ("day(ts)",)))], **changes)


def file(first: int, last: int) -> DataFile:
    return DataFile("f", {"ts": ColumnBounds(utc(2024, 1, first), utc(2024, 1, last), may_hold_null=False)})


BOUNDS = {"write.metadata.metrics.column.ts": "full"}


def test_a_new_table_is_created_with_its_owner_and_the_default_partitioning() -> None:
    create = planned(docs={"carrier": "two letters"}).create
    assert create is not None
    assert create.schema.names == FRAME.names
    assert [field.doc for field in create.schema] == [None, "two letters", None]
    assert create.spec == PartitionSpec((parse_partition_field("day(ts)"),))
    assert create.properties == {**CREATION_PROPERTIES, **BOUNDS, **OWNED}
    assert (create.location, create.sort_by) == (None, ())


def test_the_user_s_options_override_the_package_s_for_a_new_table() -> None:
    create = planned(
        format_version=3,
        location="s3://t",
        sort_by=["delay"],
        table_properties={"commit.retry.num-retries": "1", "a": "b"},
    ).create
    assert create is not None
    expected = {
        **CREATION_PROPERTIES,
        **BOUNDS,
        "commit.retry.num-retries": "1",
        "a": "b",
        "format-version": "3",
        **OWNED,
    }
    assert create.properties == expected
    assert create.location == "s3://t"
    assert [field.column for field in create.sort_by] == ["delay"]


def test_a_user_s_metrics_mode_for_a_partition_column_is_kept() -> None:
    create = planned(table_properties={"write.metadata.metrics.column.ts": "counts"}).create
    assert create is not None
    assert create.properties["write.metadata.metrics.column.ts"] == "counts"


WIDE = schema(**{f"c{number}": "long" for number in range(100)}, ts="timestamptz")


@pytest.mark.parametrize(
    ("frame", "properties", "has_advice"),
    [
        (FRAME, {}, False),
        (WIDE, {}, True),
        (WIDE, {"write.metadata.metrics.default": "truncate(16)"}, False),
        (WIDE, BOUNDS, False),
        (FRAME, {"write.metadata.metrics.column.ts": "none"}, True),
    ],
    ids=["among the first", "the 101st column", "a default mode", "full bounds", "no bounds"],
)
def test_advice_is_given_if_missing_bounds_cause_rewrites(
    frame: Schema, properties: dict[str, str], has_advice: bool
) -> None:
    state = existing(frame, "bucket(4, ts)", properties={**OWNED, **properties})
    advice = planned(state, DAY, frame, [file(1, 3)]).advice
    assert (advice is not None and "`write.metadata.metrics.column.ts` = `full`" in advice) is has_advice
    assert planned(state, DAY, frame, [file(5, 6)]).advice is None


@pytest.mark.parametrize(("key", "has_advice"), [("a" * 16, False), ("a" * 17, True)])
def test_bounds_of_long_strings_are_truncated(key: str, has_advice: bool) -> None:
    frame = schema(carrier="string")
    cut = DataFile("f", {"carrier": ColumnBounds("a" * 16, "b", may_hold_null=False)})
    advice = planned(existing(frame, "bucket(4, carrier)"), keyed(key), frame, [cut]).advice
    assert (advice is not None) is has_advice


def test_an_explicit_table_name_is_recorded_and_an_op_owns_no_table() -> None:
    named, op = planned(named=True).create, planned(asset_key=None).create
    assert named is not None
    assert op is not None
    assert named.properties["dagster.named_by"] == "iceberg/table"
    assert op.properties == {**CREATION_PROPERTIES, **BOUNDS}


def test_an_existing_table_that_fits_is_not_changed() -> None:
    plan = planned(existing())
    assert (plan.create, plan.changes) == (None, ())
    assert (plan.identifier, plan.branch) == (TABLE, "main")


def test_changes_for_a_frame_are_planned_in_order() -> None:
    plan = planned(
        existing(schema(ts="timestamptz", carrier="string"), properties={"mine": "1"}),
        partition_by=["hour(ts)", "delay"],
        table_properties={"mine": "1", "new": "2"},
    )
    assert plan.changes == (
        AddColumn(("delay",), parse_type("int")),
        DropPartitionField(parse_partition_field("day(ts)")),
        AddPartitionField(parse_partition_field("hour(ts)")),
        AddPartitionField(parse_partition_field("delay")),
        SetProperties({"new": "2", **OWNED}),
    )


def test_a_table_without_partition_by_keeps_its_own_spec() -> None:
    assert planned(existing(FRAME, "bucket(4, carrier)")).changes == ()


def test_a_column_that_the_frame_lacks_may_partition_the_table() -> None:
    state = existing(schema(ts="timestamptz", region="string"))
    plan = planned(state, frame=schema(ts="timestamptz"), partition_by=["day(ts)", "region"])
    assert plan.changes == (AddPartitionField(parse_partition_field("region")),)


@pytest.mark.parametrize(
    ("scope", "fields"),
    [
        (PartitionScope(), []),
        (DAY, ["day(ts)"]),
        (keyed("AA"), ["carrier"]),
        (keys_by_day([("AA", "2024-01-02")]), ["carrier", "day(ts)"]),
    ],
)
def test_a_new_table_has_one_field_for_each_dimension(scope: PartitionScope, fields: list[str]) -> None:
    create = planned(scope=scope).create
    assert create is not None
    assert [str(field) for field in create.spec.fields] == fields


def test_a_named_field_of_a_new_table_is_added_after_its_creation() -> None:
    plan = planned(partition_by=["bucket(4, delay) as shard", "day(ts)"])
    assert plan.create is not None
    assert [str(field) for field in plan.create.spec.fields] == ["day(ts)"]
    assert plan.changes == (AddPartitionField(parse_partition_field("bucket(4, delay) as shard")),)


def test_two_dimensions_on_one_column_make_one_field() -> None:
    create = planned(scope=keys_by_day([("AA", "2024-01-02")], column="carrier")).create
    assert create is not None
    assert [str(field) for field in create.spec.fields] == ["carrier"]


def test_a_replace_overwrites_the_scope_based_on_the_current_snapshot() -> None:
    action = planned(existing()).action
    assert isinstance(action, Overwrite)
    assert action.base_snapshot_id == 7
    assert action.coverage.filter == action.coverage.owned
    assert [matches(action.coverage.filter, {"ts": ts}) for ts in (NOON, utc(2024, 1, 3), None)] == [True, False, False]


@pytest.mark.parametrize("state", [None, existing(snapshots=[])])
def test_a_table_without_snapshots_has_nothing_to_validate_against(state: TableState | None) -> None:
    action = planned(state).action
    assert isinstance(action, Overwrite)
    assert action.base_snapshot_id is None


def test_a_new_branch_is_created_once() -> None:
    assert planned(existing(), branch="audit").changes == (CreateBranch("audit"),)
    assert planned(branch="audit").changes == (CreateBranch("audit"),)
    there = existing(refs={"main": 7, "audit": 7}, branches=["main", "audit"])
    assert planned(there, branch="audit").changes == ()


def test_a_branch_is_overwritten_based_on_its_own_head() -> None:
    state = existing(snapshots=[snapshot(7), snapshot(8)], refs={"main": 8, "audit": 7}, branches=["main", "audit"])
    plan = planned(state, branch="audit")
    assert isinstance(plan.action, Overwrite)
    assert (plan.branch, plan.action.base_snapshot_id) == ("audit", 7)


def test_files_that_straddle_the_scope_are_carried_over() -> None:
    plan = planned(existing(FRAME, "month(ts)"), files=[file(1, 5), file(9, 9)])
    assert isinstance(plan.action, Overwrite)
    assert plan.carries_over
    assert plan.action.coverage.straddling_files == 1
    assert matches(plan.action.coverage.filter, {"ts": utc(2024, 1, 5)})
    assert not planned(existing(), files=None).carries_over


def test_an_append_adds_and_a_merge_updates_inside_the_scope() -> None:
    assert planned(existing(), write_disposition="append").action == Append()
    merge = planned(existing(), write_disposition="merge", merge_keys=["carrier"]).action
    assert isinstance(merge, Merge)
    assert merge.keys == ("carrier",)
    assert [matches(merge.scope, {"ts": ts}) for ts in (NOON, utc(2024, 1, 3))] == [True, False]


def test_a_replace_without_partitions_overwrites_every_row_unguarded() -> None:
    plan = planned(existing(), scope=PartitionScope())
    assert isinstance(plan.action, Overwrite)
    assert plan.action.coverage.filter == EVERY_ROW
    assert plan.guard is None


@pytest.mark.parametrize("disposition", ["replace", "append", "merge"])
@pytest.mark.parametrize(("outside", "drops"), [("error", False), ("drop", True)])
def test_rows_of_other_partitions_are_guarded_in_every_disposition(disposition: str, outside: str, drops: bool) -> None:
    guard = planned(
        existing(), write_disposition=disposition, merge_keys=["carrier"], rows_outside_partition=outside
    ).guard
    assert guard is not None
    assert (guard.columns, guard.drops, guard.partitions) == (("ts",), drops, "2024-01-02")
    assert [matches(guard.owned, {"ts": ts}) for ts in (NOON, utc(2024, 1, 1), None)] == [True, False, False]


def test_partition_keys_are_bound_to_the_table_s_column_type() -> None:
    frame = schema(key="int", ts="timestamptz")
    guard = planned(existing(schema(key="long", ts="timestamptz")), scope=keyed("42", column="KEY"), frame=frame).guard
    assert guard is not None
    assert guard.columns == ("key",)
    assert matches(guard.owned, {"key": 42})


@pytest.mark.parametrize(
    ("properties", "asked", "is_allowed"),
    [
        ({}, {}, True),
        (OWNED, {}, True),
        ({"dagster.asset_key": "other"}, {}, False),
        ({"dagster.asset_key": "other"}, {"named": True}, False),
        ({"dagster.asset_key": "other", "dagster.named_by": "iceberg/table"}, {}, False),
        ({"dagster.asset_key": "other", "dagster.named_by": "iceberg/table"}, {"named": True}, True),
        ({"dagster.asset_key": "other"}, {"takes_over": "former"}, False),
        ({"dagster.asset_key": "other"}, {"asset_key": None, "named": True}, False),
        ({"dagster.asset_key": "other"}, {"asset_key": None, "named": True, "takes_over": "other"}, False),
        ({"dagster.asset_key": "other", "dagster.named_by": "iceberg/table"}, {"asset_key": None, "named": True}, True),
        ({}, {"asset_key": None, "named": True}, True),
    ],
)
def test_a_table_belongs_to_one_asset(properties: dict[str, str], asked: dict[str, Any], is_allowed: bool) -> None:
    state = existing(properties=properties)
    if is_allowed:
        changes = planned(state, **asked).changes
        assert all("other" not in change.properties.values() for change in changes if isinstance(change, SetProperties))
        return
    expected = "of no asset" if "asset_key" in asked else "of the asset 'nyc/flights'"
    with pytest.raises(TableOwnershipError, match=f"expected a table {expected}, found a table of the asset 'other'"):
        planned(state, **asked)


def test_an_asset_takes_over_the_table_of_its_former_key_once() -> None:
    former = {"dagster.asset_key": "old/flights", "dagster.shared_by": '["nyc/flights", "third"]'}
    own = {"dagster.asset_key": "nyc/flights", "dagster.shared_by": '["third"]'}
    assert planned(existing(properties=former), takes_over="old/flights").changes == (SetProperties(own),)
    assert planned(existing(properties=own), takes_over="old/flights").changes == ()
    layout = planned(
        existing(properties={"dagster.asset_key": "old/flights"}), takes_over="old/flights", sort_by=["delay"]
    )
    assert len(layout.changes) == 2, "the layout is the owner's to change"
    with pytest.raises(TableOwnershipError, match="found a table of the asset 'nyc/flights'"):
        planned(existing(properties=own), asset_key="old/flights")


def test_a_shared_table_keeps_its_first_owner() -> None:
    shared = {"dagster.asset_key": "other", "dagster.named_by": "iceberg/table"}
    assert planned(existing(properties=shared), named=True).changes == (
        SetProperties({"dagster.shared_by": '["nyc/flights"]'}),
    )
    again = {**shared, "dagster.shared_by": '["nyc/flights"]'}
    assert planned(existing(properties=again), named=True).changes == ()


@pytest.mark.parametrize(
    ("scope", "properties", "options", "expected"),
    [
        (DAY, {}, {}, SINGLE_PARTITION_OPTIONS),
        (daily("2024-01-02", "2024-01-03"), {}, {}, {}),
        (PartitionScope(), {}, {}, {}),
        (DAY, {"write.distribution-mode": "none"}, {}, {}),
        (DAY, {}, {"write_options": {"distribution-mode": "range"}}, {"distribution-mode": "range"}),
        (DAY, {}, {"table_properties": {"write.distribution-mode": "hash"}}, {}),
        (DAY, {}, {"write_options": {"advisory-partition-size": 1}}, {"advisory-partition-size": "1"}),
        (DAY, {}, {"write_options": {"write-format": "orc"}}, {**SINGLE_PARTITION_OPTIONS, "write-format": "orc"}),
    ],
)
def test_one_partition_is_spread_over_tasks_unless_configured_otherwise(
    scope: PartitionScope, properties: dict[str, str], options: dict[str, Any], expected: dict[str, str]
) -> None:
    assert planned(existing(properties={**OWNED, **properties}), scope, **options).write_options == expected


@pytest.mark.parametrize(
    ("state", "asked", "since"),
    [
        (existing(), {"isolation-level": "serializable"}, "7"),
        (existing(), {"isolation-level": "snapshot", "validate-from-snapshot-id": "0"}, "0"),
        (existing(), {}, None),
        (None, {"isolation-level": "serializable"}, None),
    ],
)
def test_a_replace_validates_against_the_snapshot_it_was_planned_on(
    state: TableState | None, asked: dict[str, str], since: str | None
) -> None:
    assert planned(state, write_options=asked).write_options.get("validate-from-snapshot-id") == since


@pytest.mark.parametrize(
    ("options", "is_sorted", "is_sampled"),
    [
        ({}, False, False),
        ({}, True, True),
        ({"sort_by": []}, True, False),
        ({"sort_by": ["ts"]}, False, True),
        ({"sort_by": ["ts"], "write_options": {"distribution-mode": "hash"}}, False, False),
        ({"write_options": {"distribution-mode": "RANGE"}}, False, True),
        ({"table_properties": {"write.distribution-mode": "range"}}, False, True),
        ({"sort_by": ["ts"], "write_options": {"use-table-distribution-and-ordering": "false"}}, False, False),
    ],
)
def test_spark_samples_the_rows_that_it_distributes_by_ranges(
    options: dict[str, Any], *, is_sorted: bool, is_sampled: bool
) -> None:
    order = (SortField("ts"),) if is_sorted else ()
    assert planned(replace(existing(), sort_order=order), **options).is_sampled == is_sampled


@pytest.mark.parametrize(
    ("count", "counted"),
    [(0, 0), (1, 0), (2, 2), (MAXIMUM_COUNTED_PARTITIONS, 50), (MAXIMUM_COUNTED_PARTITIONS + 1, 0)],
)
def test_the_rows_of_a_few_partitions_are_counted(count: int, counted: int) -> None:
    keys = [f"k{number}" for number in range(count)]
    plan = planned(scope=keyed(*keys), partition_by=["bucket(4, carrier)"])
    assert [key for key, _ in plan.counted_partitions] == keys[:counted]
    assert all(matches(rows, {"carrier": key}) for key, rows in plan.counted_partitions)


def test_rows_of_partitions_that_follow_the_spec_are_counted_from_new_files() -> None:
    plan = planned(scope=keyed("a", "b"))
    assert plan.counted_partitions == ()
    assert [key for key, _ in plan.listed_partitions] == ["a", "b"]


@pytest.mark.parametrize("disposition", ["append", "merge"])
def test_only_a_replace_counts_rows_by_partition(disposition: str) -> None:
    plan = planned(scope=keyed("a", "b"), write_disposition=disposition, merge_keys=("carrier",))
    assert (plan.counted_partitions, plan.listed_partitions) == ((), ())


@pytest.mark.parametrize(
    ("count", "properties", "expected"),
    [(100, {}, None), (101, {}, "false"), (101, {"write.spark.fanout.enabled": "true"}, None)],
)
def test_many_partitions_are_written_one_after_the_other(
    count: int, properties: dict[str, str], expected: str | None
) -> None:
    keys = [f"k{number}" for number in range(count)]
    state = existing(FRAME, "carrier", properties={**OWNED, **properties})
    assert planned(state, keyed(*keys)).write_options.get("fanout-enabled") == expected


def test_the_snapshot_says_who_made_it() -> None:
    assert planned().snapshot_properties == materialization(DAY).properties()


@pytest.mark.parametrize(
    ("state", "scope", "asked", "expected"),
    [
        (None, DAY, {}, False),
        (existing(FRAME, "month(ts)", snapshots=[]), DAY, {}, False),
        (existing(FRAME, "month(ts)"), DAY, {}, True),
        (existing(FRAME, "day(ts)"), DAY, {}, False),
        (existing(FRAME, "day(ts)"), daily("2024-01-02", zone=NEW_YORK), {}, True),
        (existing(FRAME, "month(ts)"), DAY, {"write_disposition": "append"}, False),
        (existing(FRAME, "month(ts)"), DAY, {"write_disposition": "merge", "merge_keys": ["carrier"]}, False),
        (existing(FRAME, "month(ts)"), DAY, {"branch": "new"}, True),
        (existing(FRAME, "month(ts)"), PartitionScope(), {}, False),
        (existing(schema(other="int"), "other"), DAY, {}, False),
        (table(FRAME, specs=[spec("month(ts)"), spec("day(ts)", spec_id=1)], snapshots=[snapshot(7)]), DAY, {}, True),
    ],
)
def test_files_are_inspected_only_if_a_replace_may_straddle_them(
    state: TableState | None, scope: PartitionScope, asked: dict[str, Any], expected: bool
) -> None:
    assert bool(drafted(state, scope, **asked).file_columns()) == expected


@pytest.mark.parametrize(
    ("asked", "frame", "error", "message"),
    [
        ({}, schema(carrier="string"), PartitioningError, "expected the column 'ts' that `partition_expr` names"),
        ({}, schema(ts="timestamptz", TS="int"), SchemaMismatchError, "found the columns 'ts' and 'TS'"),
        (
            {"merge_keys": ["no"], "write_disposition": "merge"},
            FRAME,
            ConfigurationError,
            "the column 'no' of `iceberg/merge_keys`",
        ),
        ({"sort_by": ["no"]}, FRAME, ConfigurationError, "the column 'no' of `iceberg/sort_by`"),
        ({"partition_by": ["day(no)"]}, FRAME, PartitioningError, "the column 'no' of `iceberg/partition_by`"),
        ({"partition_by": ["ts"]}, FRAME, PartitioningError, 'write "day\\(ts\\)"'),
        ({}, schema(ts="timestamptz", x="unknown"), SchemaMismatchError, "a type for the new column 'x'"),
        ({}, schema(ts="boolean"), PartitioningError, "found 'ts' of type boolean"),
    ],
)
def test_a_new_table_is_refused_before_it_is_created(
    asked: dict[str, Any], frame: Schema, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        planned(frame=frame, **asked)


@pytest.mark.parametrize(
    ("stored", "asked", "is_refused"),
    [
        ("true", None, True),
        ("TRUE", {}, True),
        ("false", {"write.spark.accept-any-schema": True}, True),
        (None, {"write.spark.accept-any-schema": True}, True),
        ("true", {"write.spark.accept-any-schema": None}, False),
        ("false", None, False),
    ],
)
def test_a_write_with_accept_any_schema_is_refused(
    stored: str | None, asked: dict[str, Any] | None, is_refused: bool
) -> None:
    state = None if stored is None else existing(properties={**OWNED, "write.spark.accept-any-schema": stored})
    options: dict[str, Any] = {} if asked is None else {"table_properties": asked}
    if not is_refused:
        planned(state, **options)
        return
    with pytest.raises(ConfigurationError, match=r"expected a table without `write\.spark\.accept-any-schema`"):
        planned(state, **options)


SHARED = {"dagster.asset_key": "nyc/other", "dagster.named_by": "iceberg/table"}


@pytest.mark.parametrize(
    ("asked", "wish"),
    [
        ({"partition_by": ["month(ts)"]}, "drop partition field day"),
        ({"sort_by": ["carrier"]}, "sort files by carrier"),
        ({"renames": {"delay": "late"}}, "rename column delay to late"),
    ],
)
def test_an_asset_that_shares_a_table_leaves_its_layout_to_the_owner(asked: dict[str, Any], wish: str) -> None:
    frame = schema(ts="timestamptz", carrier="string")
    with pytest.raises(TableOwnershipError, match=f"'nyc/other'.*'nyc/flights' would {wish}"):
        planned(existing(properties=SHARED), frame=frame, named=True, **asked)
    agreed = planned(existing(properties=SHARED), frame=frame, named=True, partition_by=["day(ts)"])
    assert agreed.changes == (SetProperties({"dagster.shared_by": '["nyc/flights"]'}),)
    planned(existing(), frame=frame, **asked)


@pytest.mark.parametrize(
    ("properties", "is_refused"),
    [
        (SHARED, True),
        ({**OWNED, "dagster.shared_by": '["nyc/other"]'}, True),
        ({**OWNED, "dagster.shared_by": "[]"}, False),
        ({**OWNED, "dagster.shared_by": "no json"}, False),
        (OWNED, False),
    ],
)
def test_full_evolution_keeps_columns_of_a_shared_table(properties: dict[str, str], is_refused: bool) -> None:
    state = existing(properties=properties)
    asked: dict[str, Any] = {"named": True, "schema_evolution": "full"}
    if is_refused:
        with pytest.raises(TableOwnershipError, match="would drop column delay"):
            planned(state, frame=schema(ts="timestamptz", carrier="string"), **asked)
    else:
        planned(state, frame=schema(ts="timestamptz", carrier="string"), **asked)


@pytest.mark.parametrize("transform", ["identity", "bucket[4]", "truncate[2]", "void"])
def test_a_sort_column_is_dropped_only_after_its_sort_order(transform: str) -> None:
    """Another engine may sort by a transform of the column."""
    state = replace(existing(), sort_order=(SortField("delay", transform=transform),))
    narrow = schema(ts="timestamptz", carrier="string")
    with pytest.raises(SchemaMismatchError, match="the column 'delay', by which the table's files are sorted"):
        planned(state, frame=narrow, schema_evolution="full")
    plan = planned(state, frame=narrow, schema_evolution="full", sort_by=[])
    assert plan.changes == (SetSortOrder((), is_partitioned=True),)


def test_a_partition_column_is_not_dropped() -> None:
    with pytest.raises(SchemaMismatchError, match="the column 'carrier', by which the table is partitioned, found"):
        planned(existing(FRAME, "day(ts)", "carrier"), frame=schema(ts="timestamptz"), schema_evolution="full")


def test_a_merge_takes_whole_lists_and_maps_only() -> None:
    def columns(**fields: str) -> Schema:
        return schema(ts="timestamptz", id="int", l=ListType(StructType(schema(**fields).fields)))

    asked: dict[str, Any] = {"write_disposition": "merge", "merge_keys": ["id"]}
    with pytest.raises(SchemaMismatchError, match="all fields that the table has inside of the column 'l', found type"):
        planned(existing(columns(x="int", y="int")), frame=columns(x="int"), **asked)
    assert planned(existing(columns(x="int")), frame=columns(x="int"), **asked).changes == ()


def test_deferred_changes_apply_only_to_the_planned_columns() -> None:
    """Another writer has since added a column, and another under the name of a dropped column."""
    fields = (
        Field("ts", TIMESTAMPTZ, field_id=1),
        Field("old", STRING, field_id=2),
        Field("again", STRING, field_id=3),
    )
    planned_on = Schema(fields)
    now = Schema((*fields[:2], Field("again", STRING, field_id=5), Field("theirs", STRING, field_id=4)))
    asked = request(schema_evolution="full", renames={"ts": "at"})
    changes = plan_finish(asked, schema(at="timestamptz"), existing(now), planned_on)
    assert changes == (DropColumn(("old",)), RenameColumn(("ts",), "at"))
    assert plan_finish(request(), schema(at="int"), existing(now), planned_on) == ()


@pytest.mark.parametrize("evolution", ["add_columns", "full"])
@pytest.mark.parametrize("has_table", [False, True])
def test_a_frame_without_columns_is_refused(has_table: bool, evolution: str) -> None:
    state = existing() if has_table else None
    with pytest.raises(SchemaMismatchError, match="expected at least one column, found a DataFrame without columns"):
        planned(state, scope=PartitionScope(), frame=Schema(()), schema_evolution=evolution)


def test_the_frame_must_have_the_partition_column_even_if_the_table_has_it() -> None:
    with pytest.raises(PartitioningError, match="found the columns carrier"):
        planned(existing(), frame=schema(carrier="string"))


def test_merge_keys_are_ignored_by_other_dispositions() -> None:
    assert planned(merge_keys=["no"]).create is not None


def test_a_write_can_be_planned_from_configuration_alone() -> None:
    options = parse_write_options({}, None, {"write_disposition": "append"}, subject="a")
    asked = TableRequest(TABLE, "nyc/flights", is_named_explicitly=False, options=options)
    assert draft_write(asked, materialization(DAY), FRAME, None).plan().action == Append()


@pytest.mark.parametrize("disposition", ["replace", "append", "merge"])
def test_only_an_scd2_merge_extends_beyond_its_partitions(disposition: str) -> None:
    rules = {"strategy": "scd2", "valid_from": "ts", "boundary": "partition"}
    plan = planned(existing(), write_disposition=disposition, merge_keys=["carrier"], merge=rules)
    assert plan.guard is not None
    assert plan.guard.columns == ("ts",)
    if isinstance(plan.action, Merge):
        assert plan.action.scope == EVERY_ROW
    elif isinstance(plan.action, Overwrite):
        assert plan.action.coverage.filter != EVERY_ROW


@pytest.mark.parametrize(("lower", "upper", "is_asked"), [("A", "Z", True), ("AA", "AA", False), ("DL", "UA", False)])
def test_rows_are_searched_by_partition_only_if_bounds_are_inconclusive(lower: str, upper: str, is_asked: bool) -> None:
    state = existing(FRAME, "bucket(4, carrier)")
    data_file = DataFile("f", {"carrier": ColumnBounds(lower, upper, may_hold_null=False)})
    rows = drafted(state, keyed("AA")).rows_to_find_by_partition([data_file])
    assert rows == (In("carrier", ("AA",)) if is_asked else None)
