"""The errors for definitions that ask for something that the table, the branch or the session does not allow.

Each function returns the error of one case. The caller raises it.
"""

import datetime as dt
from collections.abc import Sequence
from functools import partial
from typing import Literal

from dagster_iceberg_spark.errors import ConfigurationError, DataError, TableOwnershipError
from dagster_iceberg_spark.plan.options import AUDITS, IDENTIFIER_FIELDS, MERGE, TAKES_OVER
from dagster_iceberg_spark.table.schema import Field
from dagster_iceberg_spark.table.updates import TableUpdate

_cannot_write = partial(ConfigurationError.refusing, "write")
_cannot_merge = partial(ConfigurationError.refusing, "merge into")


def accepts_any_schema(subject: str, name: str) -> ConfigurationError:
    """A table property disables Spark's checks of columns and of NULL."""
    return _cannot_write(
        subject,
        expected=f"a table without `{name}`, under which Spark checks neither columns nor NULL",
        found="it switched on",
        hint=f'remove it: `"iceberg/table_properties": {{"{name}": None}}`; new columns are added by '
        "`iceberg/schema_evolution`.",
    )


def staging_session(subject: str, name: str, value: str, table_property: str) -> ConfigurationError:
    """A setting of the session stages the rows elsewhere."""
    return _cannot_write(
        subject,
        expected=f"a session without `{name}`, which puts the rows of a table with `{table_property}` elsewhere",
        found=repr(value),
        hint="unset it; to write a branch, name it by `iceberg/branch`.",
    )


def identifier_not_required(subject: str, name: str, field: Field | None) -> ConfigurationError:
    """An identifier field is missing in the table, or is optional there."""
    return _cannot_write(
        subject,
        expected=f"required columns of the table in `{IDENTIFIER_FIELDS}`",
        found=f"{name!r}, which {'it lacks' if field is None else 'may hold NULL'}",
        hint="leave the column out: a stored column cannot be made required; a table gets its required columns when it "
        "is created.",
    )


def older_format(subject: str, wanted: int, version: int) -> ConfigurationError:
    """The definition asks for an older format than the table's."""
    return _cannot_write(
        subject,
        expected=f"a table of format version {wanted} (`iceberg/format_version`)",
        found=f"version {version}",
        hint="leave the key out, or raise it: a table's format can be upgraded, never downgraded.",
    )


def other_location(subject: str, wanted: str, location: str) -> ConfigurationError:
    """The table has another location than the definition."""
    return _cannot_write(
        subject,
        expected=f"a table at {wanted} (`iceberg/location`)",
        found=f"one at {location}",
        hint="leave the key out, which only places new tables, or move the table.",
    )


def column_not_in_frame(subject: str, column: str, key: str, columns: Sequence[str]) -> ConfigurationError:
    """A metadata key names a column that does not exist."""
    return _cannot_write(
        subject,
        expected=f"the column {column!r} of `{key}`",
        found=f"a DataFrame with the columns {', '.join(columns)}",
    )


def tag_for_branch(subject: str, name: str) -> ConfigurationError:
    """The branch has the name of a tag."""
    return _cannot_write(
        subject,
        expected=f"a branch {name!r} (`iceberg/branch`)",
        found="a tag of that name, which stays where it is",
        hint="name another branch.",
    )


def loss_of_main(subject: str, branch: str, loss: TableUpdate) -> ConfigurationError:
    """A write to a branch would drop or rename a column of `main`."""
    return ConfigurationError.refusing(
        "change",
        subject,
        expected=f"a write that keeps the columns of `main`, to the branch {branch!r}",
        found=f"that it would {loss}",
        hint="write `main` that way first, or add the column: a table has one schema for all of its branches.",
    )


def branch_in_environment(subject: str, branch: str, environment: str) -> ConfigurationError:
    """An asset that names its branch is written in an environment."""
    return _cannot_write(
        subject,
        expected="an asset without `iceberg/branch`, because the environment has a branch of its own",
        found=f"`iceberg/branch`: {branch!r}, in the environment {environment!r}",
        hint="leave `iceberg/branch` out where `environment` is set.",
    )


def loss_before_release(subject: str, loss: TableUpdate) -> ConfigurationError:
    """A write whose rows a release publishes would drop or rename a column."""
    return ConfigurationError.refusing(
        "change",
        subject,
        expected="a write that keeps the columns of the table until a release publishes its rows",
        found=f"that it would {loss}",
        hint="materialize the asset once with `iceberg/publish`: `step`.",
    )


def outdated_branch(subject: str, branch: str, column: str, change: Literal["added", "renamed"]) -> ConfigurationError:
    """The branch's newest snapshot lacks a column that the write filters by, or has it under another name."""
    return _cannot_write(
        subject,
        expected=f"a branch {branch!r} whose newest snapshot has the column {column!r}",
        found=f"one from before the column was {change}",
        hint="append to the branch first, for example a DataFrame without rows: its next snapshot has the column.",
    )


def outdated_start(subject: str, branch: str, column: str, change: Literal["added", "renamed"]) -> ConfigurationError:
    """The snapshot that a staged branch starts at lacks a column that the write filters by, or names it otherwise."""
    return _cannot_write(
        subject,
        expected=f"a newest snapshot of {branch!r} that has the column {column!r}, for a staged write",
        found=f"one from before the column was {change}",
        hint=f"materialize the asset once without `{AUDITS}`: its next snapshot has the column.",
    )


def table_of_another(subject: str, asset_key: str | None, owner: str, former: str | None) -> TableOwnershipError:
    """Another asset owns the table. An op's output has no asset key."""
    if asset_key is None:
        hint = "write another table, or name this one by `iceberg/table` in the definition of the asset too."
    else:
        hint = (
            "give one of them another `schema`, or name the table by `iceberg/table` in both if they mean to share it. "
            f"If the asset was {owner!r} before, say so by `{TAKES_OVER}`."
        )
    return TableOwnershipError.refusing(
        "write",
        subject,
        expected="a table of no asset" if asset_key is None else f"a table of the asset {asset_key!r}",
        found=f"a table of the asset {owner!r}{f', not of {former!r}' if former else ''}",
        hint=hint,
    )


def change_of_a_shared_table(
    subject: str, asset_key: str | None, owner: str | None, others: Sequence[str], change: TableUpdate
) -> TableOwnershipError:
    """An asset would change a table that it shares with others."""
    return TableOwnershipError.refusing(
        "change",
        subject,
        expected=f"a change that suits the table's other assets too ({', '.join(map(repr, others))})",
        found=f"that {asset_key!r} would {change}",
        hint=f"define the table's layout in its owner, {owner!r}, and leave it out here. Columns of a table that "
        "several assets write are neither dropped nor renamed.",
    )


def validity_in_frame(subject: str, field: Field, *, may_be_given: bool) -> ConfigurationError:
    """The batch has a column that the merge fills."""
    wanted = f"a timestamp in {field.name!r}" if may_be_given else f"a DataFrame without the column {field.name!r}"
    return _cannot_merge(
        subject,
        expected=f"{wanted}, with which `{MERGE}` says when versions are valid",
        found=f"one of type {field.type}",
        hint="drop or cast it, or name other columns by `valid_from`, `valid_to` and `is_current`.",
    )


def needed_marker(subject: str, marker: str, key: str) -> ConfigurationError:
    """Another key needs the column that marks keys to delete."""
    return _cannot_merge(
        subject,
        expected=f"a column in `hard_delete` of `{MERGE}` that nothing else needs, because it is not stored",
        found=f"{marker!r}, which `{key}` names",
        hint="mark keys to delete by a column of its own.",
    )


def retires_other_partitions(subject: str) -> ConfigurationError:
    """A run of some partitions would end versions in all partitions."""
    return _cannot_merge(
        subject,
        expected=f"`retire` of `{MERGE}` as 'partitions' or 'never', for an asset whose runs own their partitions",
        found="'all'",
    )


def several_boundaries(subject: str, count: int) -> ConfigurationError:
    """The run does not have exactly one time partition at whose start versions could begin."""
    return _cannot_merge(
        subject,
        expected=f"a run of one time partition, at whose start the versions begin (`boundary` of `{MERGE}`)",
        found=f"{count} of them",
        hint="run one partition at a time, or give each row its begin in the column that `valid_from` names.",
    )


def late_boundary(subject: str, boundary: dt.datetime, known: str, snapshot_id: int) -> DataError:
    """The history already has versions that begin later."""
    return DataError.refusing(
        "merge into",
        subject,
        expected=f"a boundary not before {known}, that of snapshot {snapshot_id}",
        found=boundary.isoformat(),
        hint="let each row say when it begins, in the column that `valid_from` names: such rows may come late.",
    )
