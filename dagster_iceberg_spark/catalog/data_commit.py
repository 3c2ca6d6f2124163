"""Commits data files as one snapshot, without a JVM.

pyiceberg's own snapshot producers copy the metadata whenever they look at it, which takes longer with each snapshot,
and read every manifest to find the files to remove. They also retry by themselves. Here, pyiceberg writes the
manifests, and only those are read that may list files to remove.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

from botocore.exceptions import BotoCoreError
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.manifest import DataFile as ManifestDataFile
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import ALWAYS_TRUE, ManifestGroupPlanner, Table, TableProperties
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update import AddSnapshotUpdate, AssertRefSnapshotId, AssertTableUUID
from pyiceberg.table.update.snapshot import _ManifestMergeManager
from pyiceberg.utils.properties import property_as_bool, property_as_int
from requests.exceptions import ConnectTimeout, RequestException

from dagster_iceberg_spark.catalog.branches import ATTEMPTS, wait_for_others
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.document_commit import table_to_commit_to
from dagster_iceberg_spark.catalog.expressions import expression_of
from dagster_iceberg_spark.catalog.files import data_manifests, description_of, entries_in
from dagster_iceberg_spark.catalog.look import look, translated_answers
from dagster_iceberg_spark.catalog.manifests import file_key, manifests_of, read_entries
from dagster_iceberg_spark.catalog.publication import move_of
from dagster_iceberg_spark.catalog.snapshot_files import Base, SnapshotFiles
from dagster_iceberg_spark.catalog.transaction import TableCommit, commit_table
from dagster_iceberg_spark.errors import CatalogUnavailableError, CommitConflictError
from dagster_iceberg_spark.failure_kinds import FailureKind
from dagster_iceberg_spark.plan.partitions.binding import BoundScope, Partitions
from dagster_iceberg_spark.plan.write.overwrite_filter import within_file
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.snapshot import MAIN_BRANCH
from dagster_iceberg_spark.table.snapshot import Snapshot as TableSnapshot

_Evaluator: TypeAlias = Any
_conflict = partial(CommitConflictError.to_plan_again, "write")


@dataclass(frozen=True, slots=True)
class DataChange:
    """What a snapshot changes.

    Args:
        added: The files that it adds.
        spec_id: The partition spec of these files.
        replaced: The rows whose files it removes, or None if it removes none.
        rewritten: The paths of other files that it removes. Rows of them are among those that are added.
        read_at: The snapshot at which these rows were read.
        only_upon: The snapshots of which one must be the head of the branch, or None if any may be. None among them
            stands for no snapshot, or one without files.
        tolerates: Whether another writer's snapshot, on top of the one at which the rows were read, may be there too.
        begins_branch: Whether the branch does not exist yet. Otherwise it does, except for `main`.
    """

    added: Sequence[ManifestDataFile]
    spec_id: int
    replaced: BoundScope | None = None
    rewritten: frozenset[str] = frozenset()
    read_at: int | None = None
    only_upon: tuple[int | None, ...] | None = None
    tolerates: Callable[[TableSnapshot], bool] | None = None
    begins_branch: bool = False

    def held_by(self, file: ManifestDataFile) -> Literal["all", "none"]:
        """Return which of the file's rows are written again, if no other rows are replaced."""
        return "all" if file.file_path in self.rewritten else "none"

    @property
    def operation(self) -> Operation:
        """The operation as Spark records it (`BaseOverwriteFiles.operation` of Iceberg 1.12)."""
        if self.replaced is None and not self.rewritten:
            return Operation.APPEND
        return Operation.OVERWRITE if self.added else Operation.DELETE


def commit_data(
    description: CatalogDescription,
    identifier: TableIdentifier,
    branch: str,
    change: DataChange,
    properties: Mapping[str, str],
    *,
    table: Table,
    retention_days: int | None = None,
) -> None:
    """Commit the change as one snapshot. Other writers' commits of other rows are no conflict.

    Args:
        description: The catalog.
        identifier: The table.
        branch: The branch that the snapshot is added to.
        change: What the snapshot changes.
        properties: The properties of the snapshot.
        table: The table as it was a moment ago.
        retention_days: How long the branch is retained if the snapshot is its first, or None for ever.

    Raises:
        CommitConflictError: Another writer has changed what the plan depends on. Nothing is committed.
        CatalogUnavailableError: The catalog or the store does not answer. Nothing is committed, unless the database of
            a SQL catalog has lost its answer.
        CommitOutcomeUnknownError: There is no answer to the commit, which may be made still.
    """
    uuid_before = table.metadata.table_uuid
    for retry in range(ATTEMPTS):
        if retry:
            wait_for_others(retry)
            table = table_to_commit_to(description, identifier, action="write")
        if table.metadata.table_uuid != uuid_before:
            raise _conflict(
                identifier, expected="the table that was there a moment ago", found="another table of its name"
            )
        with translated_answers(description, action=f"write the manifests of {identifier} in"):
            commit = _prepared(description, identifier, table, branch, change, properties, retention_days)
        try:
            is_made = commit_table(description, commit)
        except CatalogUnavailableError as error:
            if not _is_unknown(error.__context__):
                raise
            raise FailureKind.COMMIT_OUTCOME_UNKNOWN.refusal("write", str(identifier), str(error)) from error
        if is_made:
            return
        commit.discard()
    expected = f"a moment without other commits within {ATTEMPTS} attempts"
    raise _conflict(identifier, expected=expected, found="commits of other writers")


def _is_unknown(error: BaseException | None) -> bool:
    """Return whether the catalog may have made, or may still make, a commit that failed with this error.

    A database has made a commit or not once its connection is lost. What a REST catalog has answered is known, but for
    the statuses that `CommitStateUnknownException` stands for (Iceberg REST specification, "updateTable").
    """
    if isinstance(error, ConnectTimeout) or "NewConnectionError" in str(error):
        return False  # the request was not sent
    sent = (CommitStateUnknownException, TimeoutError, FutureTimeoutError, RequestException, BotoCoreError)
    return isinstance(error, sent) or type(error).__name__ == "TTransportException"


def _prepared(
    description: CatalogDescription,
    identifier: TableIdentifier,
    table: Table,
    branch: str,
    change: DataChange,
    properties: Mapping[str, str],
    retention_days: int | None,
) -> TableCommit:
    """Write the manifests of the snapshot on top of the branch's head, and return its commit."""
    head = table.snapshot_by_name(branch)
    head_id = None if head is None else head.snapshot_id
    expected = change.only_upon
    if head is None and branch != MAIN_BRANCH and not change.begins_branch:
        raise _conflict(identifier, expected=f"the branch {branch!r}", found="that another writer has dropped it")
    is_expected = expected is None or head_id in expected or (None in expected and _is_empty(head))
    if not is_expected and not _are_tolerated(description, identifier, branch, change):
        raise _conflict(
            identifier, expected="no rows of other writers since the rows were read", found=f"snapshot {head_id}"
        )
    if change.rewritten and head_id != change.read_at and _may_have_deletes(head):
        raise _conflict(
            identifier, expected="files with the rows that were read", found="that another writer may have deleted some"
        )
    prepared = _DataSnapshot(table, head)
    try:
        snapshot = prepared.write(identifier, change, properties)
    except BaseException:
        prepared.files.delete()
        raise
    expected_head = AssertRefSnapshotId.model_validate({"ref": branch, "snapshot-id": head_id})
    move = move_of(table, branch, snapshot.snapshot_id, retention_days=retention_days)
    return TableCommit(
        identifier,
        table,
        published={},
        requirements=(AssertTableUUID(uuid=table.metadata.table_uuid), expected_head),
        updates=(AddSnapshotUpdate(snapshot=snapshot), move),
        discard=prepared.files.delete,
    )


def _are_tolerated(
    description: CatalogDescription, identifier: TableIdentifier, branch: str, change: DataChange
) -> bool:
    """Return whether all snapshots that others have committed since the rows were read may be there."""
    if change.tolerates is None:
        return False
    state = look(description, identifier, back_to=lambda snapshot: snapshot.snapshot_id == change.read_at)
    return state is not None and state.has_only_since(change.read_at, branch, change.tolerates)


def _is_empty(snapshot: Snapshot | None) -> bool:
    """Return whether the snapshot has no files, as the one that a branch of a table without snapshots begins with."""
    summary = None if snapshot is None else snapshot.summary
    return summary is not None and summary.additional_properties.get("total-data-files") == "0"


def _may_have_deletes(snapshot: Snapshot | None) -> bool:
    """Return whether the table may have files of deleted rows, which do not remove the data files."""
    summary = None if snapshot is None else snapshot.summary
    return summary is None or summary.additional_properties.get("total-delete-files") != "0"


def straddling_files(table: Table, branch: str, replaced: BoundScope) -> dict[str, ManifestDataFile]:
    """Return the files of a branch that hold replaced rows and others, by path."""
    finder = _ReplacedFiles(table, replaced)
    manifests = [
        manifest for manifest in data_manifests(table, table.snapshot_by_name(branch)) if finder.may_be_in(manifest)
    ]
    files = entries_in(table, manifests, lambda entry: entry.data_file)
    return {file.file_path: file for file in files if finder.held_by(file) == "some"}


class _DataSnapshot:
    """The snapshot of a change."""

    def __init__(self, table: Table, head: Snapshot | None) -> None:
        """Prepare a snapshot upon the head of a branch."""
        self.table = table
        self.files = SnapshotFiles(table, Base.of(table, head))

    def write(self, identifier: TableIdentifier, change: DataChange, properties: Mapping[str, str]) -> Snapshot:
        """Write the manifests of the snapshot, and return it."""
        kept, removed = self._kept_and_removed(identifier, change)
        manifests = self._merged([*self.files.adding((file, None) for file in self._added(change)), *kept])
        return self.files.snapshot(manifests, change.operation, change.added, removed, properties)

    def _added(self, change: DataChange) -> Iterator[ManifestDataFile]:
        for file in change.added:
            file.spec_id = change.spec_id
            yield file

    def _kept_and_removed(
        self, identifier: TableIdentifier, change: DataChange
    ) -> tuple[list[ManifestFile], list[ManifestDataFile]]:
        """Return the manifests of the parent without files of the replaced rows, and these files."""
        kept, removed = list[ManifestFile](), list[ManifestDataFile]()
        finder = None if change.replaced is None else _ReplacedFiles(self.table, change.replaced)
        held_by = change.held_by if finder is None else finder.held_by
        for manifest in manifests_of(self.table.io, self.files.base.parent):
            if not (manifest.has_added_files() or manifest.has_existing_files()):
                continue
            is_needed = len(removed) < len(change.rewritten) if finder is None else finder.may_be_in(manifest)
            if manifest.content != ManifestContent.DATA or not is_needed:
                kept.append(manifest)
                continue
            entries = read_entries(self.table.io, manifest)
            held = {file_key(entry.data_file): held_by(entry.data_file) for entry in entries}
            straddling = {path for (path, _), found in held.items() if found == "some"} - change.rewritten
            if straddling:
                others = f"{straddling.pop()}, which holds rows of other partitions too"
                raise _conflict(identifier, expected="files of the replaced rows alone", found=others)
            going = {key for key, found in held.items() if found != "none"}
            if not going:
                kept.append(manifest)
                continue
            removed += [entry.data_file for entry in entries if file_key(entry.data_file) in going]
            kept.append(self.files.without(manifest, entries, going))
        if change.rewritten - {file.file_path for file in removed}:
            raise _conflict(
                identifier, expected="the files that are written again", found="that another writer has removed one"
            )
        return kept, removed

    def _merged(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        """Merge small manifests as an append of pyiceberg does, by the table's properties."""
        properties = self.table.metadata.properties
        merge: Any = _ManifestMergeManager(
            target_size_bytes=property_as_int(
                properties,
                TableProperties.MANIFEST_TARGET_SIZE_BYTES,
                TableProperties.MANIFEST_TARGET_SIZE_BYTES_DEFAULT,
            )
            or 0,
            min_count_to_merge=property_as_int(
                properties, TableProperties.MANIFEST_MIN_MERGE_COUNT, TableProperties.MANIFEST_MIN_MERGE_COUNT_DEFAULT
            )
            or 0,
            merge_enabled=property_as_bool(
                properties,
                TableProperties.MANIFEST_MERGE_ENABLED,
                default=True,  # as in Iceberg's Java library
            ),
            snapshot_producer=self.files,  # type: ignore[arg-type]
        )
        of_data = [manifest for manifest in manifests if manifest.content == ManifestContent.DATA]
        return [*merge.merge_manifests(of_data), *(item for item in manifests if item.content != ManifestContent.DATA)]


class _ReplacedFiles:
    """Finds the files that hold replaced rows, by their partitions and metrics."""

    def __init__(self, table: Table, replaced: BoundScope) -> None:
        """Prepare the evaluators."""
        self._replaced = replaced
        self._described = description_of(table, replaced.columns)
        has_transforms = any(isinstance(item, Partitions) for box in replaced.boxes for item in box)
        rows = ALWAYS_TRUE if has_transforms else expression_of(replaced.predicate())
        planner: Any = ManifestGroupPlanner(table.metadata, table.io, row_filter=rows)
        self._manifests: dict[int, _Evaluator] = {}
        self._partitions: dict[int, _Evaluator] = {}
        self._metrics: _Evaluator = planner._build_metrics_evaluator()  # noqa: SLF001 - no public call evaluates a file
        self._of_manifests = planner._build_manifest_evaluator  # noqa: SLF001
        self._of_partitions = planner._build_partition_evaluator  # noqa: SLF001

    def may_be_in(self, manifest: ManifestFile) -> bool:
        """Return whether the manifest may list such files."""
        spec_id = manifest.partition_spec_id
        if spec_id not in self._manifests:
            self._manifests[spec_id] = _guarded(partial(self._of_manifests, spec_id))
        return bool(self._manifests[spec_id](manifest))

    def held_by(self, file: ManifestDataFile) -> Literal["all", "some", "none"]:
        """Return which of the file's rows are replaced, as far as its metadata shows."""
        if file.spec_id not in self._partitions:
            self._partitions[file.spec_id] = _guarded(partial(self._of_partitions, file.spec_id))
        if not self._partitions[file.spec_id](file) or not self._metrics(file):
            return "none"
        left = within_file(self._replaced, self._described(file))
        if not left.boxes:
            return "none"
        return "all" if left.is_whole_table else "some"


def _guarded(build: Any) -> _Evaluator:
    """Return the evaluator; where pyiceberg cannot project the filter (`calendar_edges`), one that accepts all."""
    try:
        return build()
    except OverflowError:
        return lambda _: True
