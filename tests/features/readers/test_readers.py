"""The engines that read a table: what they cannot read is avoided, refused, or named.

docs/readers.md: What is avoided, and what is refused; What is known
"""

import re
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.features.readers.plan import FEATURES, READERS
from dagster_iceberg_spark.features.readers.readable_keys import with_readers
from dagster_iceberg_spark.features.readers.unread_tables import check_readers
from tests.lakes import Lake, frame_asset, metadata_of

PAGE = Path(__file__).parents[3] / "docs" / "readers.md"
MODES = {f"write.{verb}.mode": "merge-on-read" for verb in ("delete", "update", "merge")}


def derived(readers: list[str], **keys: Any) -> dict[str, Any]:
    given = {f"iceberg/{key}": value for key, value in keys.items()}
    found = with_readers({"iceberg/readers": readers, **given})
    return {key.removeprefix("iceberg/"): value for key, value in found.items() if key != "iceberg/readers"}


def test_what_a_reader_cannot_read_is_avoided_where_there_is_a_choice() -> None:
    assert derived(["athena"])["format_version"] == 2
    assert derived(["athena"], format_version=1)["format_version"] == 1
    assert "format_version" not in derived(["snowflake", "spark"])
    assert derived(["spark"])["unread_types"] == ["timestamp_ns", "timestamptz_ns", "geometry", "geography"]
    assert "variant" in derived(["spark", "pyiceberg"])["unread_types"]
    assert derived(["athena"], unread_types=[])["unread_types"] == [], "the asset has the last word"


@pytest.mark.parametrize("place", [{"format_version": 3}, {"table_properties": {"format-version": "3"}}])
def test_what_the_asset_asks_for_is_refused_if_a_reader_cannot_read_it(place: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        derived(["spark", "athena"], **place)
    assert "found format version 3, and athena (engine 3) cannot read format 3" in str(caught.value)
    assert "remove athena from `iceberg/readers`" in str(caught.value)


def test_delete_files_are_avoided_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from dagster_iceberg_spark.features.readers import plan

    old = plan.Reader("1", frozenset(), "a test")
    monkeypatch.setattr(plan, "READERS", {**READERS, "old": old})
    monkeypatch.setattr("dagster_iceberg_spark.features.readers.options.READERS", plan.READERS)
    monkeypatch.setattr("dagster_iceberg_spark.features.readers.readable_keys.READERS", plan.READERS)
    assert derived(["old"], table_properties={"a": "b"})["table_properties"] == {
        "a": "b",
        **dict.fromkeys(MODES, "copy-on-write"),
    }
    with pytest.raises(
        ConfigurationError, match=r"the table property write\.delete\.mode, and old .* position deletes"
    ):
        derived(["old"], table_properties=MODES)


def test_the_page_has_the_facts() -> None:
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text(encoding="utf-8").splitlines() if " | " in line]
    header, *lines = [[cell.strip() for cell in row] for row in rows]
    assert header == ["engine", "since", *FEATURES, "source"]
    expected = [
        [f"`{name}`", item.since, *("yes" if each in item.reads else "no" for each in FEATURES), item.source]
        for name, item in READERS.items()
    ]
    assert lines == expected


@pytest.mark.spark
def test_tables_that_readers_cannot_read_are_refused_and_named(lake: Lake) -> None:
    options = {"iceberg/format_version": 3, "iceberg/table_properties": MODES}
    asset = frame_asset("t", "select explode(array(1, 2)) as id", metadata=options)
    lake.materialize(asset)
    lake.session.sql("delete from lake.db.t where id = 1")
    read = frame_asset("t", "select 1 as id", metadata={"iceberg/readers": ["athena", "trino"]})
    error = lake.failure(read)
    assert "expected a table of format version 2 (`iceberg/format_version`), found version 3" in str(error)
    (found,) = check_readers(dg.Definitions([read], resources=lake.resources))
    assert (found.outcome, found.found.split("; ")) == (
        "failed",
        [
            "format version 3: athena cannot read format 3",
            "rows that are deleted in delete files: athena cannot read deletion vectors",
        ],
    )
    (found,) = check_readers(
        dg.Definitions([frame_asset("t", "select 1", metadata={"iceberg/readers": "trino"})], resources=lake.resources)
    )
    assert (found.outcome, found.found) == ("ok", "trino can read the table")
    error = lake.failure(frame_asset("t", "select 1 as id", metadata={"iceberg/readers": ["hive"]}))
    assert re.search(r"expected some of athena, bigquery, .*, found .*hive", str(error))


@pytest.mark.spark
@pytest.mark.full
@pytest.mark.since("4.0")
@pytest.mark.each_engine
def test_variants_are_written_if_all_readers_read_them(lake: Lake) -> None:
    def asset(value: int, **options: Any) -> dg.AssetsDefinition:
        given = {f"iceberg/{key}": item for key, item in options.items()}
        return frame_asset("t", f"select {value} as id, parse_json('[{value}]') as v", metadata=given)

    error = lake.failure(asset(1, format_version=3))
    assert "found variant, which pyiceberg cannot read" in str(error)
    options = {"readers": ["spark", "snowflake"], "audits": {"known": "id > 0"}}
    error = lake.failure(asset(1, **options))
    assert "found variant, which needs `iceberg/format_version` 3" in str(error)
    assert not lake.exists("t")
    for value in (1, 2):
        result = lake.materialize(asset(value, **options, format_version=3))
        assert metadata_of(result, "t")["iceberg/publication"] == "fast-forward"
    rows = lake.session.sql("select id, variant_get(v, '$[0]', 'int') as a from lake.db.t").collect()
    assert [(row.id, row.a) for row in rows] == [(2, 2)]
    lake.materialize(asset(3, **options, write_disposition="merge", merge_keys=["id"]))
    assert lake.session.table("lake.db.t").count() == 2


def test_a_write_without_a_jvm_keeps_to_format_2(tmp_path: Path) -> None:
    from tests.core.arrow.writing import ArrowLake

    with dg.DagsterInstance.ephemeral() as instance:
        lake = ArrowLake(tmp_path, instance)
        lake.write(pa.table({"v": [1]}), metadata={"iceberg/readers": ["athena", "duckdb"]})
        assert lake.table().metadata.format_version == 2
