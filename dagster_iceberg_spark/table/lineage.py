"""Who made a snapshot: the names and values that the package writes into every snapshot's summary.

Keys are lower case because the engine lower-cases the keys of write options.
"""

import datetime as dt
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

from dagster_iceberg_spark.table.scope import PartitionScope

ASSET_KEY: Final = "dagster.asset_key"
RUN_ID: Final = "dagster.run_id"
JOB: Final = "dagster.job"
STEP_KEY: Final = "dagster.step_key"
PARTITION_KEYS: Final = "dagster.partition_keys"
PARTITION_DIGEST: Final = "dagster.partition_digest"
CODE_VERSION: Final = "dagster.code_version"
COMMIT_TOKEN: Final = "dagster.commit_token"  # noqa: S105 - the name of a key
UPSTREAM: Final = "dagster.upstream"
WRITE_DISPOSITION: Final = "dagster.write_disposition"
PACKAGE_VERSION: Final = "dagster_iceberg_spark.version"
BOUNDARY: Final = "dagster_iceberg_spark.boundary"
"""On a snapshot of a history: when the versions begin that it added."""
HISTORY: Final = "dagster_iceberg_spark.history"
"""On the same: a digest of the rows whose versions were compared."""
CARRIES_OVER: Final = "dagster_iceberg_spark.carries_over"
"""On a snapshot that also wrote rows of other partitions anew, which its numbers count too."""

OWNER_PROPERTY: Final = "dagster.asset_key"
"""Table property: the asset that owns the table."""
SHARED_PROPERTY: Final = "dagster.named_by"
"""Table property: how the owner named the table; `iceberg/table` lets other assets that do the same share it."""
NAMED_EXPLICITLY: Final = "iceberg/table"
SHARERS_PROPERTY: Final = "dagster.shared_by"
"""Table property: the other assets that have written the table, as a JSON list."""

MAXIMUM_UPSTREAM_BYTES: Final = 2048

ReadKind: TypeAlias = Literal["changes", "changelog"]
"""What is read of a range of snapshots: the rows that were added, or every change."""


@dataclass(frozen=True, slots=True)
class UpstreamRead:
    """An input that the package loaded for a step.

    Args:
        asset_key: The upstream asset, its parts joined by slashes.
        table: The table that was read, with its namespace.
        snapshot_id: The snapshot that was read; None for a table without one.
        scope: The partitions that were read, in bounded form; None for the whole table.
        kind: Which changes were read; None: the snapshot's rows.
        since: The snapshot after which the changes begin; None: all rows of the snapshot were new.
        digest: Of the exact set of partitions, where changes were read.
        input_name: The input, where changes were read.
        output_heads: The snapshot that each table of the step had then, by its asset. It is not written down.
        is_repeated: Whether rows were read that had been read before.
        is_pinned: Whether the table was read as it was at another time, or on a branch. It is not written down.
        left_out: What left rows of the snapshot out: a limit, or which row filter; None: nothing did.
    """

    asset_key: str
    table: str
    snapshot_id: int | None
    scope: str | None
    kind: ReadKind | None = None
    since: int | None = None
    digest: str | None = None
    input_name: str | None = None
    output_heads: tuple[tuple[str, int | None], ...] = ()
    is_repeated: bool = False
    is_pinned: bool = False
    left_out: str | None = None

    @property
    def range(self) -> tuple[Any, ...]:
        """What tells the changes from others: the input, the table, and where they begin and end."""
        return (self.input_name, self.table, self.since, self.snapshot_id)

    def document(self) -> dict[str, Any]:
        """Return the read as the summary has it."""
        said = {"asset": self.asset_key, "table": self.table, "snapshot_id": self.snapshot_id, "scope": self.scope}
        said |= {"left_out": self.left_out} if self.left_out else {}
        if self.kind is None:
            return said
        read = {"read": self.kind, "since": self.since, "partitions": self.digest, "input": self.input_name}
        return said | read | ({"repeated": True} if self.is_repeated else {})


@dataclass(frozen=True, slots=True)
class Materialization:
    """What one materialization says about itself in the snapshot.

    Args:
        asset_key: The asset, its parts joined by slashes; for an op's output its step and output names.
        run_id: Dagster's run.
        job: The run's job.
        step_key: The run's step.
        scope: The partitions that are materialized.
        code_version: The asset's declared code version, if any.
        upstream: The inputs that the step loaded.
        write_disposition: How the rows are written.
        commit_token: The token that makes the commit recognisable.
        package_version: Version of this package.
        started_at: When the run began, where that matters.
    """

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

    @property
    def reads_changes(self) -> bool:
        """Whether it is made of changes of an input."""
        return any(read.kind is not None for read in self.upstream)

    def properties(self) -> dict[str, str]:
        """Return the summary's keys and values."""
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
        }


def commit_token(*, run_id: str, output: str, scope: PartitionScope, branch: str) -> str:
    """Return the token of one materialization: the same for every attempt of it, another for any other.

    Args:
        run_id: The run that materializes; never the root run.
        output: The asset key; for an op's output its step key, output name and mapping key.
        scope: The partitions that are materialized.
        branch: The branch that is written.
    """
    document = json.dumps([run_id, output, scope.digest, branch])
    return hashlib.sha256(document.encode()).hexdigest()[:32]


def upstream_document(reads: Sequence[UpstreamRead]) -> str:
    """Return the inputs as JSON of at most 2 kB: a list, or where that is longer their digest and count.

    Those that changes were read of are always listed: the next run reads on from there.
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
    """Return the inputs that a snapshot's summary lists: of too many, those that changes were read of."""
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


def changes_read(summary: Mapping[str, str]) -> set[tuple[Any, ...]]:
    """Return the ranges of changes that a snapshot was made of; mostly none."""
    return {read.range for read in upstream_reads(summary.get(UPSTREAM, "")) if read.kind is not None}


def has_all_reads(document: str) -> bool:
    """Say whether a snapshot's summary lists all inputs."""
    return not document.startswith("{")
