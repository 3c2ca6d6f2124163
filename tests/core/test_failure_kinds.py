"""Kinds of failures: each has a message and a client that recognizes it."""

import pytest

from dagster_iceberg_spark import errors
from dagster_iceberg_spark.catalog import aws_credentials as credentials
from dagster_iceberg_spark.catalog import failures as catalog_failures
from dagster_iceberg_spark.errors import IcebergSparkError
from dagster_iceberg_spark.failure_kinds import FailureKind
from dagster_iceberg_spark.spark import failures as spark_failures

IN_SPARK = {recogniser.kind for recogniser in spark_failures.RECOGNISERS}
IN_CATALOG = {kind for kind, _ in (*catalog_failures.RECOGNISERS, *credentials.RECOGNISERS)}


def test_every_kind_is_recognized_by_a_client() -> None:
    by_more = {FailureKind.AWS_PROFILE_MISSING, FailureKind.ENGINE_FAILED, FailureKind.QUERY_TABLE_MISSING}
    assert IN_SPARK | IN_CATALOG | by_more == set(FailureKind)


@pytest.mark.parametrize("kind", FailureKind, ids=lambda kind: kind.label)
def test_a_kind_has_one_sentence_and_an_imperative_hint(kind: FailureKind) -> None:
    error = kind.refusal("find", "db.t", "this")
    assert str(error).startswith(f"Cannot find db.t: expected {kind.expected}, found this.")
    assert kind.hint is None or (kind.hint.endswith(".") and kind.hint[0].islower())


@pytest.mark.parametrize(
    ("kind", "action", "error"),
    [
        (FailureKind.CREDENTIALS_REFUSED, "write", errors.CredentialsExpiredError),
        (FailureKind.CREDENTIALS_REFUSED, "read", errors.ConfigurationError),
        (FailureKind.NOT_A_REST_CATALOG, "write", errors.CatalogUnavailableError),
        (FailureKind.NOT_A_REST_CATALOG, "open", errors.ConfigurationError),
        (FailureKind.TABLE_VANISHED, "write", errors.CommitConflictError),
        (FailureKind.TABLE_VANISHED, "read", errors.UpstreamMissingError),
        (FailureKind.CONNECTION_LOST, "write", errors.CommitOutcomeUnknownError),
        (FailureKind.CONNECTION_LOST, "prepare", errors.CatalogUnavailableError),
    ],
)
def test_the_error_may_depend_on_the_action(kind: FailureKind, action: str, error: type[IcebergSparkError]) -> None:
    assert type(kind.refusal(action, "db.t", "this")) is error
