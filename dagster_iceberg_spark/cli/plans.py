"""Plans of commands that change tables. A plan has an id over everything that it saw, and is applied by this id."""

import datetime as dt
import hashlib
import json
import re
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from dagster import Definitions

    from dagster_iceberg_spark.table.snapshot import TableState

_ID: Final = re.compile(r"(?P<ms>[0-9a-f]{11})-[0-9a-f]{12}")
_LONGEST: Final = dt.timedelta(days=1)
"""The age after which a plan is made again: what has expired since would be left out."""


def plan_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that print a plan with an id, and that apply it."""
    given = click.option("--apply", "applied", metavar="ID", help="Do what the plan of this id says, if nothing moved.")
    return click.option("--plan", "is_plan", is_flag=True, help="Print the plan with its id, and change nothing.")(
        given(command)
    )


def instant_of(applied: str | None, *, changes_nothing: bool) -> dt.datetime:
    """Return when the plan of an id was made, or now for a new plan.

    Args:
        applied: The id of the plan that is applied, or None.
        changes_nothing: Whether another option says that nothing is changed.

    Raises:
        click.UsageError: The text is no id of a plan, or the plan is too old, or the options contradict each other.
    """
    if applied is not None and changes_nothing:
        raise click.UsageError("--apply changes tables: leave out --plan and --dry-run.")
    now = _of_ms(time.time_ns() // 1_000_000)
    if applied is None:
        return now
    found = _ID.fullmatch(applied)
    if found is None:
        raise click.UsageError(f"Expected the id of a plan, such as 19acf1b3a40-0c5e2b1f9a7d, found {applied!r}.")
    made_at = _of_ms(int(found["ms"], 16))
    if not now - _LONGEST <= made_at <= now:
        made = f"{made_at:%Y-%m-%d %H:%M} UTC"
        raise click.UsageError(f"The plan {applied} was made at {made}, which is too long ago: make another by --plan.")
    return made_at


def _of_ms(milliseconds_since_1970: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(0, dt.timezone.utc) + dt.timedelta(milliseconds=milliseconds_since_1970)


def plan_id(document: Any, states: Iterable["TableState"], made_at: dt.datetime) -> str:
    """Return the id of a plan.

    Args:
        document: What the plan says, for JSON.
        states: The tables that the plan is about, as they were looked at.
        made_at: When the plan was made, to the millisecond.
    """
    seen = [document, *sorted((_facts(state) for state in states), key=lambda facts: facts["table"])]
    digest = hashlib.sha256(json.dumps(seen, sort_keys=True, default=str).encode()).hexdigest()
    return f"{round(made_at.timestamp() * 1000):011x}-{digest[:12]}"


def _facts(state: "TableState") -> dict[str, Any]:
    """Return what another plan may follow from, if it changes."""
    return {
        "table": str(state.identifier),
        "uuid": state.uuid,
        "refs": dict(state.refs),
        "retention": {name: repr(kept) for name, kept in state.retention.items()},
        "schema": state.schema.schema_id,
        "spec": state.default_spec_id,
        "properties": dict(state.properties),
    }


def require_same(found: str, applied: str) -> None:
    """Reject a plan that has become another one.

    Raises:
        click.UsageError: The plan, or a table that it is about, is not as it was.
    """
    if found != applied:
        raise click.UsageError(
            f"Cannot apply the plan {applied}: expected the tables and the plan as they were, found the plan {found}. "
            "Nothing was changed. Hint: look at the new plan by --plan."
        )


def states_of(definitions: "Definitions", names: Iterable[str]) -> list["TableState"]:
    """Return the states of tables of a code location, by their names."""
    from dagster_iceberg_spark.assets.stored_tables import stored_tables

    wanted = set(names)
    with stored_tables(definitions, action="plan changes of") as tables:
        return [table.state for table in tables if str(table.state.identifier) in wanted]
