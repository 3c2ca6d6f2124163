"""What engines read of Iceberg tables: one table of facts. What is not known to be read counts as not read.

docs/readers.md shows the table.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dagster_iceberg_spark.table.schema import IcebergType, Schema, types_within
from dagster_iceberg_spark.table.snapshot import ROW_LINEAGE_VERSION, TableState

DELETES: Final = ("position deletes", "equality deletes", "deletion vectors")
"""What marks rows as deleted without removing them from their files (Iceberg spec, "Delete Formats")."""
FORMAT_3: Final = "format 3"
TYPES: Final[Mapping[str, str]] = {
    "variant": "variant",
    "timestamp_ns": "nanoseconds",
    "timestamptz_ns": "nanoseconds",
    "geometry": "geometry",
    "geography": "geometry",
    "unknown": "unknown type",
}
"""The features that types of columns need."""
FEATURES: Final = (*DELETES, FORMAT_3, *dict.fromkeys(TYPES.values()))
"""The features that not every engine reads."""


@dataclass(frozen=True, slots=True)
class Reader:
    """An engine that reads tables.

    Args:
        since: The version from which on this is so, or what it was tried with.
        reads: The features that it reads.
        source: Where this is known from.
    """

    since: str
    reads: frozenset[str]
    source: str


def _reader(since: str, source: str, *reads: str) -> Reader:
    return Reader(since, frozenset(reads), source)


READERS: Final[Mapping[str, Reader]] = {
    "athena": _reader("engine 3", "Amazon S3 user guide, Iceberg V3", DELETES[0]),
    "bigquery": _reader("2026", "Google Cloud, Iceberg V3", DELETES[0], DELETES[2], FORMAT_3),
    "databricks": _reader(
        "runtime 18.2", "Databricks, Iceberg v3", DELETES[0], DELETES[2], FORMAT_3, "variant", "geometry"
    ),
    "duckdb": _reader("1.5", "duckdb-iceberg #201 and #728", *DELETES, FORMAT_3),
    "pyiceberg": _reader("0.12", "tried", DELETES[0], DELETES[2], FORMAT_3, "unknown type"),
    "snowflake": _reader(
        "May 2026", "Snowflake, Iceberg v3", DELETES[0], DELETES[2], FORMAT_3, "variant", "nanoseconds", "geometry"
    ),
    "spark": _reader("4.0, Iceberg 1.12", "tried", *DELETES, FORMAT_3, "variant", "unknown type"),
    "trino": _reader("2026", "trino #27788", *DELETES, FORMAT_3),
}


def without(feature: str, readers: Sequence[str]) -> list[str]:
    """Return the readers that do not read a feature."""
    return [name for name in readers if feature not in READERS[name].reads]


def features_of_types(schema: Schema) -> Iterator[tuple[str, str]]:
    """Yield the features that the types of columns need, each with its column."""
    for field in schema:
        for kind in _names(field.type):
            if kind in TYPES:
                yield TYPES[kind], f"the column {field.name!r} of type {kind}"


def _names(kind: IcebergType) -> Iterator[str]:
    for item in types_within(kind):
        yield str(item).partition("(")[0]


def features_of(state: TableState) -> Iterator[tuple[str, str]]:
    """Yield the features that a reader of `main` needs, each with what needs it. No manifest is read."""
    if state.format_version >= ROW_LINEAGE_VERSION:
        yield FORMAT_3, f"format version {state.format_version}"
    yield from features_of_types(state.schema)
    head = state.head()
    if head is None:
        return
    if head.count("total-equality-deletes"):
        yield "equality deletes", "equality delete files"
    if head.count("total-position-deletes"):
        vectors = state.format_version >= ROW_LINEAGE_VERSION
        yield "deletion vectors" if vectors else "position deletes", "rows that are deleted in delete files"


def unread(state: TableState, readers: Sequence[str]) -> list[str]:
    """Return sentences about what of a table its readers do not read."""
    found = dict.fromkeys(
        f"{what}: {', '.join(names)} cannot read {feature}"
        for feature, what in features_of(state)
        if (names := without(feature, readers))
    )
    return [*found]
