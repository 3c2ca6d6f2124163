"""AWS keys that boto3 finds, and errors if it finds none."""

from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError, TokenRetrievalError, UnauthorizedSSOTokenError

from dagster_iceberg_spark.catalog.aws_credentials import current_keys, region_of
from dagster_iceberg_spark.catalog.description import AwsIdentity, AwsKeys, CatalogDescription
from dagster_iceberg_spark.errors import CatalogUnavailableError, ConfigurationError, CredentialsExpiredError

KEYS = AwsKeys("AKIAEXAMPLE", "hushhush")
ROLE = "arn:aws:iam::123456789012:role/lake"


@pytest.fixture(autouse=True)
def _no_keys_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dagster_iceberg_spark.catalog.aws_credentials._sessions", {})


@pytest.fixture
def profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config"
    path.write_text(
        "[profile lake]\nregion = eu-north-1\naws_access_key_id = AKIAPROFILE\naws_secret_access_key = hushprofile\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(path))


def test_given_keys_are_used_as_they_are() -> None:
    assert current_keys(AwsIdentity(keys=KEYS)) == KEYS


def test_keys_are_found_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAENVIRONMENT")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hushhush")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "hushtoken")
    assert current_keys(AwsIdentity()) == AwsKeys("AKIAENVIRONMENT", "hushhush", "hushtoken")


def test_missing_keys_are_not_an_error_yet() -> None:
    assert current_keys(AwsIdentity()) is None
    assert current_keys(AwsIdentity(role_arn=ROLE)) is None


def test_keys_that_appear_later_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert current_keys(AwsIdentity()) is None
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAENVIRONMENT")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hushhush")
    assert current_keys(AwsIdentity()) == AwsKeys("AKIAENVIRONMENT", "hushhush")


@pytest.mark.parametrize(
    ("raised", "becomes"),
    [
        (UnauthorizedSSOTokenError(), ConfigurationError),
        (TokenRetrievalError(provider="sso", error_msg="expired"), ConfigurationError),
        (
            RuntimeError("Credentials were refreshed, but the refreshed credentials are still expired."),
            CredentialsExpiredError,
        ),
        (FileNotFoundError(2, "no such credential_process"), CatalogUnavailableError),
        (EndpointConnectionError(endpoint_url="http://sts"), CatalogUnavailableError),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_errors_of_fetching_keys_are_translated(
    raised: Exception, becomes: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Any) -> None:
        raise raised

    monkeypatch.setattr("boto3.Session.get_credentials", fail)
    with pytest.raises(becomes):
        current_keys(AwsIdentity())


def test_a_profile_gives_keys_and_region(profiles: None) -> None:
    lake = AwsIdentity(profile="lake")
    assert current_keys(lake) == AwsKeys("AKIAPROFILE", "hushprofile")
    assert region_of(description(lake)) == "eu-north-1"


def test_a_missing_profile_is_named(profiles: None) -> None:
    with pytest.raises(ConfigurationError, match=r"expected a profile .*, found The config profile \(nope\)"):
        current_keys(AwsIdentity(profile="nope"))


def description(identity: AwsIdentity | None, **properties: Any) -> CatalogDescription:
    return CatalogDescription("lake", "SQL", "x", {}, pyiceberg_properties=properties, aws=identity)


@pytest.mark.parametrize(
    ("properties", "region"),
    [
        ({"client.region": "eu-west-1", "s3.endpoint": "http://h"}, "eu-west-1"),
        ({"s3.endpoint": "http://h"}, "us-east-1"),
        ({}, None),
    ],
)
def test_the_region_is_configured_or_any_region_for_an_endpoint(properties: dict[str, str], region: str | None) -> None:
    assert region_of(description(AwsIdentity(), **properties)) == region


def test_an_invalid_role_is_a_configuration_error() -> None:
    identity = AwsIdentity(keys=KEYS, role_arn=ROLE, external_id="x")
    with pytest.raises(ConfigurationError, match=r"Cannot assume the AWS role .*: expected a role that can exist"):
        current_keys(identity)


def test_an_unreachable_service_is_a_transient_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(CatalogUnavailableError, match="expected a service that hands out keys"):
        current_keys(AwsIdentity(keys=KEYS, role_arn=ROLE))
