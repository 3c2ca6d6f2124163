"""The forms that `remote` takes."""

from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest

from dagster_iceberg_spark import EmbeddedCatalog, IcebergSparkResource
from dagster_iceberg_spark.errors import SparkEnvironmentError
from dagster_iceberg_spark.spark.session.renewed_channel import RenewedChannelBuilder
from dagster_iceberg_spark.spark.session.session import _server_url


class Service:
    def connect_url(self) -> str:
        return "sc://service:443/;token=secret"


def _handed_out() -> str:
    return "sc://service:443/;token=secret"


@pytest.mark.parametrize("remote", [Service(), _handed_out])
def test_remote_may_hand_out_the_address(remote: Service | Callable[[], str], tmp_path: Path) -> None:
    resource = IcebergSparkResource(remote=remote, catalog=EmbeddedCatalog(directory=str(tmp_path)))
    assert _server_url(resource.session_settings()) == "sc://service:443/;token=secret"
    assert "secret" not in repr(resource) + repr(resource.session_settings())


def test_the_function_survives_the_copies_that_dagster_makes(tmp_path: Path) -> None:
    asked = []

    @dg.asset
    def asks(spark: IcebergSparkResource) -> None:
        asked.append(_server_url(spark.session_settings()))

    dg.materialize(
        [asks],
        resources={"spark": IcebergSparkResource(remote=_handed_out, catalog=EmbeddedCatalog(directory=str(tmp_path)))},
    )
    assert asked == ["sc://service:443/;token=secret"]


def test_a_function_must_return_an_address(tmp_path: Path) -> None:
    resource = IcebergSparkResource(remote=lambda: "secret", catalog=EmbeddedCatalog(directory=str(tmp_path)))
    with pytest.raises(SparkEnvironmentError, match="expected an address") as refused:
        _server_url(resource.session_settings())
    assert "secret" not in str(refused.value)


def test_each_request_carries_the_current_metadata() -> None:
    tokens = iter(["first", "second"])
    carried = RenewedChannelBuilder("sc://h/;use_ssl=true;a=1;x=old", lambda: {"x": next(tokens)}).metadata()
    assert dict(carried) == {"a": "1", "x": "first"}
    assert dict(carried) == {"a": "1", "x": "second"}
