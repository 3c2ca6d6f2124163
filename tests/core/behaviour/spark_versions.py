"""The versions of Spark in docs/combinations.md: each test compares, or writes, its own cell."""

from collections.abc import Mapping
from typing import Final

from dagster_iceberg_spark.versions import SPARK_VERSIONS
from tests.combinations_page import PAGE

HEADING: Final = "## Versions of Spark"
REFUSED: Final = "refused"
ENGINES: Final = ("classic", "connect")
COLUMNS: Final = tuple(f"{version} {engine}" for version in SPARK_VERSIONS for engine in ENGINES)

FEATURES: Final = (
    "a partition is replaced, on a day of 23 hours",
    "rows of other partitions are carried over",
    "rows outside of the partition are refused",
    "append",
    "overwrite_partitions",
    "replace_where",
    "merge",
    "merge into a history (scd2)",
    "the lineage of each disposition",
    "columns are added and widened",
    "rows of PyArrow, pandas, polars",
    "inputs of each type",
    "audited rows are published",
    "several tables are released",
    "environments",
    "runs are undone",
    "runs are replayed",
    "incremental reads",
    "a resumed run finds its snapshot",
    "a killed run is executed again",
    "a cancelled run commits nothing",
)
"""The rows of the table, each with tests that have the mark `feature` with this name."""

NO_MERGE: Final = "the protocol of Spark Connect 3.5 has no checkpoints and no snapshot properties for MERGE"
REFUSALS: Final[Mapping[tuple[str, str], str]] = {
    ("3.5 connect", "merge"): NO_MERGE,
    ("3.5 connect", "merge into a history (scd2)"): NO_MERGE,
}
"""What the package refuses before it writes anything, and why: by column and feature."""

_INTRODUCTION: Final = f"""{HEADING}

The same tests run with each version of Spark, in a classic session and on a Spark Connect server. *Refused* means that
the package rejects such a write with a clear error before it writes anything. Older versions also lack:

- **Spark 4.0 and 3.5**: over Spark Connect, the metadata lacks the counts of carried over and of dropped rows. The
  number of merged rows is counted by the package, not by Spark.
- **Spark 3.5**: no VARIANT and no collations. A Connect session has `pyspark.sql.connect.dataframe.DataFrame` frames,
  which an input's annotation has to name, and reports no progress. `overwrite_partitions` over Connect needs a table
  with a single partition spec, and Arrow rows of more than 16 MB need a classic session.
"""


def section(cells: Mapping[tuple[str, str], str]) -> str:
    """Return the section, with the cells by column and feature."""
    reasons = list(dict.fromkeys(REFUSALS.values()))

    def cell(column: str, feature: str) -> str:
        text = cells.get((column, feature), "")
        reason = REFUSALS.get((column, feature))
        return f"{text} ({reasons.index(reason) + 1})" if text == REFUSED and reason else text

    head = [f"| feature | {' | '.join(COLUMNS)} |", f"|---|{'---|' * len(COLUMNS)}"]
    rows = [f"| {feature} | {' | '.join(cell(column, feature) for column in COLUMNS)} |" for feature in FEATURES]
    notes = [f"{number}. {reason}" for number, reason in enumerate(reasons, 1)]
    return "\n".join([_INTRODUCTION, *head, *rows, "", *notes, ""])


def written_cells(page: str) -> dict[tuple[str, str], str]:
    """Return the cells of the section that the page has."""
    cells: dict[tuple[str, str], str] = {}
    for line in page.partition(HEADING)[2].splitlines():
        feature, *texts = [text.strip() for text in line.strip("|").split("|")]
        if feature in FEATURES:
            cells |= {(column, feature): text.partition(" (")[0] for column, text in zip(COLUMNS, texts, strict=True)}
    return cells


def cell_of(place: tuple[str, str]) -> str:
    """Return the cell of a feature whose test has passed."""
    return REFUSED if place in REFUSALS else "yes"


def page_with(results: Mapping[tuple[str, str], bool]) -> str:
    """Return the page with this version's columns as they were seen.

    Args:
        results: Whether the tests have passed, by column and feature.
    """
    page = PAGE.read_text(encoding="utf-8")
    seen = {at: cell_of(at) if has_passed else "**no**" for at, has_passed in results.items()}
    return f"{page.partition(HEADING)[0].rstrip()}\n\n{section({**written_cells(page), **seen})}"
