"""docs/adding-a-feature.md: a write of many small files logs a warning."""

from typing import Any

import pytest

from dagster_iceberg_spark import MetadataKeyError, metadata_for_table
from dagster_iceberg_spark.features.file_sizes.observer import AVERAGE_FILE_BYTES
from dagster_iceberg_spark.features.file_sizes.options import size
from tests.lakes import Lake, frame_asset, metadata_of


@pytest.mark.parametrize(("text", "expected"), [("16 MB", 16_000_000), ("512kB", 512_000), ("1 gb", 1_000_000_000)])
def test_sizes_are_parsed(text: str, expected: int) -> None:
    assert size(text) == expected


@pytest.mark.parametrize("value", ["16", "16 MiB", "-1 MB", 16, ""])
def test_other_values_are_refused(value: Any) -> None:
    with pytest.raises(MetadataKeyError, match=r"iceberg/min_file_size.*such as"):
        metadata_for_table(min_file_size=value)


@pytest.mark.spark
@pytest.mark.parametrize(("files", "wanted", "warns"), [(12, "1 MB", True), (12, "1 kB", False), (9, "1 MB", False)])
def test_many_small_files_cause_a_warning(lake: Lake, files: int, wanted: str, *, warns: bool) -> None:
    metadata = {"iceberg/partition_by": ["v"], "iceberg/min_file_size": wanted}
    asset = frame_asset("t", f"select id as v, repeat('x', 2000) as w from range({files})", metadata=metadata)
    result = lake.materialize(asset)
    messages = [entry.user_message for entry in lake.instance.all_logs(result.run_id)]
    assert any(f"added {files} files to db.t" in message for message in messages) is warns
    assert 500 < metadata_of(result, "t")[AVERAGE_FILE_BYTES] < 10_000


@pytest.mark.spark
@pytest.mark.full
def test_an_asset_that_names_no_size_has_no_metadata_of_it(lake: Lake) -> None:
    result = lake.materialize(frame_asset("t", "select 1 as v"))
    assert AVERAGE_FILE_BYTES not in metadata_of(result, "t")
