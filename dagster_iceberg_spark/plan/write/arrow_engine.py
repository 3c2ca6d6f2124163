"""What a write needs Spark for. Without such a reason, Arrow can execute the plan."""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Final

from dagster_iceberg_spark.plan.write.definition import wanted_properties
from dagster_iceberg_spark.plan.write.draft import WriteDraft
from dagster_iceberg_spark.table.schema import (
    BINARY,
    DOUBLE,
    FLOAT,
    DecimalType,
    IcebergType,
    PrimitiveType,
    types_within,
)
from dagster_iceberg_spark.table.snapshot import MAIN_BRANCH, ROW_LINEAGE_VERSION
from dagster_iceberg_spark.table.updates import BranchUpdate, CreateBranch, TableUpdate

_OPTIONS: Final = frozenset(
    {
        "target-file-size-bytes",
        "compression-codec",
        "compression-level",
        "fanout-enabled",
        "distribution-mode",
        "advisory-partition-size",
        "use-table-distribution-and-ordering",
    }
)
"""The write options that Arrow follows, or that concern only how Spark distributes rows over its tasks."""
_PROPERTIES: Final = ("write.parquet.bloom-filter", "write.parquet.row-group-size-bytes", "encryption.")
_FORMAT: Final = "write.format.default"
_MERGES: Final = ("upsert", "insert_only")
_OPTIONS_OF_MERGES: Final = ("dedup_sort", "hard_delete", "when_matched", "sync")
_MERGE_MODE: Final = "write.merge.mode"
_WRITTEN: Final = frozenset(
    {"boolean", "int", "long", "float", "double", "date", "timestamp", "timestamptz", "string", "binary", "unknown"}
)


def unfit_for_arrow(draft: WriteDraft) -> str | None:
    """Return why Arrow cannot write the draft, or None if it can."""
    reasons = chain(_of_merge(draft), _of_format(draft), _of_table(draft), _of_files(draft), _of_columns(draft))
    return next(reasons, None)


def _of_merge(draft: WriteDraft) -> Iterator[str]:
    """Yield what of a merge needs Spark."""
    options, state = draft.request.options, draft.state
    if not options.merges:
        return
    rules, stored = options.merge, () if state is None else state.schema
    if rules.strategy not in _MERGES:
        yield f"Spark evaluates the merge strategy {rules.strategy!r}"
    yield from (f"Spark evaluates `{name}` of `iceberg/merge`" for name in _OPTIONS_OF_MERGES if getattr(rules, name))
    if _properties(draft).get(_MERGE_MODE) == "merge-on-read":
        yield f"the table property {_MERGE_MODE} asks for delete files, which pyiceberg does not write"
    keys = filter(None, map(draft.columns.field, options.merge_keys or draft.frame.names))
    yield from (f"the merge key {key.name!r} is of type {key.type}" for key in keys if not _is_key(key.type))
    kept = "whose stored values a merge keeps"
    yield from (f"structs in the column {name!r} lack fields, {kept}" for name in draft.completions)
    lacking = (field for field in stored if field.is_required and draft.frame.field(field.name) is None)
    yield from (f"the rows lack the required column {field.name!r}, {kept}" for field in lacking)


def _of_format(draft: WriteDraft) -> Iterator[str]:
    """Yield what of format version 3 needs Spark: pyiceberg creates no such table, Arrow keeps no row ids."""
    options = draft.request.options
    version = options.version_of(draft.state)
    if version < ROW_LINEAGE_VERSION:
        return
    what = f"the table has format version {version}"
    if options.merges:
        yield f"{what}, and a merge keeps the ids of its rows"
    others = [change for change in draft.changes if not isinstance(change, BranchUpdate)]
    if draft.create is not None or others or options.renames or options.schema_evolution == "full":
        yield f"{what}, and pyiceberg does not create or change such a table"


def _of_table(draft: WriteDraft) -> Iterator[str]:
    """Yield what of the table's history needs Spark."""
    state = draft.state
    version = draft.request.options.version_of(state)
    is_empty = state is None or MAIN_BRANCH not in state.refs
    is_begun = any(isinstance(item, CreateBranch) and item.snapshot_id is None for item in _branches(draft))
    if is_empty and is_begun and version == 1:
        yield "the table has no snapshot, and pyiceberg begins no branch there"
    base = state.base(draft.request.branch) if state else None
    if state is not None and base is not None and any(state.schema.field(name) is None for name in draft.owned.columns):
        yield "the column of its partitions is new in the table"


def _of_files(draft: WriteDraft) -> Iterator[str]:
    """Yield what of the layout of data files needs Spark."""
    options, state = draft.request.options, draft.state
    properties = _properties(draft)
    if properties.get(_FORMAT, "parquet").lower() != "parquet":
        yield f"its data files are in the format {properties[_FORMAT]}"
    for name in properties:
        if name.startswith(_PROPERTIES):
            yield f"pyarrow does not write files as the table property {name} asks"
    if options.concurrent_writes == "first_wins":
        yield "Iceberg's Java library compares the rows of concurrent writes"
    for name in sorted(options.write_options.keys() - _OPTIONS):
        yield f"the write option {name} is Spark's"
    order = state.sort_order if state is not None and options.sort_by is None else options.sort_by or ()
    if any(item.transform != "identity" for item in order):
        yield "the table's sort order has transforms"


def _of_columns(draft: WriteDraft) -> Iterator[str]:
    """Yield what of the columns needs Spark."""
    for field in (*(draft.state.schema if draft.state else ()), *draft.columns):
        if not _is_written(field.type):
            yield f"the column {field.name!r} of type {field.type} needs a conversion"
    for item in draft.partition_fields:
        source = draft.columns.field(item.column)
        if item.transform.name == "truncate" and source is not None and source.type == BINARY:
            yield "pyiceberg does not truncate binary values"


def _properties(draft: WriteDraft) -> Mapping[str, str]:
    return {**(draft.state.properties if draft.state else {}), **wanted_properties(draft.request.options)}


def _branches(draft: WriteDraft) -> Iterator[TableUpdate]:
    yield from draft.changes
    yield from draft.staging


def _is_key(kind: IcebergType) -> bool:
    """Return whether values of the type are equal where Arrow's are: 0.0 equals -0.0 in Spark."""
    return kind not in (FLOAT, DOUBLE) and isinstance(kind, PrimitiveType | DecimalType)


def _is_written(kind: IcebergType) -> bool:
    """Return whether Arrow has values of the type as `arrow_rows` converts them, at every depth."""
    primitives = (str(item) for item in types_within(kind) if "<" not in str(item))
    return all(name in _WRITTEN or name.startswith("decimal") for name in primitives)
