"""Spark settings of a MERGE, by its size."""

from dagster_iceberg_spark.plan.write.merging import (
    GROUP_FILTER,
    MINIMUM_PARTITIONS,
    PARTITION_BYTES,
    SHUFFLE_PARTITIONS,
    MergeSize,
    merge_settings,
)

SIZE = MergeSize(files=3, stored_rows=100, batch_rows=10, batch_bytes=1000)


def test_files_are_filtered_unless_all_of_them_change() -> None:
    assert GROUP_FILTER not in merge_settings(SIZE, changed_files=2, shuffle_partitions=1)
    assert merge_settings(SIZE, changed_files=3, shuffle_partitions=1) == {GROUP_FILTER: "false"}


def test_a_small_merge_uses_few_shuffle_partitions() -> None:
    rows_of_a_gigabyte = MergeSize(files=3, stored_rows=2**20, batch_rows=1, batch_bytes=1024)
    needed = 2**30 // PARTITION_BYTES + 1
    for given, wanted in ((200, needed), (needed, None), (4, None)):
        found = merge_settings(rows_of_a_gigabyte, changed_files=0, shuffle_partitions=given)
        assert found.get(SHUFFLE_PARTITIONS) == (wanted and str(wanted))
    assert merge_settings(SIZE, changed_files=0, shuffle_partitions=200) == {
        SHUFFLE_PARTITIONS: str(MINIMUM_PARTITIONS)
    }


def test_the_size_of_stored_rows_depends_on_the_table_s_width() -> None:
    narrow = MergeSize(files=1, stored_rows=10, batch_rows=10, batch_bytes=1000, column_ratio=3)
    assert narrow.shuffled_bytes == 4000


def test_a_batch_of_unknown_size_keeps_the_shuffle_settings() -> None:
    unknown = MergeSize(files=3, stored_rows=100, batch_rows=10, batch_bytes=None)
    assert merge_settings(unknown, changed_files=0, shuffle_partitions=200) == {}
    empty = MergeSize(files=3, stored_rows=100, batch_rows=0, batch_bytes=0)
    assert merge_settings(empty, changed_files=0, shuffle_partitions=200) == {}
