"""Who made a snapshot: the names and values that the package writes into every snapshot's summary.

Keys are lower case because the engine lower-cases the keys of write options.
"""

import datetime as dt
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

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


@dataclass(frozen=True, slots=True)
class UpstreamRead:
    """An input that the package loaded for a step.

    Args:
        asset_key: The upstream asset, its parts joined by slashes.
        table: The table that was read, with its namespace.
        snapshot_id: The snapshot that was read; None for a table without one.
        scope: The partitions that were read, in bounded form; None for the whole table.
    """

    asset_key: str
    table: str
    snapshot_id: int | None
    scope: str | None


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
    """Return the inputs as JSON of at most 2 kB: a list, or where that is longer their digest and count."""
    rows = [
        {"asset": read.asset_key, "table": read.table, "snapshot_id": read.snapshot_id, "scope": read.scope}
        for read in reads
    ]
    document = json.dumps(rows, separators=(",", ":"))
    if len(document.encode()) <= MAXIMUM_UPSTREAM_BYTES:
        return document
    digest = hashlib.sha256(document.encode()).hexdigest()
    return json.dumps({"digest": digest, "count": len(rows)}, separators=(",", ":"))


def upstream_reads(document: str) -> tuple[UpstreamRead, ...]:
    """Return the inputs of a snapshot's summary; none where it has none, or only their digest."""
    rows = json.loads(document) if document else ()
    if not isinstance(rows, list):
        return ()
    return tuple(UpstreamRead(row["asset"], row["table"], row["snapshot_id"], row["scope"]) for row in rows)
