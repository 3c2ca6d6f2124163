"""What commands print."""

import pytest
from click.testing import CliRunner

from dagster_iceberg_spark.cli import terminal


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("plain ünï\ttext\nof two lines", "plain ünï\ttext\nof two lines"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x9b31m\x7f", "\\x9b31m\\x7f"),
        ("a\rb", "a\\rb"),
        ("\u202eevil", "\\u202eevil"),
    ],
)
def test_no_text_steers_the_terminal(text: str, printed: str, capsys: pytest.CaptureFixture[str]) -> None:
    terminal.say(text)
    assert capsys.readouterr().out == f"{printed}\n"


def test_cells_are_neither_markup_nor_steer_the_terminal() -> None:
    with CliRunner().isolation() as (out, *_):
        terminal.print_table(["name"], [["[bold]x[/]\x1b[2J"]], empty="")
        assert out.getvalue().decode().split() == ["name", "[bold]x[/]\\x1b[2J"]
