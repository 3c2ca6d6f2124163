"""The reasons not to release what is staged."""

from collections.abc import Iterable, Mapping

from dagster_iceberg_spark.errors import (
    CommitConflictError,
    ConfigurationError,
    MetadataKeyError,
    UnauditedReleaseError,
    UpstreamMissingError,
)
from dagster_iceberg_spark.table.identifier import TableIdentifier


def unaudited(release: str, checks: Mapping[str, Iterable[str]]) -> UnauditedReleaseError:
    """Blocking checks have not passed on the staged rows. `checks` has what was found, by asset."""
    found = "; ".join(f"{asset}: {', '.join(results)}" for asset, results in sorted(checks.items()))
    return UnauditedReleaseError.refusing(
        "publish",
        release,
        expected="every blocking check of its assets to have passed on the rows that this run has staged",
        found=found,
        hint="select these checks with the assets and the release, and execute the run again. A check looks at the "
        "staged rows if it loads the asset as a parameter. If it finds them in another way, it names their snapshot in "
        "its metadata, as `iceberg/snapshot_id`.",
    )


def step_publishes(release: str, asset: str) -> MetadataKeyError:
    """An asset of the release is published by its own step."""
    return MetadataKeyError.refusing(
        "publish",
        release,
        expected=f"`iceberg/publish`: `release` on {asset}",
        found="`step`: the asset's own step publishes its rows",
        hint="set it in the metadata of the asset, or `publish` on the IO manager.",
    )


def nothing_staged(release: str, root_run_id: str) -> UpstreamMissingError:
    """The run has staged nothing."""
    return UpstreamMissingError.refusing(
        "publish",
        release,
        expected=f"rows that the run {root_run_id}, or a run that executes it again, has staged",
        found="none: it has materialized no asset of the release",
        hint="materialize the assets and the release in one run.",
    )


def lost_branch(identifier: TableIdentifier, branch: str, snapshot_id: int) -> UpstreamMissingError:
    """The staged rows of an asset are gone."""
    return UpstreamMissingError.refusing(
        "publish",
        str(identifier),
        expected=f"the staged snapshot {snapshot_id} in the branch {branch!r}",
        found="none: the branch has expired, was dropped, or holds other rows",
        hint="materialize the asset in this run again.",
    )


def other_partitions(identifier: TableIdentifier, snapshot_id: int, keys: str) -> UpstreamMissingError:
    """Dagster has not recorded all partitions of a staged snapshot."""
    return UpstreamMissingError.refusing(
        "publish",
        str(identifier),
        expected=f"a materialization of each partition of the staged snapshot {snapshot_id}",
        found=f"materializations of the partitions {keys or 'none'}",
        hint="materialize the asset in this run again.",
    )


def outdated_member(asset: str, source: str, snapshot_id: int) -> UpstreamMissingError:
    """An asset was made from rows that have been staged again since."""
    return UpstreamMissingError.refusing(
        "publish",
        asset,
        expected=f"rows that were made from the staged rows of {source}",
        found=f"rows that were made from its snapshot {snapshot_id}, after which it was staged again",
        hint=f"materialize {asset} in this run again.",
    )


def several_partitions_definitions(release: str) -> ConfigurationError:
    """The assets have different partitions definitions."""
    return ConfigurationError.refusing(
        "build",
        f"the release {release}",
        expected="one partitions definition for all assets with partitions, because a run has partitions of only one",
        found="several",
        hint="build a release for the assets of each definition.",
    )


def several_catalogs(release: str, catalogs: Iterable[str]) -> ConfigurationError:
    """The assets are in several catalogs."""
    return ConfigurationError.refusing(
        "publish",
        release,
        expected="assets in one catalog",
        found=", ".join(sorted(catalogs)),
        hint="build a release for the assets of each catalog.",
    )


def shared_table(release: str, identifier: TableIdentifier) -> ConfigurationError:
    """Two assets of the release are in one table."""
    return ConfigurationError.refusing(
        "publish", release, expected="a table for each asset", found=f"several assets in {identifier}"
    )


def needs_rewrite(identifier: TableIdentifier, target: str) -> CommitConflictError:
    """The target has moved, and a release cannot take the files over."""
    return CommitConflictError.refusing(
        "publish",
        str(identifier),
        expected=f"files that can be taken over to {target!r}, which another writer has changed since they were staged",
        found="a table of format 3, in a directory or with delete files, a new partition spec, or files that "
        "compaction has rewritten",
        hint="materialize the assets of the release again.",
    )


def unread_changes(asset: str, source: str) -> CommitConflictError:
    """Others have committed to a table whose changes an asset has read."""
    return CommitConflictError.refusing(
        "publish",
        asset,
        expected=f"no commits of others to {source}, whose changes it has read up to the staged snapshot",
        found="some, which the asset would never read",
        hint=f"materialize {source} and {asset} again.",
    )


def unstaged_reader(asset: str, source: str) -> MetadataKeyError:
    """An asset that is published at once has read staged rows."""
    return MetadataKeyError.refusing(
        "write",
        asset,
        expected=f"`iceberg/publish`: `release`, because this step has read staged rows of {source}",
        found="`step`: the rows would be published before those that they were made from",
        hint="add the asset to the release, or let it depend on the release instead.",
    )
