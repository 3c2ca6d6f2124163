"""The errors for tables that cannot be loaded as the type of an input.

Each function returns the error of one case. The caller raises it.
"""

import json
from collections.abc import Sequence

from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.plan.read import ReadPlan


def selection_of_whole_table(plan: ReadPlan, input_type: str) -> ConfigurationError:
    """The type represents the table itself, which cannot be filtered."""
    return _cannot_load(
        plan,
        expected=f"no `columns`, row filter or limit for an input of type {input_type}",
        found="one of them",
        hint="annotate the input as pyiceberg.table.DataScan, or leave them out.",
    )


def partitions_of_whole_table(plan: ReadPlan, input_type: str) -> ConfigurationError:
    """The type represents the table itself, not a partition."""
    return _cannot_load(
        plan,
        expected="a type of rows for an input of each partition by its key",
        found=f"{input_type}, which is the whole table",
        hint="annotate it as dict[str, pyiceberg.table.DataScan].",
    )


def changes_without_rows(plan: ReadPlan, input_type: str) -> ConfigurationError:
    """The type cannot represent an incremental read."""
    return _cannot_load(
        plan,
        expected="a type of rows, for what is new",
        found=input_type,
        hint="annotate it as pyarrow.Table or pyspark.sql.DataFrame, for instance.",
    )


def columns_unknown_to_pyiceberg(plan: ReadPlan, columns: Sequence[str]) -> ConfigurationError:
    """Pyiceberg does not know the types of some columns."""
    others = [name for name in plan.columns if name not in columns]
    or_others = f', or ask for the other columns: the input\'s metadata {{"columns": {json.dumps(others)}}}'
    return _cannot_load(
        plan,
        expected="columns of types that pyiceberg has",
        found=f"the column {', '.join(f'{name!r} of type {_type_of(plan, name)}' for name in columns)}",
        hint=f"load it as a pyspark.sql.DataFrame{or_others if others else ''}.",
    )


def equality_deletes(plan: ReadPlan) -> ConfigurationError:
    """The snapshot has deletes that pyiceberg cannot apply."""
    return _cannot_load(
        plan,
        expected="a table without equality deletes, which pyiceberg cannot evaluate",
        found=f"some in snapshot {plan.snapshot_id}",
        hint="load it as a pyspark.sql.DataFrame, or rewrite its data files, which applies the deletes.",
    )


def _type_of(plan: ReadPlan, name: str) -> str:
    field = plan.schema.field(name)
    return "" if field is None else str(field.type)


def _cannot_load(plan: ReadPlan, *, expected: str, found: str, hint: str) -> ConfigurationError:
    return ConfigurationError.refusing("load", str(plan.identifier), expected=expected, found=found, hint=hint)
