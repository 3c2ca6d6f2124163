"""What a replace overwrites: only whole files, and at least the rows that the run owns."""

import datetime as dt
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.conversions import to_bytes
from pyiceberg.expressions.visitors import _InclusiveMetricsEvaluator, _StrictMetricsEvaluator
from pyiceberg.manifest import DataFile as ManifestDataFile
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField, StringType, TimestamptzType

from dagster_iceberg_spark.catalog.expressions import expression_of
from dagster_iceberg_spark.plan.partitions.binding import BoundBox, BoundScope, bind_scope
from dagster_iceberg_spark.plan.write import overwrite_filter as module
from dagster_iceberg_spark.plan.write.overwrite_filter import (
    ColumnBounds,
    DataFile,
    cover,
    follows_spec,
    hull,
    within_file,
)
from dagster_iceberg_spark.table.partitioning import PartitionSpec, parse_transform
from dagster_iceberg_spark.table.predicate import EVERY_ROW, InPartitions, LiteralValue, Predicate, any_of
from dagster_iceberg_spark.table.scope import Dimension, PartitionScope, PartitionSlice, TimeWindow
from tests.core.table.evaluator import matches
from tests.core.table.samples import NEW_YORK, calendar, daily, keyed, keys_by_day, schema, spec, utc

ICEBERG_COLUMNS = Schema(NestedField(1, "ts", TimestamptzType()), NestedField(2, "carrier", StringType()))
COLUMNS = schema(ts="timestamptz", carrier="string", day="date")
HOUR, MICROSECOND = dt.timedelta(hours=1), dt.timedelta(microseconds=1)
NOON = utc(2024, 1, 2, 12)
CARRIERS = ("AA", "DL", "UA")


def bound(scope: PartitionScope) -> BoundScope:
    return bind_scope(scope, COLUMNS, subject="nyc.flights")


def monthly(start: dt.datetime, end: dt.datetime) -> PartitionScope:
    dimension = Dimension(None, "ts", calendar(granule="month"))
    return PartitionScope((dimension,), ((PartitionSlice("m", TimeWindow(start, end)),),), ("m",))


def hour(number: int) -> dt.datetime:
    return utc(2024, 1, 1) + number * HOUR


def described(rows: list[dict[str, Any]], *, known: bool, nulls_known: bool) -> tuple[DataFile, ManifestDataFile]:
    """Return these rows as a manifest describes them, for the plan and for pyiceberg's own evaluators."""
    bounds, lower, upper, nulls = {}, {}, {}, {}
    for field in (ICEBERG_COLUMNS.find_field("ts"), ICEBERG_COLUMNS.find_field("carrier")):
        values = [row[field.name] for row in rows]
        present = [value for value in values if value is not None] if known else []
        low, high = (min(present), max(present)) if present else (None, None)
        bounds[field.name] = ColumnBounds(low, high, may_hold_null=not nulls_known or None in values)
        if present:
            column_type: Any = field.field_type
            lower[field.field_id] = to_bytes(column_type, stored(low))
            upper[field.field_id] = to_bytes(column_type, stored(high))
        if nulls_known:
            nulls[field.field_id] = values.count(None)
    counts = {field.field_id: len(rows) for field in ICEBERG_COLUMNS.fields}
    manifest_file = ManifestDataFile.from_args(
        content=DataFileContent.DATA,
        file_path="f",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=len(rows),
        file_size_in_bytes=1,
        column_sizes={},
        value_counts=counts,
        null_value_counts=nulls,
        nan_value_counts={},
        lower_bounds=lower,
        upper_bounds=upper,
    )
    return DataFile("f", bounds), manifest_file


def stored(value: Any) -> Any:
    return (value - utc(1970, 1, 1)) // MICROSECOND if isinstance(value, dt.datetime) else value


INSTANTS = (
    st.none() | st.builds(hour, st.integers(0, 71)) | st.builds(lambda n: hour(n) - MICROSECOND, st.integers(1, 72))
)
ROWS = st.fixed_dictionaries({"ts": INSTANTS, "carrier": st.none() | st.sampled_from(CARRIERS)})
FILES = st.lists(st.tuples(st.lists(ROWS, min_size=1, max_size=3), st.booleans(), st.booleans()), max_size=5)
DAYS = ("2024-01-01", "2024-01-02", "2024-01-03")
SCOPES = st.one_of(
    st.builds(lambda days: daily(*days), st.sets(st.sampled_from(DAYS), min_size=1)),
    st.builds(lambda days: daily(*days, zone=NEW_YORK), st.sets(st.sampled_from(DAYS), min_size=1)),
    st.builds(lambda keys: keyed(*keys), st.sets(st.sampled_from(CARRIERS), min_size=1)),
    st.builds(
        keys_by_day, st.sets(st.tuples(st.sampled_from(CARRIERS), st.sampled_from(DAYS)), min_size=1, max_size=5)
    ),
)


@pytest.mark.parametrize(
    ("scope", "specs", "follows"),
    [
        (daily("2024-01-02"), [["day(ts)"]], True),
        (daily("2024-01-02"), [["hour(ts)"]], True),
        (daily("2024-01-02"), [["ts"]], True),
        (daily("2024-01-02"), [["bucket(4, carrier)", "day(ts)"]], True),
        (daily("2024-01-02"), [["month(ts)"]], False),
        (daily("2024-01-02"), [["bucket(4, ts)"]], False),
        (daily("2024-01-02"), [["day(other)"]], False),
        (daily("2024-01-02"), [[]], False),
        (daily("2024-01-02"), [["day(ts)"], ["month(ts)"]], False),
        (daily("2024-01-02"), [["day(ts)"], ["hour(ts)"]], True),
        (daily("2024-01-02", zone=NEW_YORK), [["day(ts)"]], False),
        (daily("2024-01-02", zone=NEW_YORK), [["hour(ts)"]], True),
        (daily("2024-01-02", zone="Asia/Kathmandu"), [["hour(ts)"]], False),
        (monthly(utc(2024, 1, 1), utc(2024, 2, 1)), [["month(ts)"]], True),
        (monthly(utc(2024, 1, 1), utc(2024, 2, 1)), [["year(ts)"]], False),
        (monthly(utc(2024, 1, 1), utc(2025, 1, 1)), [["year(ts)"]], True),
        (daily("2024-01-01", "2024-01-03", column="day"), [["day(day)"]], True),
        (daily("2024-01-02", column="day"), [["month(day)"]], False),
        (keyed("AA"), [["carrier"]], True),
        (keyed("AA"), [["bucket(4, carrier)"]], False),
        (keyed("AA"), [["truncate(2, carrier)"]], False),
        (keys_by_day([("AA", "2024-01-02")]), [["day(ts)", "carrier"]], True),
        (keys_by_day([("AA", "2024-01-02")]), [["day(ts)"]], False),
        (PartitionScope(), [[]], True),
    ],
)
def test_a_spec_follows_a_scope_if_each_partition_is_inside_or_outside(
    scope: PartitionScope, specs: list[list[str]], follows: bool
) -> None:
    assert follows_spec(bound(scope), [spec(*fields) for fields in specs]) == follows


def test_a_void_field_does_not_follow_the_scope() -> None:
    removed = spec("day(ts)").fields[0]
    void = type(removed)(removed.column, type(removed.transform)("void"))
    assert not follows_spec(bound(daily("2024-01-02")), [type(spec())((void,))])


@settings(max_examples=150)
@given(SCOPES, FILES)
def test_iceberg_finds_every_file_entirely_inside_or_outside_the_filter(
    scope: PartitionScope, files: list[tuple[list[dict[str, Any]], bool, bool]]
) -> None:
    contents = [described(rows, known=known, nulls_known=nulls_known) for rows, known, nulls_known in files]
    coverage = cover(bound(scope), [data_file for data_file, _ in contents])
    expression = expression_of(coverage.filter)
    may_match = _InclusiveMetricsEvaluator(ICEBERG_COLUMNS, expression).eval
    all_match = _StrictMetricsEvaluator(ICEBERG_COLUMNS, expression).eval
    for (rows, _, _), (_, manifest_file) in zip(files, contents, strict=True):
        matched = {matches(coverage.filter, row) for row in rows}
        assert all_match(manifest_file) or not may_match(manifest_file)
        assert len(matched) == 1
        assert all(matches(coverage.filter, row) for row in rows if matches(coverage.owned, row))


@settings(max_examples=150)
@given(SCOPES, FILES)
def test_a_scope_narrowed_to_a_file_matches_the_same_rows_of_it(
    scope: PartitionScope, files: list[tuple[list[dict[str, Any]], bool, bool]]
) -> None:
    whole = bound(scope)
    for rows, known, nulls_known in files:
        left = within_file(whole, described(rows, known=known, nulls_known=nulls_known)[0])
        for row in rows:
            assert matches(left.predicate(), row) == matches(whole.predicate(), row)
        assert sum(len(box) for box in left.boxes) <= sum(len(box) for box in whole.boxes)


def test_a_file_inside_the_scope_needs_no_filter_and_one_outside_is_not_read() -> None:
    days = bound(daily("2024-01-01", "2024-01-03"))
    assert within_file(days, file(hour(0), hour(23))).is_whole_table
    assert within_file(days, file(hour(24), hour(47))).boxes == ()
    (left,) = within_file(days, file(hour(12), hour(30))).boxes
    assert left[0].predicate() == bound(daily("2024-01-01")).predicate()


@settings(max_examples=150)
@given(SCOPES, ROWS)
def test_a_hull_contains_its_scope_in_one_box(scope: PartitionScope, row: dict[str, Any]) -> None:
    outline = hull(bound(scope))
    assert len(outline.boxes) == 1
    assert matches(outline.predicate(), row) or not matches(bound(scope).predicate(), row)


@settings(max_examples=100)
@given(SCOPES, ROWS)
def test_without_files_the_filter_is_the_scope(scope: PartitionScope, row: dict[str, LiteralValue | None]) -> None:
    coverage = cover(bound(scope), [])
    assert coverage.filter == coverage.owned
    assert not coverage.carries_over


def file(lower: dt.datetime | None, upper: dt.datetime | None, *, null: bool = False) -> DataFile:
    return DataFile("f", {"ts": ColumnBounds(lower, upper, may_hold_null=null)})


def kept(predicate: Predicate, *instants: dt.datetime | None) -> list[bool]:
    return [matches(predicate, {"ts": instant}) for instant in instants]


@pytest.mark.parametrize(
    ("data_file", "straddles"),
    [
        (file(utc(2024, 1, 2), utc(2024, 1, 2, 23, 59, 59, 999999)), False),
        (file(utc(2024, 1, 2), utc(2024, 1, 3)), True),
        (file(utc(2024, 1, 1), utc(2024, 1, 1, 23)), False),
        (file(utc(2024, 1, 3), utc(2024, 1, 4)), False),
        (file(utc(2024, 1, 1, 23), utc(2024, 1, 2)), True),
        (file(utc(2024, 1, 1), utc(2024, 1, 9)), True),
        (file(NOON, NOON, null=True), True),
        (file(None, None), True),
        (file(NOON, None), True),
        (file(utc(2024, 1, 5), utc(2024, 1, 5), null=True), False),
    ],
)
def test_a_file_straddles_a_day_if_it_may_hold_rows_inside_and_outside(data_file: DataFile, straddles: bool) -> None:
    coverage = cover(bound(daily("2024-01-02")), [data_file])
    assert (coverage.straddling_files, coverage.carries_over) == (int(straddles), straddles)


def test_the_filter_grows_only_over_overlapping_files() -> None:
    chain = [
        file(NOON, NOON + 24 * HOUR),
        file(NOON + 20 * HOUR, NOON + 48 * HOUR),
        file(NOON + 72 * HOUR, NOON + 80 * HOUR),
    ]
    coverage = cover(bound(daily("2024-01-02")), chain)
    assert coverage.straddling_files == 1
    end = NOON + 48 * HOUR
    assert kept(coverage.filter, utc(2024, 1, 2), end, end + MICROSECOND, NOON + 72 * HOUR) == [
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize("step", [1, -1, 7], ids=["upwards", "downwards", "mixed"])
def test_a_long_chain_of_overlapping_files_needs_few_passes(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    count, middle = 300, 150
    chain = [file(NOON + number * HOUR, NOON + number * HOUR + 1.5 * HOUR) for number in range(-middle, middle)]
    in_order = [chain[number * step % count] for number in range(count)]
    asked = []
    straddles = module._straddles

    def counted(box: BoundBox, data_file: DataFile) -> bool:
        asked.append(data_file)
        return straddles(box, data_file)

    monkeypatch.setattr(module, "_straddles", counted)
    found = cover(bound(daily("2024-01-02")), in_order).filter
    first, last = NOON - middle * HOUR, NOON + middle * HOUR + 0.5 * HOUR
    assert kept(found, first - MICROSECOND, first, last, last + MICROSECOND) == [False, True, True, False]
    assert len(asked) <= 4 * count


def test_a_file_without_bounds_drops_its_column_from_the_filter() -> None:
    assert cover(bound(daily("2024-01-02")), [file(None, None)]).filter == EVERY_ROW


def test_a_date_filter_grows_by_whole_days() -> None:
    first, last = dt.date(2024, 1, 2), dt.date(2024, 1, 4)
    data_file = DataFile("f", {"day": ColumnBounds(first, last, may_hold_null=False)})
    coverage = cover(bound(daily("2024-01-02", column="day")), [data_file])
    days = [dt.date(2024, 1, number) for number in range(1, 7)]
    assert [matches(coverage.filter, {"day": day}) for day in days] == [False, True, True, True, False, False]


def test_the_last_day_of_the_calendar_is_a_bound_like_any_other() -> None:
    scope = bind_scope(daily("2024-01-02", column="day"), schema(day="date"), subject="t")
    file = DataFile("f", {"day": ColumnBounds(dt.date(2024, 1, 2), dt.date.max, may_hold_null=False)})
    assert cover(scope, [file]).carries_over


BUCKET = parse_transform("bucket[4]")
BUCKETS = spec("bucket(4, carrier)")


def cut(bucket: int, **known: Any) -> DataFile:
    """A file of one bucket. Its string bounds are truncated to the first letters, which are the same in all files."""
    bounds = ColumnBounds("A", "Z", may_hold_null=False, partitions={BUCKET: bucket})
    return DataFile("f", {"carrier": bounds}, **known)


CUT_FILES = [cut(2), cut(1, may_be_owned=False), cut(3, may_be_owned=False)]


def test_buckets_separate_files_with_equal_bounds() -> None:
    coverage = cover(bound(keyed("AA")), CUT_FILES, [BUCKETS])
    assert coverage.straddling_files == 1
    assert coverage.filter == any_of([InPartitions("carrier", BUCKET, (2,)), coverage.owned])
    assert not cover(bound(keyed("AA")), CUT_FILES[1:], [BUCKETS]).carries_over


@pytest.mark.parametrize(
    "specs",
    [[BUCKETS, spec("bucket(4, carrier)", "carrier")], [BUCKETS, spec("day(ts)")], [spec("bucket(8, carrier)")], []],
    ids=["identity too", "an older spec without buckets", "other bucket count", "unknown specs"],
)
def test_buckets_are_used_only_if_every_spec_has_them_without_the_values(specs: list[PartitionSpec]) -> None:
    assert cover(bound(keyed("AA")), CUT_FILES, specs).filter == EVERY_ROW
