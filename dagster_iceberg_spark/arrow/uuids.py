"""Converts uuids to texts, as in Spark. Most libraries treat Arrow's uuid type as binary."""

import pyarrow as pa
import pyarrow.compute as pc

from dagster_iceberg_spark.pyiceberg_fixes.lists_and_maps import with_parts

_ENDS = (8, 12, 16, 20, 32)
_DIGITS = 32


def with_texts(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with its uuids as texts, including those inside other columns."""
    schema = texts_in(batch.schema)
    if schema.equals(batch.schema):
        return batch
    return pa.record_batch([_texts(column) for column in batch.columns], schema=schema)


def texts_in(schema: pa.Schema) -> pa.Schema:
    """Return the schema with uuids as texts."""
    return pa.schema([_text_field(field) for field in schema], metadata=schema.metadata)


def _text_field(field: pa.Field) -> pa.Field:
    return field.with_type(_text_type(field.type))


def _text_type(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.UuidType):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([_text_field(kind.field(index)) for index in range(kind.num_fields)])
    if pa.types.is_large_list(kind):
        return pa.large_list(_text_field(kind.value_field))
    if pa.types.is_list(kind):
        return pa.list_(_text_field(kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(_text_field(kind.key_field), _text_field(kind.item_field))
    return kind


def _texts(array: pa.Array) -> pa.Array:
    kind = _text_type(array.type)
    if kind.equals(array.type):
        return array
    if isinstance(array, pa.ExtensionArray):
        return _texts_of(array.storage)
    if isinstance(array, pa.StructArray):
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays([_texts(part) for part in array.flatten()], fields=list(kind), mask=mask)
    parts = [array.keys, array.items] if isinstance(array, pa.MapArray) else [array.values]
    return with_parts(array, [_texts(part) for part in parts], kind)


def _texts_of(values: pa.Array) -> pa.Array:
    """Return binary values as texts, in the format of `uuid.UUID`."""
    known = values.drop_null()
    digits = b"".join(known.to_pylist()).hex().encode()
    offsets = pa.array(range(0, len(digits) + 1, _DIGITS), pa.int32())
    whole = pa.StringArray.from_buffers(len(known), offsets.buffers()[1], pa.py_buffer(digits))
    parts = [pc.utf8_slice_codeunits(whole, start, end) for start, end in zip((0, *_ENDS), _ENDS, strict=False)]
    texts = pc.binary_join_element_wise(*parts, "-")
    places = pc.subtract(pc.cumulative_sum(pc.cast(values.is_valid(), pa.int32())), 1)
    return texts.take(pc.if_else(values.is_valid(), places, None))
