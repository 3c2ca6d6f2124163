"""Rules for writes to a branch. A table has one schema for all of its branches, `main` included."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Literal

from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.plan.options.output_options import AUDITS, WriteOptions
from dagster_iceberg_spark.plan.schema.renames import lost_columns
from dagster_iceberg_spark.plan.write.write_request import TableRequest
from dagster_iceberg_spark.table.snapshot import MAIN_BRANCH, TableState
from dagster_iceberg_spark.table.updates import CreateBranch, TableUpdate


def new_branch(request: TableRequest, state: TableState | None) -> tuple[TableUpdate, ...]:
    """Return the update that creates the branch that the rows are published to, if it does not exist."""
    branch, retention_days = request.options.branch, request.target.retention_days
    exists = branch == MAIN_BRANCH or (state is not None and branch in state.refs)
    if exists:
        return ()
    if retention_days is None:
        return (CreateBranch(branch),)
    # Its first snapshots are needed to compare and to promote it.
    return (CreateBranch(branch, retention_days=retention_days, keeps_snapshots=True),)


def refuse_losses_of_main(
    options: WriteOptions, state: TableState, after: Sequence[TableUpdate], *, subject: str
) -> None:
    """Reject a write that would drop or rename columns of the readers of `main`, who do not see its rows yet."""
    refused = partial(ConfigurationError.refusing, "change", subject)
    if options.branch == MAIN_BRANCH and options.publish == "step":
        return
    losses = lost_columns(options.renames, state.schema, after, subject=subject)
    if losses and options.branch == MAIN_BRANCH:
        raise refused(
            expected="a write that keeps the columns of the table until a release publishes its rows",
            found=f"that it would {losses[0]}",
            hint="materialize the asset once with `iceberg/publish`: `step`.",
        )
    if losses:
        raise refused(
            expected=f"a write that keeps the columns of `main`, to the branch {options.branch!r}",
            found=f"that it would {losses[0]}",
            hint="write `main` that way first, or add the column: a table has one schema for all of its branches.",
        )


def refuse_outdated_branch(
    request: TableRequest, state: TableState | None, columns: Iterable[str], *, subject: str
) -> None:
    """Reject a write to a branch that filters by a column which the branch's newest snapshot lacks or names otherwise.

    Iceberg 1.12 resolves the columns of a filter in the schema of the branch's newest snapshot ("Cannot find field").
    """
    branch = request.branch
    head = None if state is None or branch == MAIN_BRANCH else state.head(branch)
    stored = None if state is None or head is None or head.schema_id is None else state.schemas.get(head.schema_id)
    if state is None or stored is None:
        return
    held = {field.field_id: field.name for field in stored}
    for name in columns:
        field = state.schema.field(name)
        if field is not None and held.get(field.field_id) != field.name:
            change: Literal["added", "renamed"] = "renamed" if field.field_id in held else "added"
            staging, column = request.staging, f"the column {field.name!r}"
            expected = f"a branch {branch!r} whose newest snapshot has {column}"
            hint = "append to the branch first, for example a DataFrame without rows: its next snapshot has the column."
            if staging is not None:
                expected = f"a newest snapshot of {staging.target!r} that has {column}, for a staged write"
                hint = f"materialize the asset once without `{AUDITS}`: its next snapshot has the column."
            found = f"one from before the column was {change}"
            raise ConfigurationError.refusing("write", subject, expected=expected, found=found, hint=hint)
