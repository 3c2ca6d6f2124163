"""Releases whose assets do not fit together.

docs/releases.md: What blocks a release
"""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from dagster_iceberg_spark import (
    IcebergPySparkIOManager,
    IcebergSparkResource,
    MetadataKeyError,
    SqlCatalog,
    build_release,
)
from dagster_iceberg_spark.features.releases.release_asset import check_releases


def asset(name: str, publish: str | None = None, io_manager_key: str = "iceberg") -> dg.AssetsDefinition:
    metadata = {} if publish is None else {"iceberg/publish": publish}

    @dg.asset(name=name, io_manager_key=io_manager_key, metadata=metadata)
    def made() -> None: ...

    return made


def found(directory: Path, *assets: Any, **resources: Any) -> dict[str, tuple[str, str]]:
    """Return the outcome and what was found, by subject."""

    def io_manager(name: str) -> IcebergPySparkIOManager:
        (directory / name).mkdir(exist_ok=True)
        catalog = SqlCatalog(uri=f"sqlite:///{directory}/{name}/c.db", warehouse=f"{directory}/{name}/wh")
        return IcebergPySparkIOManager(spark=IcebergSparkResource(catalog=catalog), namespace="db")

    resources = {"iceberg": io_manager("one"), "second": io_manager("two"), **resources}
    findings = check_releases(dg.Definitions(list(assets), resources=resources))
    return {item.subject: (item.outcome, item.found) for item in findings}


def test_a_release_of_staged_assets_is_fit(tmp_path: Path) -> None:
    members = [asset("a", "release"), asset("b", "release")]
    assert found(tmp_path, *members, build_release("rel", members)) == {"the release rel": ("ok", "publishes a, b")}


def test_what_would_be_found_too_late_is_found(tmp_path: Path) -> None:
    at_once, elsewhere, lonely = asset("a"), asset("b", "release", "second"), asset("c", "release")
    checked = found(tmp_path, at_once, elsewhere, lonely, build_release("rel", [at_once, elsewhere]))
    outcome, text = checked["the release rel"]
    assert (outcome, text.partition(":")[0]) == (
        "failed",
        "a is published by its own step; its assets are in several catalogs",
    )
    assert checked["c"] == ("failed", "no release publishes its rows: they stay staged")
    assert checked.keys() == {"the release rel", "c"}


def test_an_asset_that_no_io_manager_of_the_package_stores_is_named(tmp_path: Path) -> None:
    member = asset("a", "release", "plain")
    checked = found(tmp_path, member, build_release("rel", [member]), plain=dg.mem_io_manager)
    assert checked["the release rel"] == ("failed", "no IcebergPySparkIOManager stores a")


def test_a_resource_that_cannot_be_opened_is_left_to_its_own_check(tmp_path: Path) -> None:
    member = asset("a", "release")
    broken = IcebergPySparkIOManager(namespace=dg.EnvVar("NOT_SET_ANYWHERE"))
    assert found(tmp_path, member, build_release("rel", [member]), iceberg=broken) == {}


def test_an_asset_whose_metadata_publishes_it_at_once_is_refused_at_once() -> None:
    with pytest.raises(MetadataKeyError, match="Cannot publish rel: expected `iceberg/publish`: `release` on a"):
        build_release("rel", [asset("a", "step")])
