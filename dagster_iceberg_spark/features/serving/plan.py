"""Decides what a point names, and what the metadata of a table says as of a snapshot.

The rules of the documents: Iceberg spec, "Table Metadata Fields", and the REST catalog's OpenAPI description.
"""

import datetime as dt
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

from dagster_iceberg_spark.errors import UpstreamMissingError
from dagster_iceberg_spark.plan.publication.branch import Environment
from dagster_iceberg_spark.plan.read.read_options import ReadOptions
from dagster_iceberg_spark.plan.read.read_plan import plan_read
from dagster_iceberg_spark.table.identifier import NotationError, TableIdentifier
from dagster_iceberg_spark.table.lineage import RUN_ID, UPSTREAM, upstream_reads
from dagster_iceberg_spark.table.scope import PartitionScope
from dagster_iceberg_spark.table.snapshot import MAIN_BRANCH, TableState
from dagster_iceberg_spark.table.updates import SetTag

PointKind: TypeAlias = Literal["release", "env", "run", "at"]
POINT_KINDS: Final[tuple[str, ...]] = get_args(PointKind)
_EXAMPLES: Final = "release/2026-11, env/pr-7, run/<id>, at/2026-11-01T00:00Z"


_MOST_NAMES: Final = 20


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a lake: a release, an environment, what a run saw, or an instant. A release is a tag of its name."""

    kind: PointKind
    name: str

    @classmethod
    def parse(cls, text: str) -> "Point":
        """Return the point of a text such as `release/2026-11`.

        Raises:
            NotationError: It is none.
        """
        kind, _, name = text.strip("/").partition("/")
        if kind not in POINT_KINDS or not name:
            raise NotationError(f"a point, such as {_EXAMPLES}", repr(text))
        point = cls(kind, name)  # type: ignore[arg-type]
        if kind == "at":
            point.instant  # noqa: B018 - raises an error if it is none
        return point

    def __str__(self) -> str:
        """Return the text of the point."""
        return f"{self.kind}/{self.name}"

    @property
    def instant(self) -> dt.datetime:
        """The instant of a point `at`.

        Raises:
            NotationError: It is no instant with a time zone, or none that has passed.
        """
        try:
            found = dt.datetime.fromisoformat(self.name.replace("Z", "+00:00"))
        except ValueError:
            raise NotationError("an instant such as 2026-11-01T00:00Z", repr(self.name)) from None
        if found.tzinfo is None or found > dt.datetime.now(dt.timezone.utc):
            raise NotationError("an instant with a time zone that has passed", repr(self.name))
        return found


def snapshots_at(
    point: Point, states: Mapping[TableIdentifier, TableState], *, action: str
) -> dict[TableIdentifier, int]:
    """Return the snapshot of each table that a point has.

    Raises:
        UpstreamMissingError: No table has the point. The message names the action, and lists some points that exist.
    """
    found = _snapshots_at(point, states)
    if not found:
        known = ", ".join(known_points(point.kind, states.values())[-_MOST_NAMES:]) or "none"
        raise UpstreamMissingError.refusing(
            action, str(point), expected="a table that has this point", found=f"none; {point.kind}: {known}"
        )
    return found


def _snapshots_at(point: Point, states: Mapping[TableIdentifier, TableState]) -> dict[TableIdentifier, int]:
    if point.kind == "run":
        return _seen_by_run(point.name, states)
    if point.kind == "env" and not any(Environment(point.name).branch in state.refs for state in states.values()):
        return {}
    found = ((identifier, _snapshot_at(point, state)) for identifier, state in states.items())
    return {
        identifier: snapshot_id
        for identifier, snapshot_id in found
        if snapshot_id is not None and snapshot_id in states[identifier].snapshots
    }


def _snapshot_at(point: Point, state: TableState) -> int | None:
    match point.kind:
        case "release":
            return None if state.has_branch(point.name) else state.refs.get(point.name)
        case "env":
            return state.refs.get(Environment(point.name).branch, state.refs.get(MAIN_BRANCH))
        case _:
            try:
                return plan_read(state, PartitionScope(), ReadOptions(as_of=point.instant)).snapshot_id
            except UpstreamMissingError:
                return None


def _seen_by_run(run_id: str, states: Mapping[TableIdentifier, TableState]) -> dict[TableIdentifier, int]:
    """Return the snapshots that a run has read, as its own snapshots record them, and of other tables its own.

    A step that reads a table several times reads the newest last.
    """
    read, written = dict[TableIdentifier, int](), dict[TableIdentifier, int]()
    for identifier, state in states.items():
        own = (item for item in state.snapshots.values() if item.summary.get(RUN_ID) == run_id)
        for snapshot in sorted(own, key=lambda item: item.committed_at_ms):
            written[identifier] = snapshot.snapshot_id
            for each in upstream_reads(snapshot.summary.get(UPSTREAM, "")):
                source = TableIdentifier.parse(each.table)
                if each.snapshot_id is not None and source in states and each.snapshot_id in states[source].snapshots:
                    read[source] = each.snapshot_id
    return {**written, **read}


SERVED_TAG: Final = "dagster_served_"
"""Prefix of the tags that keep what is served. The id of the point's snapshots follows."""


def tags_to_keep(
    resolution: str,
    snapshots: Mapping[TableIdentifier, int],
    states: Mapping[TableIdentifier, TableState],
    *,
    days: int,
    now: dt.datetime,
) -> dict[TableIdentifier, SetTag]:
    """Return the tags that keep a point for so many days more, for tables that lack them.

    A tag expires by the age of its snapshot, and not by its own (Iceberg spec, `max-ref-age-ms`).
    """
    name = f"{SERVED_TAG}{resolution}"
    lacking = {identifier: at for identifier, at in snapshots.items() if name not in states[identifier].refs}
    return {
        identifier: SetTag(name, at, (now - states[identifier].snapshots[at].committed_at).days + 1 + days)
        for identifier, at in lacking.items()
    }


def known_points(kind: str, states: Iterable[TableState]) -> list[str]:
    """Return the names of the points of a kind, as far as tables list them."""
    tables = list(states)
    match kind:
        case "release":
            names = {name for state in tables for name in state.refs if not state.has_branch(name)}
            return sorted(name for name in names if not name.startswith(SERVED_TAG))
        case "env":
            prefix = Environment("").branch
            names = {name for state in tables for name in state.refs if name.startswith(prefix)}
            return sorted(name.removeprefix(prefix) for name in names)
        case "run":
            found = {run for state in tables for item in state.snapshots.values() if (run := item.summary.get(RUN_ID))}
            return sorted(found)
        case _:
            return []


def resolution_id(point: Point, snapshots: Mapping[TableIdentifier, int]) -> str:
    """Return an id over the snapshots of a point, by which a client keeps to them."""
    found = sorted((str(identifier), snapshot_id) for identifier, snapshot_id in snapshots.items())
    return hashlib.sha256(repr((str(point), found)).encode()).hexdigest()[:20]


def document_at(document: Mapping[str, Any], snapshot_id: int) -> dict[str, Any]:
    """Return a table's metadata with `main` at a snapshot, and the schema of this snapshot.

    Raises:
        KeyError: The metadata has no such snapshot.
    """
    snapshot = {item["snapshot-id"]: item for item in document["snapshots"]}[snapshot_id]
    log = list[Any]()
    for entry in document.get("snapshot-log") or ():
        log.append(entry)
        if entry["snapshot-id"] == snapshot_id:
            break
    else:
        log = [{"snapshot-id": snapshot_id, "timestamp-ms": snapshot["timestamp-ms"]}]
    main = {**(document.get("refs") or {}).get(MAIN_BRANCH, {}), "type": "branch", "snapshot-id": snapshot_id}
    schema_id = snapshot.get("schema-id", document["current-schema-id"])
    return {
        **document,
        "current-snapshot-id": snapshot_id,
        "current-schema-id": schema_id,
        "refs": {**(document.get("refs") or {}), MAIN_BRANCH: main},
        "snapshot-log": log,
        **({"schema": _schema(document, schema_id)} if "schema" in document else {}),
    }


def _schema(document: Mapping[str, Any], schema_id: int) -> Any:
    """Return the schema that a document of format version 1 has besides its list of schemas."""
    found = [item for item in document.get("schemas") or () if item.get("schema-id") == schema_id]
    return found[0] if found else document["schema"]
