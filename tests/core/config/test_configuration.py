"""Rules for every configuration class."""

import logging
import traceback
from typing import Any

import dagster as dg
import pytest
from pydantic import BaseModel

from dagster_iceberg_spark import (
    AwsCredentials,
    BearerToken,
    DuckLakeMirror,
    GlueCatalog,
    IcebergPySparkIOManager,
    IcebergSparkResource,
    OAuth2,
    RestCatalog,
    S3Store,
    SqlCatalog,
)
from dagster_iceberg_spark.config import configuration


@pytest.fixture(autouse=True)
def _no_warnings_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configuration, "_warned", set())


def test_a_literal_secret_causes_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        OAuth2(client_id="me", client_secret="hushhush")
        RestCatalog(uri="http://h", headers={"Realm": "lake", "X-Token": "hushhush"})
        SqlCatalog(uri="postgresql://me:hushhush@h/db", warehouse="/w")
    assert [record.getMessage() for record in caplog.records] == [
        "`OAuth2.client_secret` holds a literal secret, which Dagster's UI shows: use dagster.EnvVar.",
        "`RestCatalog.headers` ('X-Token') holds a literal secret, which Dagster's UI shows: use dagster.EnvVar.",
        "`SqlCatalog.uri` holds a literal secret, which Dagster's UI shows: use dagster.EnvVar.",
    ]


def test_a_secret_from_the_environment_causes_no_warning(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKE_SECRET", "hushhush")
    monkeypatch.setenv("LAKE_URI", "postgresql://me:hushhush@h/db")
    secret = dg.EnvVar("LAKE_SECRET")
    seen = []

    @dg.asset
    def reads(rest: IcebergSparkResource, sql: IcebergSparkResource) -> None:
        seen.extend([rest.catalog_description.secrets, sql.catalog_description.secrets])

    rest = RestCatalog(
        uri="http://h",
        authentication=OAuth2(client_id="me", client_secret=secret),
        headers={"X-Token": secret},
        store=S3Store(credentials=AwsCredentials(access_key_id=secret, secret_access_key=secret)),
    )
    resources = {
        "rest": IcebergSparkResource(catalog=rest),
        "sql": IcebergSparkResource(catalog=SqlCatalog(uri=dg.EnvVar("LAKE_URI"), warehouse="/w")),
    }
    with caplog.at_level(logging.WARNING, logger=configuration.__name__):
        dg.materialize([reads], resources=resources)
    assert all("hushhush" in secrets for secrets in seen)
    assert [record for record in caplog.records if record.name == configuration.__name__] == []


@pytest.mark.parametrize(
    ("config", "fields", "hint"),
    [
        (RestCatalog, {"uri": "http://h", "token": "hushhush"}, r"`authentication=BearerToken\(token=\.\.\.\)`"),
        (RestCatalog, {"uri": "http://h", "credential": "me:hushhush"}, "`authentication`"),
        (RestCatalog, {"uri": "http://h", "authentication": "hushhush"}, "one of NoAuthentication, BearerToken"),
        (GlueCatalog, {"warehouse": "s3://w", "secret_access_key": "hushhush"}, "`credentials=AwsCredentials"),
        (SqlCatalog, {"uri": "postgresql://h", "warehouse": "/w", "password": "hushhush"}, "`uri`"),
        (IcebergSparkResource, {"catalog": {"rest": {"uri": "http://h", "token": "hushhush"}}}, "BearerToken"),
        (IcebergSparkResource, {"catalog": "hushhush"}, "one of EmbeddedCatalog, SqlCatalog"),
        (IcebergSparkResource, {"token": "hushhush"}, "one of the fields"),
        (IcebergPySparkIOManager, {"token": "hushhush"}, "one of the fields"),
        (OAuth2, {"client_id": "me", "client_secret": ["hushhush"]}, "valid string"),
        (IcebergSparkResource, {"remote": ["hushhush"]}, "valid string"),
        (IcebergPySparkIOManager, {"namespace": ["hushhush"]}, "valid string"),
    ],
)
def test_a_misplaced_secret_is_not_shown(config: type[BaseModel], fields: dict[str, Any], hint: str) -> None:
    with pytest.raises(ValueError, match=hint) as caught:
        config(**fields)
    assert "hushhush" not in "".join(traceback.format_exception(caught.value))


def test_the_repr_of_a_resource_shows_no_secrets() -> None:
    config = {"spark.hadoop.fs.s3a.secret.key": "hushhush", "spark.ui.enabled": "false"}
    spark = IcebergSparkResource(spark_config=config, remote="sc://h/;token=hushhush")
    shown = repr(spark) + str(spark) + repr(IcebergPySparkIOManager(spark=spark))
    assert "hushhush" not in shown
    assert "'spark.ui.enabled': 'false'" in shown


def resources_of_run(**resources: Any) -> Any:
    """Return the resources as an asset of a run finds them."""
    found = []

    @dg.asset(required_resource_keys={*resources})
    def asset(context: dg.AssetExecutionContext) -> None:
        found.append(context.resources)

    with dg.instance_for_test() as instance:
        assert dg.materialize([asset], resources=resources, instance=instance).success
    return found[0]


def test_a_run_derives_no_schema_and_finds_the_values_of_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test of Dagster too: with another name of its private method, the schemas would be derived again."""
    from dagster._config.pythonic_config import resource

    monkeypatch.setenv("TOKEN", "hushhush")
    catalog = RestCatalog(
        uri="http://h", authentication=BearerToken(token=dg.EnvVar("TOKEN")), store=S3Store(region="x")
    )
    spark = IcebergSparkResource(catalog=catalog, spark_config={"a": "b"})
    io_manager = IcebergPySparkIOManager(spark=spark, namespace=dg.EnvVar("TOKEN"))
    monkeypatch.setattr(resource, "infer_schema_from_config_class", None)
    found = resources_of_run(iceberg=io_manager, spark=spark)
    assert found.iceberg.namespace == "hushhush"
    for each in (found.spark, found.iceberg.spark):
        assert (each.catalog.authentication.token, each.catalog.store, each.spark_config) == (
            "hushhush",
            S3Store(region="x"),
            {"a": "b"},
        )
        assert "hushhush" not in repr(each)


def test_a_variable_with_a_wrong_value_fails_the_run_without_showing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIRROR", "mysql://me:hushhush@h/lake")
    io_manager = IcebergPySparkIOManager(mirror=DuckLakeMirror(catalog=dg.EnvVar("MIRROR")))
    with pytest.raises(dg.DagsterResourceFunctionError) as raised:
        resources_of_run(iceberg=io_manager)
    assert "hushhush" not in "".join(traceback.format_exception(raised.value.__cause__, chain=False))


def test_the_resource_of_a_code_location_stays_as_it_is() -> None:
    spark = IcebergSparkResource(catalog=SqlCatalog(uri="sqlite:///c.db", warehouse="w"))
    first, second = resources_of_run(spark=spark).spark, resources_of_run(spark=spark).spark
    assert len({id(each) for each in (spark, first, second)}) == 3
    assert spark._storage_directory is None
    assert first._storage_directory != second._storage_directory
