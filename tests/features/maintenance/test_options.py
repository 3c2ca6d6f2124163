"""The settings of maintenance in the metadata of an asset.

docs/maintenance.md: What is done, and when
"""

import datetime as dt
from typing import Any

import pytest

from dagster_iceberg_spark.errors import ConfigurationError, MetadataKeyError
from dagster_iceberg_spark.features.maintenance.options import MaintenanceOptions, MaintenancePolicy, parse_maintenance
from dagster_iceberg_spark.metadata import metadata_for_table
from dagster_iceberg_spark.plan.options.metadata_key import duration, duration_text, read_metadata


def test_settings_override_the_policy() -> None:
    settings = parse_maintenance({"older_than": "30 days", "retain_last": 3, "zorder_by": ["a", "b"], "compact": False})
    assert settings is not None
    policy = MaintenancePolicy(delete_ratio=0.1).overridden_by(settings)
    assert (policy.older_than, policy.retain_last, policy.zorder_by) == (dt.timedelta(days=30), 3, ("a", "b"))
    assert (policy.compact, policy.delete_ratio) == (False, 0.1)
    assert parse_maintenance(False) is None


@pytest.mark.parametrize("share", [0.01, 0.5, 1])
def test_a_share_is_above_0_and_up_to_1(share: float) -> None:
    settings = parse_maintenance({"delete_ratio": share})
    assert settings is not None
    assert MaintenancePolicy().overridden_by(settings).delete_ratio == share


OUT_OF_RANGE = [
    ({"older_than": "soon"}, "expected a duration, such as `12 hours` or `7 days`", "found 'soon'"),
    ({"older_than": -dt.timedelta(1)}, "expected a duration that is not negative", "found datetime.timedelta(days=-1)"),
    ({"retain_last": 0}, "expected a whole number of at least 1", "found 0"),
    ({"retain_last": True}, "expected a whole number of at least 1", "found True"),
    ({"target_file_bytes": "1"}, "expected a whole number of at least 1", "found '1'"),
    ({"delete_ratio": 0}, "expected a share above 0 and up to 1", "found 0"),
    ({"delete_ratio": 30}, "expected a share above 0 and up to 1", "found 30"),
    ({"compact": "no"}, "expected true or false", "found 'no'"),
    ({"zorder_by": 1}, "expected a list of columns", "found 1, which is not a list"),
    (
        {"orphans_older_than": "1 day"},
        "expected at least 3 days, because a running write needs its files",
        "found 1 day",
    ),
]


@pytest.mark.parametrize(("given", "expected", "found"), OUT_OF_RANGE, ids=str)
def test_settings_out_of_range_are_refused(given: dict[str, Any], expected: str, found: str) -> None:
    """By a policy as in an asset's metadata."""
    (name,) = given
    with pytest.raises(MetadataKeyError) as of_asset:
        read_metadata(MaintenanceOptions, {"iceberg/maintenance": given}, subject="flights")
    assert f"Cannot use `iceberg/maintenance` of flights: {expected} for `{name}`, {found}." in str(of_asset.value)
    with pytest.raises(ConfigurationError) as of_policy:
        MaintenancePolicy(**given)
    assert f"Cannot use `{name}` of the maintenance policy: {expected}, {found}." in str(of_policy.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"older_then": "1 day"}, "found 'older_then'. Hint: did you mean 'older_than'?"),
        ("7 days", "expected a dict of settings, or false, found '7 days'"),
        (True, "expected a dict of settings, or false, found True"),
    ],
)
def test_settings_that_do_not_exist_are_refused(given: Any, message: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        read_metadata(MaintenanceOptions, {"iceberg/maintenance": given}, subject="flights")
    assert message in str(error.value)


def test_a_policy_takes_the_texts_of_metadata() -> None:
    policy = MaintenancePolicy(older_than="30 days", zorder_by=["a"])  # type: ignore[arg-type]
    assert (policy.older_than, policy.zorder_by) == (dt.timedelta(days=30), ("a",))


def test_the_metadata_is_checked_where_it_is_built() -> None:
    assert metadata_for_table(maintenance={"settle": "2 hours"}, retain="400 days") == {
        "iceberg/maintenance": {"settle": "2 hours"},
        "iceberg/retain": "400 days",
    }
    assert metadata_for_table(maintenance=False) == {"iceberg/maintenance": False}
    with pytest.raises(MetadataKeyError, match="`iceberg/retain` of the asset: expected a duration"):
        metadata_for_table(retain="forever")


@pytest.mark.parametrize(
    ("text", "value"),
    [("7 days", dt.timedelta(7)), ("1 hour", dt.timedelta(hours=1)), ("90 minutes", dt.timedelta(minutes=90))],
)
def test_durations_are_written_as_they_are_read(text: str, value: dt.timedelta) -> None:
    assert (duration(text), duration_text(value)) == (value, text)
    assert duration("2 Weeks") == duration("14days") == dt.timedelta(14)
