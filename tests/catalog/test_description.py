"""A catalog described once."""

from dagster_iceberg_spark.catalog.description import CatalogDescription

SECRETIVE = CatalogDescription(
    name="lake",
    kind="REST catalog",
    endpoint="http://h",
    spark_properties={"type": "rest"},
    spark_secrets={"token": "hunter2"},
    pyiceberg_properties={"type": "rest", "token": "hunter2"},
    secrets=("hunter2", "a.b*", "xy"),
)


def test_no_text_of_a_description_shows_a_secret() -> None:
    assert "hunter2" not in repr(SECRETIVE) + str(SECRETIVE)
    assert str(SECRETIVE) == "REST catalog 'lake' at http://h"


def test_secrets_are_removed_as_they_are_and_short_ones_are_left() -> None:
    assert SECRETIVE.redact("hunter2 hunter2") == "******** ********"
    assert SECRETIVE.redact("a.b* aXbb xy") == "******** aXbb xy"


def test_a_description_is_told_apart_by_its_secrets_too() -> None:
    other = CatalogDescription(
        "lake", "REST catalog", "http://h", {"type": "rest"}, {"token": "other"}, {"type": "rest"}
    )
    assert other.identity != SECRETIVE.identity
