"""Compares the releases of a code location with the definitions of the assets that they publish."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

import dagster as dg

from dagster_iceberg_spark.asset_tables import stored_members
from dagster_iceberg_spark.check.findings import Finding
from dagster_iceberg_spark.errors import IcebergSparkError
from dagster_iceberg_spark.io_manager import IcebergPySparkIOManager
from dagster_iceberg_spark.release.asset import MEMBERS

_SETTING: Final = "`iceberg/publish` in the metadata of the asset, or `publish` of the IO manager"


def check_releases(definitions: dg.Definitions) -> Iterator[Finding]:
    """Yield a finding for each release, and for each asset that waits for a release that does not exist."""
    releases = {
        "/".join(spec.key.path): [str(member) for member in spec.metadata[MEMBERS]]
        for assets in definitions.resolve_asset_graph().assets_defs
        for spec in assets.specs
        if MEMBERS in spec.metadata
    }
    with ExitStack() as stack:
        try:
            members = stack.enter_context(stored_members(definitions, action="check the releases of"))
        except Exception:  # noqa: BLE001 - whatever it is, the check of the resource says it
            return
        stored = {"/".join(spec.key.path): (io_manager, spec) for io_manager, spec in members}
        for release, assets in sorted(releases.items()):
            found = list(_differences({asset: stored[asset] for asset in assets if asset in stored}))
            missing = [asset for asset in assets if asset not in stored]
            found += [f"no IcebergPySparkIOManager stores {', '.join(missing)}"] if missing else []
            outcome = Finding(f"the release {release}", "assets", "ok", f"publishes {', '.join(assets)}")
            yield Finding(outcome.subject, "assets", "failed", "; ".join(found), _SETTING) if found else outcome
        released = {asset for assets in releases.values() for asset in assets}
        for asset, (io_manager, spec) in sorted(stored.items()):
            if asset not in released and _publication(io_manager, spec) == "release":
                yield Finding(asset, "release", "failed", "no release publishes its rows: they stay staged", _SETTING)


def _differences(members: dict[str, tuple[IcebergPySparkIOManager, dg.AssetSpec]]) -> Iterator[str]:
    for asset, (io_manager, spec) in members.items():
        if _publication(io_manager, spec) == "step":
            yield f"{asset} is published by its own step"
    catalogs = {manager.spark.catalog_description.identity: manager for manager, _ in members.values()}
    if len(catalogs) > 1:
        names = sorted(str(manager.spark.catalog_description) for manager in catalogs.values())
        yield f"its assets are in several catalogs: {', '.join(names)}"


def _publication(io_manager: IcebergPySparkIOManager, spec: dg.AssetSpec) -> str | None:
    """Return what publishes the rows of an asset, or None if its metadata is wrong, as the check of its table says."""
    try:
        return io_manager.definition_of(spec).request.options.publish
    except IcebergSparkError:
        return None
