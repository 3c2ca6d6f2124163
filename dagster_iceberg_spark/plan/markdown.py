"""Markdown that Dagster's UI and reviews show."""

import re
from collections.abc import Iterable, Sequence
from typing import Final

_MARKUP: Final = re.compile(r"[\\\[\]<>&`]|://")
"""Characters that begin a link, an image, an element or an entity in Markdown. A backslash escapes them."""

_RUN_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def escaped(text: str) -> str:
    """Return a text whose markup is escaped, so that it cannot become a link, an image or an element."""
    return _MARKUP.sub(r"\\\g<0>", text)


def cell(text: str) -> str:
    """Return a text for a cell of a table, with its markup escaped."""
    return " ".join(escaped(text).replace("|", r"\|").split())


def run_link(run_id: str | None) -> str | None:
    """Return a link to a run in Dagster's UI, or None. Anyone may have written what is not the id of a run."""
    is_run = run_id is not None and _RUN_ID.fullmatch(run_id)
    return f"[{run_id[:8]}](/runs/{run_id})" if run_id and is_run else None


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table. Its cells are Markdown."""
    head = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    return "\n".join([*head, *(f"| {' | '.join(row)} |" for row in rows)])
