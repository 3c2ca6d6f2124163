"""What a write to a branch leaves to `main`: a table has one schema for all of its branches."""

from collections.abc import Iterable, Sequence

from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.plan.options import WriteOptions
from dagster_iceberg_spark.plan.renames import lost_columns
from dagster_iceberg_spark.table.snapshot import MAIN_BRANCH, TableState
from dagster_iceberg_spark.table.updates import CreateBranch, TableUpdate


def new_branch(options: WriteOptions, state: TableState | None) -> tuple[TableUpdate, ...]:
    """Return what creates the branch, if it is not there."""
    is_there = options.branch == MAIN_BRANCH or (state is not None and options.branch in state.refs)
    return () if is_there else (CreateBranch(options.branch),)


def refuse_losses_of_main(
    options: WriteOptions, state: TableState, after: Sequence[TableUpdate], *, subject: str
) -> None:
    """Refuse what a write to another branch would take from the readers of `main`.

    Raises:
        ConfigurationError: A column would be dropped or renamed.
    """
    if options.branch == MAIN_BRANCH:
        return
    losses = lost_columns(options.renames, state.schema, after, subject=subject)
    if losses:
        raise ConfigurationError.refusing(
            "change",
            subject,
            expected=f"what leaves the columns of `main` alone in a write to the branch {options.branch!r}",
            found=f"that it would {losses[0]}",
            hint="a table has one schema for all of its branches: write `main` that way first, or add the column.",
        )


def refuse_outdated_branch(
    options: WriteOptions, state: TableState | None, columns: Iterable[str], *, subject: str
) -> None:
    """Refuse to look for rows of a branch by columns that its newest snapshot calls otherwise, or has not got.

    Iceberg 1.12 looks for a filter's columns in the schema of a branch's newest snapshot ("Cannot find field").

    Args:
        options: What the definition asks for.
        state: The table.
        columns: The columns that the write filters stored rows by.
        subject: The table, for the message.

    Raises:
        ConfigurationError: Names the column.
    """
    head = None if state is None or options.branch == MAIN_BRANCH else state.head(options.branch)
    stored = None if state is None or head is None or head.schema_id is None else state.schemas.get(head.schema_id)
    if state is None or stored is None:
        return
    held = {field.field_id: field.name for field in stored}
    for name in columns:
        field = state.schema.field(name)
        if field is not None and held.get(field.field_id) != field.name:
            raise ConfigurationError.refusing(
                "write",
                subject,
                expected=f"a branch {options.branch!r} whose newest snapshot has the column {field.name!r}",
                found="one from before the column was " + ("added" if field.field_id not in held else "renamed"),
                hint="append to the branch first, a DataFrame without rows will do: its next snapshot has the column.",
            )
