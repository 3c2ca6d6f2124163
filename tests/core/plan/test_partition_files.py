"""Finding the files of each of many partitions."""

from hypothesis import given
from hypothesis import strategies as st

from dagster_iceberg_spark.plan.partitions.binding import BoundScope, Constraint, Intervals, Values
from dagster_iceberg_spark.plan.read.read_plan import partition_files
from dagster_iceberg_spark.plan.write.overwrite_filter import ColumnBounds, DataFile, within_file

NUMBERS = st.integers(-5, 5)
EDGES = st.none() | NUMBERS
BOUNDS = st.one_of(
    st.builds(
        lambda edges, may_hold_null: ColumnBounds(min(edges), max(edges), may_hold_null=may_hold_null),
        st.tuples(NUMBERS, NUMBERS),
        st.booleans(),
    ),
    st.just(ColumnBounds(None, None, may_hold_null=True)),
    st.just(ColumnBounds(None, None, may_hold_null=True, is_null=True)),
)
FILES = st.lists(st.builds(lambda a, b: DataFile("f", {"a": a, "b": b}, 1), BOUNDS, BOUNDS), max_size=6)


def constraints(column: str) -> st.SearchStrategy[Constraint]:
    values = st.lists(NUMBERS, min_size=1, max_size=3, unique=True).map(tuple)
    intervals = st.lists(st.tuples(EDGES, EDGES), min_size=1, max_size=2).map(tuple)
    return st.one_of(
        st.builds(lambda items, has_null: Values(column, items, has_null=has_null), values, st.booleans()),
        st.builds(lambda items: Intervals(column, items), intervals),
    )


BOXES = st.one_of(
    st.tuples(constraints("a")), st.tuples(constraints("a"), constraints("b")), st.tuples(constraints("b")), st.just(())
)
SCOPES = st.lists(st.lists(BOXES, max_size=3).map(lambda boxes: BoundScope(tuple(boxes))), max_size=5)


@given(SCOPES, FILES)
def test_partition_files_are_the_files_that_may_hold_its_rows(
    partitions: list[BoundScope], files: list[DataFile]
) -> None:
    expected = [
        [position for position, file in enumerate(files) if within_file(scope, file).boxes] for scope in partitions
    ]
    assert partition_files(partitions, files) == expected
