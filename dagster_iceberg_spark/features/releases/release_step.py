"""The step of a release: what the run has staged, whether it may be published, and what was done."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Final

import dagster as dg

from dagster_iceberg_spark.assets.address import spec_scope
from dagster_iceberg_spark.assets.branch_changes import advance, change_tags, drop_branch, report_moved
from dagster_iceberg_spark.assets.dagster_private.event_log import RecordedEvent, recorded_events, snapshot_of
from dagster_iceberg_spark.assets.dagster_private.graph import blocking_checks
from dagster_iceberg_spark.assets.dagster_private.runs import root_run_of, runs_of_root
from dagster_iceberg_spark.assets.read_log import StepInput, snapshots_read
from dagster_iceberg_spark.assets.stored_tables import StoredAsset
from dagster_iceberg_spark.assets.table_io_manager import TableIOManager
from dagster_iceberg_spark.catalog.look import can_commit, look
from dagster_iceberg_spark.catalog.publication import Release, publish
from dagster_iceberg_spark.errors import (
    CommitConflictError,
    ConfigurationError,
    IcebergSparkError,
    UnauditedReleaseError,
    UpstreamMissingError,
)
from dagster_iceberg_spark.features.releases.release_asset import step_publishes
from dagster_iceberg_spark.plan.options.output_options import WriteOptions
from dagster_iceberg_spark.plan.publication.staged_rows import Member, StagedRows, published_snapshot, rows_of_scope
from dagster_iceberg_spark.plan.read.history import few_keys
from dagster_iceberg_spark.plan.write.write_request import ReleaseTag, Staging, staged_branch
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.lineage import COMMIT_TOKEN, PARTITION_DIGEST, STAGED_TOKEN
from dagster_iceberg_spark.table.snapshot import MAIN_BRANCH, PublishedSnapshot, Snapshot, TableState


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The evaluation of a check: whether it allows the release, and the snapshots that the check has looked at."""

    allows: bool
    snapshot_ids: frozenset[int]


@dataclass(frozen=True, slots=True)
class StagedMaterialization:
    """The newest materialization of an asset by the runs.

    Args:
        token: The commit token of the snapshot, or None if the step published it.
        partitions: The keys of its partitions; none for an asset without partitions.
        checks: The newest evaluation of each check that looked at the snapshot, or at any if none looked at that one.
    """

    snapshot_id: int
    token: str | None
    partitions: tuple[str, ...]
    checks: Mapping[str, Evaluation] = field(default_factory=dict)

    def audit_gaps(self, checks: Iterable[str]) -> tuple[str, ...]:
        """Return what is wrong with each of these checks that has not passed on the snapshot."""
        found = ((name, self._finding(self.checks.get(name))) for name in sorted(checks))
        return tuple(f"`{name}` {finding}" for name, finding in found if finding is not None)

    def _finding(self, evaluation: Evaluation | None) -> str | None:
        if evaluation is None:
            return "has not been evaluated"
        if self.snapshot_id not in evaluation.snapshot_ids:
            looked = " and ".join(map(str, sorted(evaluation.snapshot_ids)))
            return f"has looked at snapshot {looked}" if looked else "does not say which snapshot it has looked at"
        return None if evaluation.allows else "has failed"


def staged_materializations(
    events: Iterable[RecordedEvent], reads: Mapping[StepInput, frozenset[int]]
) -> Mapping[dg.AssetKey, StagedMaterialization]:
    """Return the newest materialization of each asset, from the events of the runs in order.

    A check has looked at the snapshots that its step has read, at the one that its metadata names, and at the one that
    its step has staged. A check that fails as a warning does not keep Dagster from executing the downstream steps, and
    it does not keep a release back.
    """
    found: dict[dg.AssetKey, StagedMaterialization] = {}
    steps: dict[tuple[str, str | None, dg.AssetKey], int] = {}
    evaluations: list[tuple[RecordedEvent, dg.AssetCheckEvaluation]] = []
    for item in events:
        event, snapshot_id = item.event, snapshot_of(item.event)
        if isinstance(event, dg.AssetCheckEvaluation):
            evaluations.append((item, event))
        elif snapshot_id is not None:
            steps[item.run_id, item.step_key, event.asset_key] = snapshot_id
            known = found.get(event.asset_key)
            if known is None or known.snapshot_id != snapshot_id:
                token = event.metadata.get(STAGED_TOKEN)
                known = StagedMaterialization(snapshot_id, None if token is None else str(token.value), ())
            partitions = (*known.partitions, *((event.partition,) if event.partition else ()))
            found[event.asset_key] = replace(known, partitions=tuple(dict.fromkeys(partitions)))
    for item, event in evaluations:
        if (staged := found.get(event.asset_key)) is None:
            continue
        read = reads.get((item.run_id, item.step_key or "", "/".join(event.asset_key.path)), frozenset())
        named = (snapshot_of(event), steps.get((item.run_id, item.step_key, event.asset_key)))
        looked_at = read | {snapshot_id for snapshot_id in named if snapshot_id is not None}
        earlier = staged.checks.get(event.check_name)
        if earlier is None or staged.snapshot_id in looked_at or staged.snapshot_id not in earlier.snapshot_ids:
            allows = event.passed or event.severity == dg.AssetCheckSeverity.WARN
            checks = {**staged.checks, event.check_name: Evaluation(allows, looked_at)}
            found[event.asset_key] = replace(staged, checks=checks)
    return found


_COLUMNS: Final = dg.TableSchema(
    columns=[
        *map(dg.TableColumn, ("table", "asset", "partitions", "publication")),
        *(dg.TableColumn(name, "int") for name in ("added_rows", "deleted_rows", "checks")),
        *map(dg.TableColumn, ("snapshot_before", "snapshot_after")),
    ]
)
_EARLIER: Final = "by an earlier attempt"


@dataclass(frozen=True, slots=True)
class _StagedAsset:
    """An asset that the run has staged or, if an earlier attempt of the release was interrupted, already published."""

    definition: StoredAsset
    io_manager: TableIOManager
    options: WriteOptions
    staging: Staging
    state: TableState
    recorded: StagedMaterialization

    @property
    def identifier(self) -> TableIdentifier:
        return self.state.identifier

    def snapshot_in_target(self) -> PublishedSnapshot | None:
        """Return the snapshot of the target that has the rows, if there is one."""
        staged = self.state.snapshots.get(self.recorded.snapshot_id)
        if staged is not None:
            found = published_snapshot(self.state, self.staging, staged)
            return None if found is None else PublishedSnapshot.of(staged, found)
        line, token = self.state.ancestors(self.staging.target), self.recorded.token
        ids = (item.snapshot_id for item in line if token is not None and item.summary.get(COMMIT_TOKEN) == token)
        return next((PublishedSnapshot(snapshot_id, is_moved=True) for snapshot_id in ids), None)

    def member(self, *, has_checks: bool) -> Member:
        """Return the asset as a member of the release. Its staged rows must be those that Dagster has recorded."""
        staged = self.state.head(self.staging.branch)
        if staged is None or staged.snapshot_id != self.recorded.snapshot_id:
            raise _lost_branch(self.identifier, self.staging.branch, self.recorded.snapshot_id)
        scope = spec_scope(self.definition.spec, self.recorded.partitions)
        if scope.digest != staged.summary.get(PARTITION_DIGEST):
            raise UpstreamMissingError.refusing(
                "publish",
                str(self.identifier),
                expected=f"a materialization of each partition of the staged snapshot {staged.snapshot_id}",
                found=f"materializations of the partitions {scope.describe() or 'none'}",
                hint="materialize the asset in this run again.",
            )
        rows = rows_of_scope(self.state, self.options, scope)
        audited = rows if has_checks or self.options.audits else None
        owned = rows.without(self.options.merge.validity)
        return Member(self.definition.name, self.state, StagedRows(self.staging, (staged,), owned, audited))

    def record(self, how: str, before: int | None, after: int) -> dg.TableRecord:
        """Return the row of the release's metadata: how the asset was published, and its snapshots before and after."""
        snapshot: Snapshot = self.state.snapshots.get(self.recorded.snapshot_id) or self.state.snapshots[after]
        return dg.TableRecord(
            {
                "table": str(self.identifier),
                "asset": self.definition.name,
                "partitions": few_keys(self.recorded.partitions),
                "publication": how,
                "added_rows": snapshot.count("added-records"),
                "deleted_rows": snapshot.count("deleted-records"),
                "checks": len(self.recorded.checks),
                "snapshot_before": "" if before is None else str(before),
                "snapshot_after": str(after),
            }
        )


@dataclass(frozen=True, slots=True)
class _TaggedTable:
    """A table of the release that the run has not staged, with the head of its `main`, which gets the tag."""

    io_manager: TableIOManager
    identifier: TableIdentifier
    head: int
    by_engine: bool


@dataclass(frozen=True)
class ReleaseStep:
    """A step that publishes. `checks` has more blocking checks than Dagster knows of, `naming` the name's template."""

    context: dg.AssetExecutionContext
    definitions: Sequence[StoredAsset]
    checks: frozenset[dg.AssetCheckKey]
    naming: ReleaseTag | None = None

    def publish(self) -> dg.MaterializeResult[Any]:
        """Publish what the run has staged. Return what was done as metadata.

        Raises:
            UnauditedReleaseError: A blocking check of an asset has not passed on its staged rows.
            CommitConflictError: Another writer has changed the rows of an asset.
            UpstreamMissingError: The run has staged nothing, or the staged rows were dropped.
        """
        began, staged = time.monotonic(), self._staged_assets()
        catalog = staged[0].io_manager.spark.catalog_description
        published = {
            asset.definition.name: found for asset in staged if (found := asset.snapshot_in_target()) is not None
        }
        left = [asset for asset in staged if asset.definition.name not in published]
        checks, tag = self._blocking_checks(), self._tag
        others = [] if tag is None else self._others(staged, tag, is_resumed=bool(published))
        try:
            self._refuse_unaudited(left, checks)
            release = publish(
                catalog,
                [asset.member(has_checks=asset.definition.spec.key in checks) for asset in left],
                partial(advance, staged[0].io_manager),
                published={
                    asset.recorded.snapshot_id: published[asset.definition.name]
                    for asset in staged
                    if asset not in left
                },
                tagged=[(item.identifier, tag) for item in others if tag is not None and not item.by_engine],
                report=self.context.log.info,
            )
        except IcebergSparkError as error:
            if isinstance(error, CommitConflictError | UnauditedReleaseError | UpstreamMissingError):
                _drop_rejected(left)
            raise
        for item in others:
            if tag is not None and item.by_engine:
                change_tags(item.io_manager, item.identifier, [tag.at(item.head)])
        return self._result(staged, published, release, seconds=time.monotonic() - began)

    @cached_property
    def _tag(self) -> ReleaseTag | None:
        """The tag of this release."""
        if self.naming is None:
            return None
        context, template = self.context, self.naming.name
        is_partitioned = context.has_partition_key or context.has_partition_key_range
        keys: Sequence[str] = context.partition_keys if is_partitioned else ()
        if not keys and template != template.format(partition=""):
            raise ConfigurationError.refusing(
                "publish", self._name, expected="a run of a partition, for the name of the release", found="none"
            )
        partition = f"{keys[0]}..{keys[-1]}" if len(keys) > 1 else "".join(keys)
        return replace(self.naming, name=template.format(partition=partition))

    def _others(self, staged: Sequence[_StagedAsset], tag: ReleaseTag, *, is_resumed: bool) -> list[_TaggedTable]:
        """Return the other tables of the release that get its tag.

        If an earlier attempt has published some tables, those with the tag have it from this attempt.
        """
        known, found = {asset.definition.name for asset in staged}, list[_TaggedTable]()
        for definition in self.definitions:
            if definition.name in known:
                continue
            io_manager = self._io_manager(definition)
            catalog = io_manager.spark.catalog_description
            state = look(catalog, io_manager.definition_of(definition.spec).request.identifier)
            head = None if state is None else state.refs.get(MAIN_BRANCH)
            if state is not None and head is not None and not (is_resumed and tag.name in state.refs):
                by_engine = not can_commit(catalog)
                found.append(_TaggedTable(io_manager, state.identifier, head, by_engine=by_engine))
        return found

    def _result(
        self,
        staged: Sequence[_StagedAsset],
        published: Mapping[str, PublishedSnapshot],
        release: Release,
        *,
        seconds: float,
    ) -> dg.MaterializeResult[Any]:
        """Log and return what was done. `published` has what an earlier attempt had published, by asset."""
        records: dict[str, tuple[str, int | None, int]] = {
            name: (_EARLIER, None, found.snapshot_id) for name, found in published.items()
        }
        for item in release.members:
            records[item.member.asset] = (item.how, item.before, item.published.snapshot_id)
        rows = [asset.record(*records[asset.definition.name]) for asset in staged]
        at_once = "at one instant" if release.is_atomic else "one after the other"
        self.context.log.info(
            f"Published {len(release.members)} of {len(staged)} tables in {seconds:.2f} s, {at_once}: "
            f"{', '.join(str(asset.identifier) for asset in staged)}."
        )
        reported = report_moved(
            [(asset.io_manager, asset.definition.spec) for asset in staged if asset.staging.target == MAIN_BRANCH],
            report=self.context.log.info,
            warn=self.context.log.warning,
        )
        return dg.MaterializeResult(
            metadata={
                **reported,
                "iceberg/tables": dg.MetadataValue.table(rows, _COLUMNS),
                "iceberg/atomic": release.is_atomic,
                **({} if self._tag is None else {"iceberg/release": self._tag.name}),
                "iceberg/publication_seconds": round(seconds, 3),
            }
        )

    @property
    def _name(self) -> str:
        return "/".join(self.context.asset_key.path)

    def _staged_assets(self) -> list[_StagedAsset]:
        """Return the assets that the run, or a run that it re-executes, has materialized."""
        refused = partial(ConfigurationError.refusing, "publish", self._name)
        instance, runs = self.context.instance, runs_of_root(self.context.instance, self.context.run)
        recorded = staged_materializations(recorded_events(instance, runs), snapshots_read(instance, runs))
        staged = [
            self._asset(definition, recorded[definition.spec.key])
            for definition in self.definitions
            if definition.spec.key in recorded
        ]
        if not staged:
            raise UpstreamMissingError.refusing(
                "publish",
                self._name,
                expected=f"rows that the run {self._root_run_id}, or a run that re-executes it, has staged",
                found="none: it has materialized no asset of the release",
                hint="materialize the assets and the release in one run.",
            )
        catalogs = {asset.io_manager.spark.catalog_description.identity: asset for asset in staged}
        if len(catalogs) > 1:
            names = [str(asset.io_manager.spark.catalog_description) for asset in catalogs.values()]
            raise refused(
                expected="assets in one catalog",
                found=", ".join(sorted(names)),
                hint="build a release for the assets of each catalog.",
            )
        tables = [asset.identifier for asset in staged]
        for table in tables:
            if tables.count(table) > 1:
                raise refused(expected="a table for each asset", found=f"several assets in {table}")
        return staged

    @property
    def _root_run_id(self) -> str:
        return root_run_of(self.context.run)

    def _asset(self, definition: StoredAsset, recorded: StagedMaterialization) -> _StagedAsset:
        io_manager = self._io_manager(definition)
        request = io_manager.definition_of(definition.spec).request
        if request.options.publish != "release":
            raise step_publishes(self._name, definition.name)
        target = request.options.branch
        branch = staged_branch(root_run_id=self._root_run_id, output=definition.name, scope=None, target=target)
        state = look(io_manager.spark.catalog_description, request.identifier)
        if state is None:
            raise _lost_branch(request.identifier, branch, recorded.snapshot_id)
        days, tag = request.target.retention_days, self._tag
        staging = Staging(branch, target, published_by="release", target_retention_days=days, tag=tag)
        return _StagedAsset(definition, io_manager, request.options, staging, state, recorded)

    def _io_manager(self, definition: StoredAsset) -> TableIOManager:
        hint = "build a release of assets that it stores only."
        return definition.io_manager(self.context.resources, action="publish", hint=hint)

    def _blocking_checks(self) -> Mapping[dg.AssetKey, frozenset[str]]:
        """Return the names of the blocking checks of each asset that has some."""
        known = blocking_checks(self.context) | self.checks
        return {key: frozenset(check.name for check in known if check.asset_key == key) for key in _assets_of(known)}

    def _refuse_unaudited(self, assets: Sequence[_StagedAsset], checks: Mapping[dg.AssetKey, frozenset[str]]) -> None:
        found = {
            asset.definition.name: asset.recorded.audit_gaps(checks.get(asset.definition.spec.key, ()))
            for asset in assets
        }
        unaudited = {name: results for name, results in found.items() if results}
        if unaudited:
            raise UnauditedReleaseError.refusing(
                "publish",
                self._name,
                expected="every blocking check of its assets to have passed on the rows that this run has staged",
                found="; ".join(f"{asset}: {', '.join(results)}" for asset, results in sorted(unaudited.items())),
                hint="select these checks with the assets and the release, and re-execute the run. A check looks at "
                "the staged rows if it loads the asset as a parameter. If it finds them in another way, it names "
                "their snapshot in its metadata, as `iceberg/snapshot_id`.",
            )


def _assets_of(checks: frozenset[dg.AssetCheckKey]) -> frozenset[dg.AssetKey]:
    return frozenset(check.asset_key for check in checks)


def _drop_rejected(assets: Sequence[_StagedAsset]) -> None:
    """Drop the staged branches of the assets that want it (`iceberg/on_failure`)."""
    for asset in assets:
        if asset.options.on_failure == "drop":
            drop_branch(asset.io_manager, asset.identifier, asset.staging.branch)


def _lost_branch(identifier: TableIdentifier, branch: str, snapshot_id: int) -> UpstreamMissingError:
    """The staged rows of an asset were dropped."""
    return UpstreamMissingError.refusing(
        "publish",
        str(identifier),
        expected=f"the staged snapshot {snapshot_id} in the branch {branch!r}",
        found="none: the branch has expired, was dropped, or holds other rows",
        hint="materialize the asset in this run again.",
    )
