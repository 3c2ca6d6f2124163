"""What a contract demands, without an engine.

docs/contracts.md: What the contract becomes
"""

from typing import Any

import pytest

from dagster_iceberg_spark.features.contracts.options import ContractOptions
from dagster_iceberg_spark.features.contracts.plan import (
    UnheldError,
    age_of,
    audits_of_column,
    audits_of_rules,
    type_of,
)
from dagster_iceberg_spark.plan.options.metadata_key import read_metadata
from dagster_iceberg_spark.plan.options.output_options import parse_audits
from dagster_iceberg_spark.table.schema import parse_type


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ({"logicalType": "integer"}, "long"),
        ({"logicalType": "integer", "physicalType": "INT"}, "int"),
        ({"logicalType": "number"}, "double"),
        ({"logicalType": "number", "physicalType": "decimal(9,2)"}, "decimal(9, 2)"),
        ({"logicalType": "string", "physicalType": "VARCHAR(20)"}, "string"),
        ({"logicalType": "string", "physicalType": "SOMETHING"}, "string"),
        ({"logicalType": "timestamp"}, "timestamptz"),
        ({"logicalType": "timestamp", "logicalTypeOptions": {"timezone": False}}, "timestamp"),
        ({"physicalType": "bigint"}, "long"),
        ({"logicalType": "array", "items": {"logicalType": "date"}}, "list<date>"),
        ({"logicalType": "vector"}, "list<double>"),
        ({"logicalType": "object", "properties": [{"name": "a", "logicalType": "boolean"}]}, "struct<a: boolean>"),
        (
            {"logicalType": "map", "map": {"key": {"logicalType": "string"}, "value": {"logicalType": "integer"}}},
            "map<string, long>",
        ),
    ],
)
def test_types(column: dict[str, Any], expected: str) -> None:
    assert str(parse_type(type_of(column))) == expected


@pytest.mark.parametrize("column", [{}, {"logicalType": "time"}, {"physicalType": "money"}, {"logicalType": "array"}])
def test_types_that_are_refused(column: dict[str, Any]) -> None:
    with pytest.raises(UnheldError, match="where one of the logicalTypes"):
        type_of(column)


@pytest.mark.parametrize("nested", [{"logicalType": "date"}, {"name": "", "logicalType": "date"}])
def test_a_property_of_an_object_needs_a_name(nested: dict[str, Any]) -> None:
    with pytest.raises(UnheldError, match="a property without a name"):
        type_of({"logicalType": "array", "items": {"logicalType": "object", "properties": [nested]}})


@pytest.mark.parametrize(
    ("column", "unheld"),
    [
        ({"enum": [{"value": 1}, {"description": "none"}]}, "an entry of enum without a value"),
        ({"quality": [{"metric": "rowCount", "mustBeBetween": [1]}]}, "mustBeBetween has 1 bounds"),
    ],
)
def test_what_lacks_its_value_is_listed(column: dict[str, Any], unheld: str) -> None:
    with pytest.raises(UnheldError, match=unheld):
        dict(audits_of_column("a", column))


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ({"unique": True}, {"a_b_unique": {"unique": ["a b"]}}),
        (
            {"logicalTypeOptions": {"minimum": 0, "exclusiveMaximum": 9.5, "timezone": True}},
            {"a_b_minimum": "`a b` IS NULL OR `a b` >= 0", "a_b_exclusiveMaximum": "`a b` IS NULL OR `a b` < 9.5"},
        ),
        ({"logicalTypeOptions": {"pattern": "^it's"}}, {"a_b_pattern": r"`a b` IS NULL OR `a b` RLIKE '^it\'s'"}),
        ({"enum": [{"value": 1}, {"value": "x"}]}, {"a_b_enum": "`a b` IS NULL OR `a b` IN (1, 'x')"}),
        (
            {"quality": [{"metric": "nullValues", "mustBe": 0}]},
            {"a_b_nullValues": {"not_null": ["a b"], "severity": "error"}},
        ),
        (
            {"quality": [{"rule": "nullValues", "mustBeLessOrEqualTo": 5, "unit": "percent", "severity": "warning"}]},
            {
                "a_b_nullValues": {
                    "condition": "coalesce(100.0 * count_if(`a b` IS NULL) / nullif(count(*), 0), 0) <= 5",
                    "severity": "warn",
                }
            },
        ),
        (
            {
                "quality": [
                    {
                        "name": "few",
                        "metric": "missingValues",
                        "mustBeLessThan": 2,
                        "arguments": {"missingValues": ["", None]},
                    }
                ]
            },
            {"a_b_few": {"condition": "count_if(`a b` IS NULL OR `a b` IN ('')) < 2", "severity": "error"}},
        ),
        (
            {"quality": [{"metric": "invalidValues", "mustBe": 0, "arguments": {"validValues": ["x"]}}]},
            {"a_b_invalidValues": {"condition": "count_if(NOT (`a b` IN ('x'))) = 0", "severity": "error"}},
        ),
        (
            {"quality": [{"metric": "duplicateValues", "mustBeBetween": [0, 3]}]},
            {
                "a_b_duplicateValues": {
                    "condition": "(count(*) - count(DISTINCT `a b`)) BETWEEN 0 AND 3",
                    "severity": "error",
                }
            },
        ),
    ],
)
def test_audits_of_a_column(column: dict[str, Any], expected: dict[str, Any]) -> None:
    audits = dict(audits_of_column("a b", column))
    assert audits == expected
    assert len(parse_audits(audits)) == len(expected)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"type": "sql", "query": "select 1", "mustBe": 0, "name": "sums"}, "the quality rule sums: its type is sql"),
        ({"type": "text", "description": "be good"}, "the quality rule 1: its type is text"),
        ({"metric": "rowCount"}, "it has no bound"),
        ({"metric": "median", "mustBe": 1}, "the metric median is unknown here"),
        ({"metric": "invalidValues", "mustBe": 0}, "the metric invalidValues is unknown here"),
    ],
)
def test_what_cannot_be_held_is_named_and_the_rest_is_kept(rule: dict[str, Any], message: str) -> None:
    found: list[tuple[str, Any]] = []
    with pytest.raises(UnheldError, match=message):
        found.extend(audits_of_rules("t", ["a"], [rule, {"metric": "nullValues", "mustBe": 0}], []))
    rules = audits_of_rules("t", ["a"], [rule, {"metric": "nullValues", "mustBe": 0}], [])
    assert next(rules)[0] == "t_nullValues"


def test_relationships_and_unknown_options_are_named() -> None:
    column = {"relationships": [{"to": "other.id"}], "logicalTypeOptions": {"format": "email"}}
    with pytest.raises(UnheldError, match="the option format; relationships"):
        list(audits_of_column("a", column))


@pytest.mark.parametrize(
    ("levels", "age", "unheld"),
    [
        ([], None, []),
        ([{"property": "freshness", "value": 30, "unit": "h"}], "1800 minutes", []),
        ([{"property": "latency", "value": 1.5, "unit": "days"}], "2160 minutes", []),
        ([{"property": "latency", "value": 2}], "2880 minutes", []),
        ([{"property": "latency", "value": 2, "unit": "y"}], None, ["the service level latency"]),
        ([{"property": "retention", "value": 3, "unit": "y"}], None, ["the service level retention"]),
    ],
)
def test_service_levels(levels: list[dict[str, Any]], age: str | None, unheld: list[str]) -> None:
    assert age_of(levels) == (age, unheld)


@pytest.mark.parametrize("value", ["orders", "orders 2", ">= 2", "orders >= two", ["orders >= 2", 1]])
def test_requirements_that_are_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="`iceberg/requires` of a"):
        read_metadata(ContractOptions, {"iceberg/requires": value}, subject="a")


def test_requirements() -> None:
    options = read_metadata(ContractOptions, {"iceberg/requires": "orders >= 2, < 3"}, subject="a")
    assert [str(item) for item in options.requires] == ["orders >= 2, < 3"]
