"""What all catalogs share: their names, their choice by `kind`, and properties that no other field sets."""

from typing import Any, get_args

import pytest
from pydantic import TypeAdapter, ValidationError

from dagster_iceberg_spark import RestCatalog, SqlCatalog
from dagster_iceberg_spark.config.catalog import Catalog, make_directory
from dagster_iceberg_spark.config.catalogs import CatalogConfig
from dagster_iceberg_spark.errors import ConfigurationError

CATALOGS = get_args(get_args(CatalogConfig)[0])
REST = {"kind": "rest", "uri": "http://catalog:8181"}


def chosen(**fields: Any) -> Catalog:
    catalog: Catalog = TypeAdapter(CatalogConfig).validate_python(fields)
    return catalog


def test_each_kind_is_one_catalog() -> None:
    kinds = [catalog.model_fields["kind"].default for catalog in CATALOGS]
    assert len(set(kinds)) == len(CATALOGS) == 8


def test_the_kind_chooses_the_catalog() -> None:
    assert isinstance(chosen(**REST), RestCatalog)
    assert isinstance(chosen(kind="sql", uri="sqlite:////c.db", warehouse="/wh"), SqlCatalog)


def test_an_unknown_kind_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValidationError, match="'glue', 'hive', 'hadoop'"):
        chosen(kind="unity")


@pytest.mark.parametrize("name", ["", "a.b", "a b", "a/b", "a`b"])
def test_the_name_is_one_word_of_a_table_name(name: str) -> None:
    with pytest.raises((ConfigurationError, ValidationError), match="without dots, spaces, slashes and backticks"):
        chosen(**REST, name=name)


def test_properties_reach_both_engines() -> None:
    description = RestCatalog(uri="http://catalog:8181", properties={"a": "1"}).describe()
    assert description.spark_properties["a"] == description.pyiceberg_properties["a"] == "1"


def test_a_property_that_another_field_sets_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"expected properties that no other field sets, found 'uri'"):
        RestCatalog(uri="http://catalog:8181", properties={"uri": "http://other"}).describe()


def test_a_secret_among_the_properties_stays_hidden() -> None:
    description = RestCatalog(uri="http://catalog:8181", properties={"header.api-key": "s3cret"}).describe()
    assert description.spark_secrets["header.api-key"] == "s3cret"
    assert "s3cret" in description.secrets
    assert "s3cret" not in str(description.spark_properties)


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Any) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="that exists or can be created"):
        make_directory(tmp_path / "file" / "warehouse", "the warehouse")
