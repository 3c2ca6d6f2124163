"""Builds the asset that publishes what its run has staged."""

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from math import ceil
from string import Formatter
from typing import Any, Final

import dagster as dg

from dagster_iceberg_spark.assets.address import plain_metadata
from dagster_iceberg_spark.assets.stored_tables import StoredAsset, stored_assets_in, stored_members
from dagster_iceberg_spark.assets.table_io_manager import TableIOManager, final_errors
from dagster_iceberg_spark.check.findings import Finding
from dagster_iceberg_spark.errors import ConfigurationError, IcebergSparkError, MetadataKeyError
from dagster_iceberg_spark.plan.options.metadata_key import duration
from dagster_iceberg_spark.plan.options.output_options import PUBLISH, parse_key
from dagster_iceberg_spark.plan.write.write_request import ReleaseTag
from dagster_iceberg_spark.table.identifier import NotationError
from dagster_iceberg_spark.table.snapshot import MAIN_BRANCH

MEMBERS: Final = "iceberg/released_assets"
"""Key of the metadata of a release: the assets that it publishes."""


def build_release(  # noqa: PLR0913 - those of an asset, by name
    key: dg.AssetKey | str | Sequence[str],
    assets: Iterable[dg.AssetsDefinition],
    *,
    checks: Iterable[dg.AssetChecksDefinition] = (),
    name: str | None = None,
    retain: str | None = None,
    group_name: str | None = None,
    description: str | None = None,
    owners: Sequence[str] = (),
    tags: Mapping[str, str] | None = None,
    automation_condition: dg.AutomationCondition[dg.AssetKey] | None = None,
) -> dg.AssetsDefinition:
    """Build an asset that publishes together what its run has staged of several assets.

    The asset is downstream of the others. Until it is materialized, only the run that has staged their rows reads them.
    It publishes nothing unless every blocking check of the assets has passed on the staged rows. Tables in a SQL
    catalog are published at one instant.

    Args:
        key: The key of the new asset.
        assets: Assets that an `IcebergPySparkIOManager` stores, with `iceberg/publish` set to `release`, in one
            catalog. Those with partitions have the same partitions definition.
        checks: Blocking checks that must have passed. Those in the `Definitions` need not be given: only
            `dg.materialize` does not know the checks that its selection leaves out.
        name: The name of each release, such as `2026-11` or `{partition}`, which becomes a tag of all tables. Tables
            that the run has not written get it where they are. A name that exists moves.
        retain: How long the tag lasts, such as `400 days`. Default: for ever.
        group_name: The asset group.
        description: The description in the UI.
        owners: The owners of the new asset.
        tags: Its tags.
        automation_condition: When Dagster materializes it.

    Raises:
        ConfigurationError: The assets have different partitions definitions, or one of them sets `iceberg/publish` to
            `step`.

    Example:
        >>> import dagster as dg
        >>> from dagster_iceberg_spark import build_release
        >>> @dg.asset(io_manager_key="iceberg", metadata={"iceberg/publish": "release"})
        ... def flights(): ...
        >>> build_release("release", [flights]).key.to_user_string()
        'release'
    """
    released = tuple(assets)
    members = tuple(stored_assets_in(released))
    naming = _naming(dg.AssetKey.from_coercible(key).to_user_string(), name, retain)
    for member in members:
        if parse_key(PUBLISH, plain_metadata(member.spec.metadata), subject=member.name) == "step":
            raise step_publishes(dg.AssetKey.from_coercible(key).to_user_string(), member.name)
    given = frozenset(spec.key for check in checks for spec in check.check_specs if spec.blocking)

    @dg.asset(
        key=key,
        deps=[member.spec.key for member in members],
        partitions_def=_partitions_of(key, members),
        backfill_policy=_backfill_policy_of(released),
        required_resource_keys={member.io_manager_key for member in members},
        group_name=group_name,
        description=description or "Publishes the rows that its run has staged in the tables of the upstream assets.",
        kinds={"iceberg"},
        metadata={MEMBERS: [member.name for member in members]},
        owners=owners,
        tags=tags,
        automation_condition=automation_condition,
    )
    def release(context: dg.AssetExecutionContext) -> dg.MaterializeResult[Any]:
        from dagster_iceberg_spark.features.releases.release_step import ReleaseStep

        with final_errors():
            return ReleaseStep(context, members, given, naming).publish()

    return release


_PLACEHOLDERS: Final = frozenset(("partition",))


def _naming(release: str, name: str | None, retain: str | None) -> ReleaseTag | None:
    """Return the template of the tag of each release, or None if releases have no name."""
    refused = partial(ConfigurationError.refusing, "build", f"the release {release}")
    if name is None:
        if retain is not None:
            raise refused(expected="a `name` for what is retained", found="`retain` alone")
        return None
    try:
        found = {field for _, field, _, _ in Formatter().parse(name) if field is not None}
        days = None if retain is None else ceil(duration(retain) / dt.timedelta(days=1))
    except (ValueError, NotationError) as error:
        raise refused(
            expected="a `name` such as `{partition}`, and `retain` such as `400 days`", found=str(error)
        ) from None
    if not name or name == MAIN_BRANCH or found - _PLACEHOLDERS:
        raise refused(expected="a `name` such as `2026-11` or `{partition}`", found=repr(name))
    return ReleaseTag(name, days)


def _partitions_of(key: Any, members: Iterable[StoredAsset]) -> dg.PartitionsDefinition | None:
    """Return the partitions definition that the members with partitions share: a run has partitions of only one."""
    found = [member.spec.partitions_def for member in members if member.spec.partitions_def is not None]
    for other in found:
        if other != found[0]:
            raise ConfigurationError.refusing(
                "build",
                f"the release {dg.AssetKey(key).to_user_string()}",
                expected="one partitions definition for all assets with partitions, because a run has partitions of "
                "only one",
                found="several",
                hint="build a release for the assets of each definition.",
            )
    return found[0] if found else None


def _backfill_policy_of(assets: Iterable[dg.AssetsDefinition]) -> dg.BackfillPolicy | None:
    """Return the policy that the assets with partitions share, so that a backfill executes them in the same runs."""
    policies = [definition.backfill_policy for definition in assets if definition.partitions_def is not None]
    return policies[0] if policies and all(policy == policies[0] for policy in policies) else None


def step_publishes(release: str, asset: str) -> MetadataKeyError:
    """An asset of the release is published by its own step."""
    return MetadataKeyError.refusing(
        "publish",
        release,
        expected=f"`iceberg/publish`: `release` on {asset}",
        found="`step`: the asset's own step publishes its rows",
        hint="set it in the metadata of the asset, or `publish` on the IO manager.",
    )


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


def _differences(members: dict[str, tuple[TableIOManager, dg.AssetSpec]]) -> Iterator[str]:
    for asset, (io_manager, spec) in members.items():
        if _publication(io_manager, spec) == "step":
            yield f"{asset} is published by its own step"
    catalogs = {manager.spark.catalog_description.identity: manager for manager, _ in members.values()}
    if len(catalogs) > 1:
        names = sorted(str(manager.spark.catalog_description) for manager in catalogs.values())
        yield f"its assets are in several catalogs: {', '.join(names)}"


def _publication(io_manager: TableIOManager, spec: dg.AssetSpec) -> str | None:
    """Return what publishes the rows of an asset, or None if its metadata is wrong, as the check of its table says."""
    try:
        return io_manager.definition_of(spec).request.options.publish
    except IcebergSparkError:
        return None
