"""A metadata key is defined once: its name, its values, how they are parsed, and its default."""

from collections.abc import Mapping
from typing import Any, Literal

import pytest

from dagster_iceberg_spark.errors import MetadataKeyError
from dagster_iceberg_spark.plan.options.metadata_key import (
    Options,
    key,
    keys_of,
    parse_options,
    read_metadata,
    string_map,
    text,
    unknown_keys,
)
from dagster_iceberg_spark.table.identifier import NotationError


class Journey(Options):
    mode: Literal["fast", "slow"] = key("`fast` or `slow`", default="fast", is_configurable=True)
    owner: str | None = key("a person", text, name="owner", expected="the name of a person", is_addressing=True)
    tags: Mapping[str, str] = key("tags", string_map, default=dict)


def test_a_key_is_named_after_its_field_unless_it_has_a_name() -> None:
    assert [(item.name, item.option) for item in keys_of(Journey)] == [
        ("iceberg/mode", "mode"),
        ("owner", "owner"),
        ("iceberg/tags", "tags"),
    ]


@pytest.mark.parametrize("metadata", [{}, {"iceberg/mode": None, "owner": None, "another": 1}])
def test_a_missing_key_has_its_default(metadata: dict[str, Any]) -> None:
    assert read_metadata(Journey, metadata, subject="a") == Journey()


def test_each_value_is_parsed() -> None:
    metadata = {"iceberg/mode": "slow", "owner": "me", "iceberg/tags": {"size": 3}}
    assert read_metadata(Journey, metadata, subject="a") == Journey(mode="slow", owner="me", tags={"size": "3"})


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (
            {"iceberg/mode": "slowly"},
            "Cannot use `iceberg/mode` of a: expected one of fast, slow, found 'slowly'. Hint: did you mean 'slow'?",
        ),
        ({"iceberg/mode": "x"}, "Cannot use `iceberg/mode` of a: expected one of fast, slow, found 'x'."),
        ({"owner": 3}, "Cannot use `owner` of a: expected the name of a person, found 3."),
        ({"iceberg/tags": []}, "Cannot use `iceberg/tags` of a: expected tags, found [], which is not a dict."),
    ],
)
def test_an_invalid_value_is_refused(metadata: dict[str, Any], message: str) -> None:
    with pytest.raises(MetadataKeyError) as caught:
        read_metadata(Journey, metadata, subject="a")
    assert str(caught.value) == message


def test_only_prefixed_keys_can_be_unknown() -> None:
    known = {item.name: item for item in keys_of(Journey)}
    found = dict(unknown_keys({"iceberg/mod": 1, "iceberg/zzz": 1, "mod": 1, "iceberg/tags": 1}, known))
    assert found == {
        "iceberg/mod": "did you mean `iceberg/mode`?",
        "iceberg/zzz": "the keys are iceberg/mode, owner, iceberg/tags.",
    }


class Stop(Options):
    at: str
    is_short: bool = False


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("Rome", "expected a stop, found 'Rome'"),
        ({"at": "Rome", "is_shor": True}, "expected one of the options at, is_short, found 'is_shor'"),
        ({"at": "Rome", "is_short": "no"}, "expected true or false for `is_short`, found 'no'"),
        ({"at": None}, "expected a value for `at`, found none"),
        ({"at": 3}, "expected a valid value (Input should be a valid string) for `at`, found 3"),
        ({3: 3, "at": "Rome"}, "expected one of the options at, is_short, found '3'"),
    ],
)
def test_options_inside_a_value_are_refused_by_their_names(given: Any, message: str) -> None:
    with pytest.raises(NotationError) as caught:
        parse_options(Stop, given, expected="a stop")
    assert str(caught.value) == message
