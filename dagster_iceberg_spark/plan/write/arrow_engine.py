"""What a write needs Spark for. Without such a reason, Arrow can execute the plan."""

from collections.abc import Iterator
from typing import Final

from dagster_iceberg_spark.plan.publication.staged_rows import ROW_LINEAGE_VERSION
from dagster_iceberg_spark.plan.write.definition import wanted_properties
from dagster_iceberg_spark.plan.write.draft import WriteDraft
from dagster_iceberg_spark.table.partitioning import SortField
from dagster_iceberg_spark.table.schema import BINARY, IcebergType, types_within
from dagster_iceberg_spark.table.updates import CreateBranch, TableUpdate

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
_WRITTEN: Final = frozenset(
    {"boolean", "int", "long", "float", "double", "date", "timestamp", "timestamptz", "string", "binary", "unknown"}
)


def unfit_for_arrow(draft: WriteDraft, *, begins_branches: bool) -> str | None:  # noqa: PLR0911 - one for each
    """Return why Arrow cannot write the draft, or None if it can.

    `begins_branches` says whether a table without snapshots can get a branch other than `main` in the catalog. In
    format version 1, pyiceberg rejects that.
    """
    options, state = draft.request.options, draft.state
    if options.merges:
        return "it merges rows"
    version = max(options.format_version or 0, 0 if state is None else state.format_version)
    if version >= ROW_LINEAGE_VERSION:
        return f"the table has format version {version}, which pyiceberg does not write"
    is_begun = any(isinstance(item, CreateBranch) and item.snapshot_id is None for item in _branches(draft))
    if is_begun and (version == 1 or not begins_branches):
        return "the table has no snapshot, and pyiceberg begins no branch there"
    properties = {**(state.properties if state else {}), **wanted_properties(options)}
    if properties.get(_FORMAT, "parquet").lower() != "parquet":
        return f"its data files are in the format {properties[_FORMAT]}"
    unknown = [name for name in properties if name.startswith(_PROPERTIES)]
    if unknown:
        return f"pyarrow does not write files as the table property {unknown[0]} asks"
    unknown = sorted(options.write_options.keys() - _OPTIONS)
    if unknown:
        return f"the write option {unknown[0]} is Spark's"
    order = state.sort_order if state is not None and options.sort_by is None else options.sort_by or ()
    if any(not _is_plain(item) for item in order):
        return "the table's sort order has transforms"
    stored = (*(state.schema if state else ()), *draft.columns)
    unwritten = next((field for field in stored if not _is_written(field.type)), None)
    if unwritten is not None:
        return f"the column {unwritten.name!r} of type {unwritten.type} needs a conversion"
    truncated = [item for item in draft.partition_fields if item.transform.name == "truncate"]
    if any(field.type == BINARY for item in truncated if (field := draft.columns.field(item.column)) is not None):
        return "pyiceberg does not truncate binary values"
    base = state.base(draft.request.branch) if state else None
    if state is not None and base is not None and any(state.schema.field(name) is None for name in draft.owned.columns):
        return "the column of its partitions is new in the table"
    return None


def _branches(draft: WriteDraft) -> Iterator[TableUpdate]:
    yield from draft.changes
    yield from draft.staging


def _is_plain(item: SortField) -> bool:
    return item.transform == "identity"


def _is_written(kind: IcebergType) -> bool:
    """Return whether Arrow has values of the type as `arrow_rows` converts them, at every depth."""
    primitives = (str(item) for item in types_within(kind) if "<" not in str(item))
    return all(name in _WRITTEN or name.startswith("decimal") for name in primitives)
