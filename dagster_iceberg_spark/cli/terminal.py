"""What commands print. Texts from tables and catalogs cannot steer the terminal."""

import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    import datetime as dt

_TEXT_WIDTH: Final = 120
"""Characters in a line if the output is not a terminal."""
_CONTROLS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Characters that steer a terminal, or turn the direction of a text (UAX #9, "Directional Formatting Characters")."""


def printable(text: str) -> str:
    """Return the text with each character that would steer a terminal in the notation of Python."""
    return _CONTROLS.sub(lambda found: repr(found[0])[1:-1], text)


def say(text: str, *, err: bool = False) -> None:
    """Print a text."""
    click.echo(printable(text), err=err)


def open_console(*, stderr: bool = False) -> Console:
    """Return the console of a command."""
    return Console(stderr=stderr, width=None if sys.stdout.isatty() else _TEXT_WIDTH, highlight=False)


def shown(text: Any) -> str:
    """Return a text for the console, which reads markup."""
    return escape(printable(str(text)))


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, empty: str, numbers: Sequence[str] = ()
) -> None:
    """Print rows of text, or a sentence if there are none. The columns of numbers are aligned to the right."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, overflow="fold", justify="right" if column in numbers else "left")
    for row in rows:
        table.add_row(*map(shown, row))
    open_console().print(table if rows else empty)


def minute(instant: "dt.datetime | None") -> str:
    """Return an instant up to its minute, or an empty text."""
    return "" if instant is None else f"{instant:%Y-%m-%d %H:%M}"
