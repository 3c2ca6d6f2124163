"""The lineage of a snapshot: the keys and values that the package writes to the summary of each snapshot.

The keys are lower case because the engine lower-cases the keys of write options.
"""

import datetime as dt
import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias, get_args

from dagster_iceberg_spark.table.scope import PartitionScope
from dagster_iceberg_spark.table.snapshot import Snapshot

RUN_WITHOUT_STEP: Final = "no-run"
"""The run id of a context that was built by hand. The package never looks up such writes."""

ASSET_KEY: Final = "dagster.asset_key"
RUN_ID: Final = "dagster.run_id"
JOB: Final = "dagster.job"
STEP_KEY: Final = "dagster.step_key"
PARTITION_KEYS: Final = "dagster.partition_keys"
PARTITION_DIGEST: Final = "dagster.partition_digest"
CODE_VERSION: Final = "dagster.code_version"
COMMIT_TOKEN: Final = "dagster.commit_token"  # noqa: S105 - the name of a key
RESUMES: Final = "dagster.resumes"
"""The commit tokens of the runs that the run resumes, as a JSON list. A process of these that still runs has nothing to
write: it finds its rows there."""
UPSTREAM: Final = "dagster.upstream"
WRITE_DISPOSITION: Final = "dagster.write_disposition"
PACKAGE_VERSION: Final = "dagster_iceberg_spark.version"
BOUNDARY: Final = "dagster_iceberg_spark.boundary"
"""On a snapshot of a history (SCD 2): the instant at which the versions that it added begin."""
HISTORY: Final = "dagster_iceberg_spark.history"
"""On a snapshot of a history (SCD 2): a digest of the rows whose versions were compared."""
CARRIES_OVER: Final = "dagster_iceberg_spark.carries_over"
"""On a snapshot that rewrote rows of other partitions too. Its row counts include them."""
SEQUENCE_NUMBER: Final = "dagster_iceberg_spark.sequence_number"
"""In the kept summary of an expired snapshot: its sequence number, by which rows of format version 3 refer to it."""
FIRST_ROW_ID: Final = "dagster_iceberg_spark.first_row_id"
"""In the kept summary of an expired snapshot of format version 3: the id of the first row that it added."""
MERGED_ROWS: Final = "spark.merge-into.num-target-rows-{}"
"""On the snapshot of a MERGE, by Spark 4.1: the numbers of rows that it `inserted`, `updated` and `deleted`."""
COUNTED_ROWS: Final = "dagster_iceberg_spark.merge_{}_rows"
"""On the snapshot of a MERGE whose rows Spark does not count, or counts twice: how many it `inserted` and `updated`."""

BRANCH_START: Final = "dagster.branch_start"
"""On a snapshot of an environment: the snapshot of `main` that its branch began at. Histories lose that by expiry."""
UNDOES: Final = "dagster.undoes"
"""On a snapshot that undoes others: the ids of these, as a JSON list."""
UNDO: Final = "undo"
"""The write disposition of such a snapshot."""
MAINTAINED_PROPERTY: Final = "dagster.maintained_at"
"""Table property: when the package maintained the table last, in ISO 8601."""
RETENTION: Final = "retention"
"""The write disposition of a snapshot that deletes rows of partitions that are not retained any longer."""
UNDONE_BRANCH: Final = "dagster_undone"
"""The branch of a table in which runs were undone. It holds an empty snapshot, which `main` does not have.

An undo adds files that an earlier snapshot has removed. When that snapshot expires, `IncrementalFileCleanup` of Iceberg
1.12 deletes what it removed, whoever has it now. Iceberg uses `ReachableFileCleanup`, which looks at all snapshots, if
one of them is no ancestor of `main` (`RemoveSnapshots.hasNonMainSnapshots`). Nessie, which has no Iceberg branches,
collects garbage itself.
"""

EXPIRED_SNAPSHOTS_TABLE: Final = "dagster_expired_snapshots"
"""The table of each namespace in which maintenance keeps the summaries of expired snapshots."""

OWNER_PROPERTY: Final = "dagster.asset_key"
"""Table property: the asset that owns the table."""
SHARED_PROPERTY: Final = "dagster.named_by"
"""Table property: how the owner named the table. With `iceberg/table`, assets that name the same table share it."""
NAMED_EXPLICITLY: Final = "iceberg/table"
SHARERS_PROPERTY: Final = "dagster.shared_by"
"""Table property: the other assets that have written the table, as a JSON list."""

SNAPSHOT_ID: Final = "iceberg/snapshot_id"
"""Key of a materialization's metadata: the snapshot that it committed."""
STAGED_TOKEN: Final = "iceberg/commit_token"  # noqa: S105 - the name of a key
"""Key of a materialization's metadata: the commit token of rows that wait for a release."""

MAXIMUM_UPSTREAM_BYTES: Final = 2048

ReadKind: TypeAlias = Literal["changes", "changelog"]
"""The kind of an incremental read: the rows that were added, or every change."""


@dataclass(frozen=True, slots=True)
class UpstreamRead:
    """A read of an upstream table by an input of a step: one that is asked for, or one that was made.

    Args:
        asset_key: The key of the upstream asset, with slashes between its parts.
        table: The table, with its namespace.
        snapshot_id: The snapshot that was read, or None if the table had none. In a read that is asked for, the
            snapshot to read up to, or None for the newest.
        scope: The partitions in bounded form, or None for the whole table.
        kind: The kind of an incremental read, or None if the snapshot's rows are read.
        since: The snapshot after which the changes begin, or None if all rows of the snapshot are new.
        digest: The digest of the exact set of partitions. A summary has it only for an incremental read.
        input_name: The name of the input. A summary has it only for an incremental read.
        is_repeated: Whether the read includes rows that had been read before.
        left_out: The option that leaves out rows of the snapshot: the limit or the hash of the row filter, or None.
        output_heads: Each asset of the step with its table's current snapshot at the time of an incremental read. This
            is not written to the summary.
        is_pinned: Whether the input selects another time. This is not written to the summary.
        is_staged: Whether the rows are staged, and not published yet. This is not written to the summary.
        is_of_asset: Whether the input is an asset, and not the output of an op. This is not written to the summary.
        snapshot: The snapshot that was read, or None if the table had none. This is not written to the summary.
        columns: The columns that were read. This is not written to the summary.
        asked_at: When the load began, in seconds since 1970. This is not written to the summary.
    """

    asset_key: str
    table: str
    snapshot_id: int | None
    scope: str | None
    kind: ReadKind | None = None
    since: int | None = None
    digest: str | None = None
    input_name: str | None = None
    is_repeated: bool = False
    left_out: str | None = None
    output_heads: tuple[tuple[str, int | None], ...] = ()
    is_pinned: bool = False
    is_staged: bool = False
    is_of_asset: bool = True
    snapshot: Snapshot | None = None
    columns: tuple[str, ...] = ()
    asked_at: float = math.inf

    @property
    def range(self) -> tuple[Any, ...]:
        """The identity of an incremental read: the input, the table, and where the range begins and ends."""
        return (self.input_name, self.table, self.since, self.snapshot_id)

    def document(self) -> dict[str, Any]:
        """Return the read in the form that the summary stores."""
        document = {"asset": self.asset_key, "table": self.table, "snapshot_id": self.snapshot_id, "scope": self.scope}
        document |= {"left_out": self.left_out} if self.left_out else {}
        if self.kind is None:
            return document
        read = {"read": self.kind, "since": self.since, "partitions": self.digest, "input": self.input_name}
        return document | read | ({"repeated": True} if self.is_repeated else {})


@dataclass(frozen=True, slots=True)
class Materialization:
    """The lineage of one materialization. The asset key of an op's output consists of its step and output names."""

    asset_key: str
    run_id: str
    job: str | None
    step_key: str | None
    scope: PartitionScope
    code_version: str | None
    upstream: tuple[UpstreamRead, ...]
    write_disposition: str
    commit_token: str
    package_version: str
    started_at: dt.datetime | None = None
    resumes: tuple[str, ...] = ()

    @property
    def reads_changes(self) -> bool:
        """Whether the step read an input incrementally."""
        return any(read.kind is not None for read in self.upstream)

    def properties(self) -> dict[str, str]:
        """Return the keys and values for the snapshot's summary."""
        optional = {JOB: self.job, STEP_KEY: self.step_key, CODE_VERSION: self.code_version}
        partitions = {} if self.scope.is_whole_table else {PARTITION_KEYS: self.scope.describe()}
        return {
            ASSET_KEY: self.asset_key,
            RUN_ID: self.run_id,
            PARTITION_DIGEST: self.scope.digest,
            COMMIT_TOKEN: self.commit_token,
            UPSTREAM: upstream_document(self.upstream),
            WRITE_DISPOSITION: self.write_disposition,
            PACKAGE_VERSION: self.package_version,
            **partitions,
            **{key: value for key, value in optional.items() if value},
            **({RESUMES: json.dumps(self.resumes)} if self.resumes else {}),
        }


def commit_token(*, run_id: str, output: str, scope: PartitionScope, branch: str) -> str:
    """Return the token of one materialization. Its attempts share the token; every other materialization has another.

    The run is the one that materializes, not the root run. `output` is the asset key or, for an op's output, its step
    key, output name and mapping key.
    """
    document = json.dumps([run_id, output, scope.digest, branch])
    return hashlib.sha256(document.encode()).hexdigest()[:32]


def resumed_tokens(summary: Mapping[str, str]) -> frozenset[str]:
    """Return the commit tokens of the runs that the run of a snapshot resumes."""
    return frozenset(json.loads(summary[RESUMES])) if RESUMES in summary else frozenset()


def settled_tokens(summary: Mapping[str, str]) -> frozenset[str]:
    """Return the commit tokens under which nothing more is to be written: the snapshot's own and those it resumes."""
    return resumed_tokens(summary) | ({summary[COMMIT_TOKEN]} if COMMIT_TOKEN in summary else frozenset())


def upstream_document(reads: Sequence[UpstreamRead]) -> str:
    """Return the inputs as JSON: a list of at most 2 kB or, if it were longer, their digest and count.

    Incremental reads are always listed, because the next run continues from them.
    """
    rows = [read.document() for read in reads]
    document = json.dumps(rows, separators=(",", ":"))
    if len(document.encode()) <= MAXIMUM_UPSTREAM_BYTES:
        return document
    digest = hashlib.sha256(document.encode()).hexdigest()
    changes = [read.document() for read in reads if read.kind is not None]
    listed = {"changes": changes} if changes else {}
    return json.dumps({"digest": digest, "count": len(rows), **listed}, separators=(",", ":"))


def upstream_reads(document: str) -> tuple[UpstreamRead, ...]:
    """Return the inputs that a summary lists. If there were too many, these are the incremental reads only."""
    written = json.loads(document) if document else ()
    rows = written if isinstance(written, list) else written.get("changes", ()) if written else ()
    return tuple(
        UpstreamRead(
            row["asset"],
            row["table"],
            row["snapshot_id"],
            row["scope"],
            kind=row["read"] if row.get("read") in get_args(ReadKind) else None,
            since=row.get("since"),
            digest=row.get("partitions"),
            input_name=row.get("input"),
            is_repeated=bool(row.get("repeated")),
            left_out=row.get("left_out"),
        )
        for row in rows
    )


def with_published_reads(document: str, published: Mapping[int, int]) -> str:
    """Return the inputs of a summary with the ids of the published snapshots, by the ids of the staged ones.

    The id of the staged snapshot that was read stays beside it.
    """
    written = json.loads(document) if document else []
    rows = written if isinstance(written, list) else written.get("changes", ())
    for row in rows:
        if row["snapshot_id"] in published:
            row["staged_snapshot_id"] = row["snapshot_id"]
            row["snapshot_id"] = published[row["snapshot_id"]]
    return json.dumps(written, separators=(",", ":"))


def with_forgotten_reads(document: str, reads: Iterable[UpstreamRead]) -> str:
    """Return the inputs of a summary, and others of which nothing counts as read."""
    written = json.loads(document) if document else []
    rows = written if isinstance(written, list) else written.setdefault("changes", [])
    rows += [replace(read, snapshot_id=None, since=None, is_repeated=False).document() for read in reads]
    return json.dumps(written, separators=(",", ":"))


def changes_read(summary: Mapping[str, str]) -> set[tuple[Any, ...]]:
    """Return the ranges of the incremental reads that a snapshot was derived from."""
    return {read.range for read in upstream_reads(summary.get(UPSTREAM, "")) if read.kind is not None}


def undone_by(summary: Mapping[str, str]) -> frozenset[int]:
    """Return the snapshots that a snapshot undoes."""
    return frozenset(json.loads(summary.get(UNDOES, "[]")))


def has_all_reads(document: str) -> bool:
    """Return whether a snapshot's summary lists all inputs."""
    return not document.startswith("{")
