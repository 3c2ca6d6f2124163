"""Column bounds in the metadata of files. A replace needs whole bounds to find the files that have its rows.

By default, Iceberg stores bounds for the first 100 columns of a table, and 16 characters of texts (Iceberg
documentation, "Configuration", table properties).
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from dagster_iceberg_spark.plan.binding import BoundScope, Values
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.schema import Schema

_OF_COLUMN: Final = "write.metadata.metrics.column."
_OF_ALL: Final = "write.metadata.metrics.default"
_COLUMNS: Final = "write.metadata.metrics.max-inferred-column-defaults"
_DEFAULT_COLUMNS: Final = "100"
_DEFAULT_MODE: Final = "truncate(16)"


def whole_bounds(columns: Iterable[str]) -> dict[str, str]:
    """Return the table properties that make Iceberg store whole bounds for the columns."""
    return {f"{_OF_COLUMN}{column}": "full" for column in columns}


def advice(owned: BoundScope, schema: Schema, properties: Mapping[str, str], identifier: TableIdentifier) -> str | None:
    """Return advice for a table whose replaces rewrite rows of other partitions for lack of bounds, or None."""
    columns = list(_without_bounds(owned, schema, properties))
    if not columns:
        return None
    wanted = " and ".join(f"`{key}` = `{value}`" for key, value in whole_bounds(columns).items())
    return (
        f"Rows of other partitions of {identifier} are written again with this one's: the metadata of its files lacks "
        f"whole bounds of {' and '.join(map(repr, columns))}. Set {wanted} in `iceberg/table_properties`: files "
        "written from then on have them."
    )


def _without_bounds(owned: BoundScope, schema: Schema, properties: Mapping[str, str]) -> Iterator[str]:
    inferred = schema.names[: int(properties.get(_COLUMNS, _DEFAULT_COLUMNS))]
    for column in owned.columns:
        mode = _DEFAULT_MODE if column in inferred else "none"
        mode = properties.get(f"{_OF_COLUMN}{column}", properties.get(_OF_ALL, mode))
        kept = re.fullmatch(r"truncate\((\d+)\)", mode)
        longest = max((len(text) for text in _texts(owned, column)), default=0)
        if mode in ("none", "counts") or (kept and longest > int(kept[1])):
            yield column


def _texts(owned: BoundScope, column: str) -> Iterator[str]:
    for box in owned.boxes:
        for constraint in box:
            if isinstance(constraint, Values) and constraint.column == column:
                yield from (value for value in constraint.values if isinstance(value, str))
