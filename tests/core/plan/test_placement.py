"""Directories of new tables."""

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.plan.write.placement import LocationTemplate, default_location
from dagster_iceberg_spark.table.identifier import TableIdentifier

PLAIN = TableIdentifier(("nyc",), "flights")
NESTED = TableIdentifier(("nyc", "raw"), "flights")


@pytest.mark.parametrize(
    ("template", "identifier", "location"),
    [
        ("s3://lake/{namespace}/{table}", PLAIN, "s3://lake/nyc/flights"),
        ("s3://lake/{namespace}/{table}", NESTED, "s3://lake/nyc/raw/flights"),
        ("/data/{namespace}/of/{table}", PLAIN, "/data/nyc/of/flights"),
        ("iceberg/{namespace}/{table}_v2", PLAIN, "s3://wh/iceberg/nyc/flights_v2"),
    ],
)
def test_a_template_is_filled_in(template: str, identifier: TableIdentifier, location: str) -> None:
    assert LocationTemplate(template).location_of(identifier, "s3://wh/") == location


def test_tables_with_unusual_names_keep_directories_of_their_own() -> None:
    template = LocationTemplate("s3://lake/{namespace}/{table}")
    names = ["a#b", "a?b", "a/b", "a b"]
    locations = {template.location_of(TableIdentifier(("nyc",), name), None) for name in names}
    assert len(locations) == len(names)
    assert all(location.startswith("s3://lake/nyc/a_b-") for location in locations)


@pytest.mark.parametrize(
    "template",
    [
        "s3://lake/{table}",
        "s3://lake/{namespace}",
        "{namespace}/{table}/{run}",
        "{namespace}_{table}",
        "{table}/{namespace}",
        "{namespace}/{namespace}/{table}",
        "{namespace!r}/{table}",
        "{namespace}/{table:>9}",
        "{",
        "",
    ],
)
def test_a_template_that_could_place_two_tables_in_one_directory_is_refused(template: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        LocationTemplate(template)
    expected = "Cannot place tables by `table_location`: expected a template with `{namespace}`, a slash and `{table}`"
    assert str(caught.value).startswith(expected)
    assert str(caught.value).endswith(f"found {template!r}.")


def test_a_relative_template_needs_a_warehouse() -> None:
    with pytest.raises(ConfigurationError, match="begins with the scheme"):
        LocationTemplate("{namespace}/{table}").location_of(PLAIN, None)


@pytest.mark.parametrize(
    ("identifier", "warehouse", "location"),
    [
        (PLAIN, "s3://wh", None),
        (TableIdentifier(("nyc",), "a#b"), None, None),
        (TableIdentifier(("ny c",), "flights"), "s3://wh", "s3://wh/ny_c/flights-3ae2ae4d70f0"),
    ],
)
def test_the_catalog_places_tables_except_those_with_harmful_names(
    identifier: TableIdentifier, warehouse: str | None, location: str | None
) -> None:
    found = default_location(identifier, warehouse)
    assert found == location if location is None else str(found).startswith(location.rsplit("-")[0])


@pytest.mark.parametrize("sign", ["#", "?"])
def test_pyiceberg_still_truncates_a_path_at_this_character(sign: str) -> None:
    assert PyArrowFileIO.parse_location(f"s3://lake/db/t{sign}1/data")[2] == "lake/db/t"
