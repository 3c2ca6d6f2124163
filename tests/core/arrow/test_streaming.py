"""How many files are read at the same time."""

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from dagster_iceberg_spark.arrow.scan import READ_AHEAD_BYTES, READ_AHEAD_DECODED_BYTES, batches_of

MB = 1024 * 1024


class Scan:
    """A scan that records which files are read at once. Each file has one batch of a few rows of the given width."""

    def __init__(self, *, bytes_of_row: int) -> None:
        self.groups: list[int] = []
        self._batch = pa.record_batch({"s": pa.array(["x" * bytes_of_row] * 10, pa.large_string())})

    def to_record_batches(self, tasks: list[Any]) -> Any:
        self.groups.append(len(tasks))
        yield from [self._batch] * len(tasks)

    _record_batches_from_scan_tasks_and_deletes = lambda self, tasks, _: self.to_record_batches(tasks)  # noqa: E731


def file_of(*, stored: int, rows: int) -> Any:
    return SimpleNamespace(file=SimpleNamespace(file_size_in_bytes=stored, record_count=rows), delete_files=[])


@pytest.mark.parametrize(
    ("stored", "rows", "bytes_of_row", "groups"),
    [
        (1000, 10, 100, [20]),
        (READ_AHEAD_BYTES, 10, 100, [1] * 20),
        (READ_AHEAD_BYTES // 4, 10, 100, [4] * 5),
        (1000, MB, 100, [1] * 20),  # files that compress well
        (1000, MB // 64, 100, [8, 12]),  # the width of a row is unknown at first
        (1000, READ_AHEAD_DECODED_BYTES // 5000, 4000, [9, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]),
    ],
)
def test_small_files_are_read_concurrently(stored: int, rows: int, bytes_of_row: int, groups: list[int]) -> None:
    scan: Any = Scan(bytes_of_row=bytes_of_row)
    files = [file_of(stored=stored, rows=rows)] * 20
    assert len(list(batches_of(scan, SimpleNamespace(), files))) == 20  # type: ignore[arg-type]
    assert scan.groups == groups
