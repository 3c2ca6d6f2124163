"""Names of tables."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_iceberg_spark.table.identifier import TableIdentifier, quote_part, split_parts

PARTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("nyc.flights", ("nyc", "flights")),
        ("a.b.c", ("a", "b", "c")),
        ("`a.b`.c", ("a.b", "c")),
        ("a.`b``c`", ("a", "b`c")),
        ("a b.ü-c", ("a b", "ü-c")),
        ("one", ("one",)),
    ],
)
def test_a_dotted_name_is_split_outside_backticks(text: str, parts: tuple[str, ...]) -> None:
    assert split_parts(text) == parts


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b", "`a", "a`b", "``", "a.``", "`a`b", "a.b`"])
def test_an_empty_part_or_an_open_backtick_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^expected (names|a dot|a name)"):
        split_parts(text)


def test_a_table_needs_a_namespace() -> None:
    with pytest.raises(ValueError, match=r"expected `namespace\.table`, found 'flights'"):
        TableIdentifier.parse("flights")


def test_the_last_part_is_the_table() -> None:
    assert TableIdentifier.parse("a.`b.c`.d") == TableIdentifier(("a", "b.c"), "d")


@given(st.lists(PARTS, min_size=2, max_size=4))
def test_every_name_round_trips_as_text(parts: list[str]) -> None:
    identifier = TableIdentifier(tuple(parts[:-1]), parts[-1])
    assert TableIdentifier.parse(str(identifier)) == identifier
    assert identifier.parts == tuple(parts)


@pytest.mark.parametrize(
    ("part", "quoted"), [("flights", "flights"), ("a b", "`a b`"), ("a`b", "`a``b`"), ("ü1", "ü1")]
)
def test_only_parts_that_need_it_are_quoted(part: str, quoted: str) -> None:
    assert quote_part(part) == quoted
