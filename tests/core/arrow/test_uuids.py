"""UUIDs as strings."""

import uuid
from typing import Any

import pyarrow as pa
import pytest

from dagster_iceberg_spark.arrow.scan import with_texts

ONE, OTHER = uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7"), uuid.UUID(int=1)
VALUES = [ONE, None, OTHER, ONE]


def uuids(values: list[uuid.UUID | None]) -> pa.Array:
    stored = pa.array([None if value is None else value.bytes for value in values], pa.binary(16))
    return pa.ExtensionArray.from_storage(pa.uuid(), stored)


def texts(values: list[Any]) -> list[str | None]:
    return [None if value is None else str(value) for value in values]


@pytest.mark.parametrize("values", [[], [None], VALUES], ids=len)
def test_uuids_are_written_as_in_python(values: list[uuid.UUID | None]) -> None:
    batch = with_texts(pa.record_batch({"u": uuids(values), "n": pa.array(range(len(values)), pa.int64())}))
    assert batch.schema == pa.schema([("u", pa.string()), ("n", pa.int64())])
    assert batch.column("u").to_pylist() == texts(values)


@pytest.mark.parametrize("kind", [pa.ListArray, pa.LargeListArray])
@pytest.mark.parametrize("start", [0, 1])
def test_nested_uuids_are_written_as_text(kind: Any, start: int) -> None:
    """Also in a slice, as Arrow returns parts of a large row group."""
    offsets = [0, 2, None, 4]
    lists = kind.from_arrays(offsets, uuids(VALUES))
    structs = pa.StructArray.from_arrays([uuids(VALUES[:3])], ["x"], mask=pa.array([False, True, False]))
    maps = pa.MapArray.from_arrays([0, 1, None, 2], uuids([ONE, OTHER]), uuids([None, ONE]))
    batch = with_texts(pa.record_batch({"l": lists, "s": structs, "m": maps}).slice(start))
    one, none, other, _ = texts(VALUES)
    assert batch.column("l").to_pylist() == [[one, none], [other, one], None][start:]
    assert batch.column("s").to_pylist() == [{"x": one}, None, {"x": other}][start:]
    assert batch.column("m").to_pylist() == [[(one, None)], [(other, one)], None][start:]


def test_a_batch_without_uuids_is_not_changed() -> None:
    batch = pa.record_batch({"l": pa.array([[1], None])})
    assert with_texts(batch) is batch
