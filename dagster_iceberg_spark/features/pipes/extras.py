"""What a job must know and what it reports, as JSON. Both sides need the same version of the package."""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from decimal import Decimal
from importlib import import_module
from typing import Any, Final

from dagster_iceberg_spark.catalog.description import CatalogDescription, holds_secret
from dagster_iceberg_spark.distribution import PACKAGE_VERSION
from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.plan.options.metadata_key import Options
from dagster_iceberg_spark.plan.read.read_plan import ReadPlan
from dagster_iceberg_spark.plan.write.write_request import (
    Record,
    RetryLimits,
    TableRequest,
    TokenCandidate,
    WriteRequest,
)
from dagster_iceberg_spark.table.audit import AuditResult
from dagster_iceberg_spark.table.lineage import COMMIT_TOKEN, Materialization
from dagster_iceberg_spark.table.snapshot import Commit, RowCounts, TableState

EXTRAS: Final = "dagster_iceberg_spark"
"""The key of the document in the extras of Dagster Pipes, and of the job's report in its messages."""
_KIND: Final = "="
_PACKAGE: Final = __name__.partition(".")[0]
_ROOMS: Final = (f"{_PACKAGE}.plan.", f"{_PACKAGE}.table.", __name__)
"""Where the classes stand that a document may name."""
_TEXTS: Final[Mapping[str, tuple[type, Any, Any]]] = {
    "datetime": (dt.datetime, dt.datetime.isoformat, dt.datetime.fromisoformat),
    "date": (dt.date, dt.date.isoformat, dt.date.fromisoformat),
    "decimal": (Decimal, str, Decimal),
    "bytes": (bytes, bytes.hex, bytes.fromhex),
}


@dataclass(frozen=True, slots=True)
class JobOutput:
    """The part of a write request that a job needs.

    Args:
        records: What Dagster has recorded of the snapshots of earlier attempts, by their ids.
    """

    table: TableRequest
    materialization: Materialization
    candidates: tuple[TokenCandidate, ...]
    limits: RetryLimits
    audit_samples: int
    records: Mapping[int, Record]

    @classmethod
    def of(cls, request: WriteRequest, state: TableState | None) -> "JobOutput":
        """Return the part of a request."""
        tokens = {candidate.token for candidate in request.candidates}
        snapshots = [] if state is None else [*state.snapshots.values()]
        earlier = [item.snapshot_id for item in snapshots if item.summary.get(COMMIT_TOKEN) in tokens]
        return cls(
            request.table,
            request.materialization,
            request.candidates,
            request.limits,
            request.audit_samples,
            {snapshot_id: request.record_of(snapshot_id) for snapshot_id in earlier},
        )


@dataclass(frozen=True, slots=True)
class JobCatalog:
    """A catalog without its secrets.

    Args:
        left_out: The names of the properties of pyiceberg that hold secrets.
    """

    name: str
    kind: str
    endpoint: str
    spark_properties: Mapping[str, str]
    pyiceberg_properties: Mapping[str, Any]
    packages: tuple[str, ...]
    warehouse: str | None
    has_transactions: bool
    left_out: tuple[str, ...]

    @classmethod
    def of(cls, catalog: CatalogDescription) -> "JobCatalog":
        """Return the catalog without its secrets."""
        given = catalog.pyiceberg_properties
        shown = {key: value for key, value in given.items() if not _is_secret(catalog, key, value)}
        return cls(
            name=catalog.name,
            kind=catalog.kind,
            endpoint=catalog.endpoint,
            spark_properties=dict(catalog.spark_properties),
            pyiceberg_properties=shown,
            packages=catalog.packages,
            warehouse=catalog.warehouse,
            has_transactions=catalog.has_transactions,
            left_out=tuple(sorted({*catalog.spark_secrets, *(given.keys() - shown.keys())})),
        )


@dataclass(frozen=True, slots=True)
class JobDocument:
    """What a job must know: the catalog, its inputs and its outputs by name, and how Arrow writes."""

    catalog: JobCatalog
    inputs: Mapping[str, ReadPlan]
    outputs: Mapping[str, JobOutput]
    arrow_bytes: int
    is_case_sensitive: bool

    def extras(self) -> dict[str, Any]:
        """Return the document as extras of Dagster Pipes, with a part for jobs that do not use this package."""
        written = {
            name: {
                "table": str(output.table.identifier),
                "branch": output.table.branch,
                "write_disposition": output.materialization.write_disposition,
                "partitions": list(output.materialization.scope.keys),
                "summary": dict(output.materialization.properties()),
            }
            for name, output in self.outputs.items()
        }
        read = {
            name: {"table": str(plan.identifier), "snapshot_id": plan.snapshot_id, "columns": list(plan.columns)}
            for name, plan in self.inputs.items()
        }
        shown = {"catalog": self.catalog.name, "inputs": read, "outputs": written}
        return {EXTRAS: {"version": PACKAGE_VERSION, **shown, "document": encode(self)}}


def read_document(extras: Mapping[str, Any]) -> JobDocument:
    """Return the document in the extras of a job.

    Raises:
        ConfigurationError: There is none, or another version of the package has written it.
    """
    given = extras.get(EXTRAS)
    if given is None:
        raise ConfigurationError.refusing(
            "open",
            "the tables of the job",
            expected=f"the extra {EXTRAS!r}, which `IcebergPipes.run` sends",
            found=f"the extras {', '.join(sorted(extras)) or 'none'}",
            hint="launch the job with `IcebergPipes.run`.",
        )
    if given.get("version") != PACKAGE_VERSION:
        raise ConfigurationError.refusing(
            "open",
            "the tables of the job",
            expected=f"version {given.get('version')} of dagster-iceberg-spark, which the code location has",
            found=f"version {PACKAGE_VERSION} in the environment of the job",
            hint="install the same version on both sides.",
        )
    document: JobDocument = decode(given["document"])
    return document


@dataclass(frozen=True, slots=True)
class JobReport:
    """What a job reports of an output besides its snapshot.

    Args:
        audits: The results of audits, by name.
        snapshot_id: The snapshot that it has committed, or None if it has failed.
        counts: The counts of its rows, or None.
    """

    output: str
    audits: Mapping[str, AuditResult] = field(default_factory=dict)
    snapshot_id: int | None = None
    counts: RowCounts | None = None

    @classmethod
    def of(cls, output: str, results: Sequence[AuditResult], commit: Commit | None = None) -> "JobReport":
        """Return the report of a commit, or of audits that have failed."""
        audits = {result.audit.name: result for result in results}
        return (
            cls(output, audits) if commit is None else cls(output, audits, commit.snapshot.snapshot_id, commit.counts)
        )

    def message(self) -> dict[str, Any]:
        """Return the report as a message of Dagster Pipes."""
        return {EXTRAS: encode(self)}


def reports_in(messages: Sequence[Any]) -> dict[str, JobReport]:
    """Return the reports in the messages of a job, by the name of the output."""
    found = [message[EXTRAS] for message in messages if isinstance(message, Mapping) and EXTRAS in message]
    return {report.output: report for report in map(decode, found)}


def encode(value: Any) -> Any:
    """Return a value of the plan or of the vocabulary as JSON."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return [encode(item) for item in value]
    if isinstance(value, tuple | frozenset):
        return {_KIND: type(value).__name__, "items": [encode(item) for item in value]}
    if isinstance(value, Mapping):
        return {_KIND: "dict", "items": [[encode(key), encode(item)] for key, item in value.items()]}
    for name, (type_of, text_of, _) in _TEXTS.items():
        if isinstance(value, type_of):
            return {_KIND: name, "text": text_of(value)}
    kind = type(value)
    if not kind.__module__.startswith(_ROOMS) or not (issubclass(kind, Options) or is_dataclass(kind)):
        raise TypeError(kind)
    names = kind.model_fields if issubclass(kind, Options) else [item.name for item in fields(kind) if item.init]
    kept = {name: encode(getattr(value, name)) for name in names}
    return {_KIND: f"{kind.__module__}:{kind.__qualname__}", "fields": kept}


def decode(value: Any) -> Any:
    """Return the value that `encode` has encoded. No other classes than those of the plan are loaded."""
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    kind = value[_KIND]
    if kind in _TEXTS:
        return _TEXTS[kind][2](value["text"])
    if kind == "dict":
        return {decode(key): decode(item) for key, item in value["items"]}
    if kind in ("tuple", "frozenset"):
        return (tuple if kind == "tuple" else frozenset)(map(decode, value["items"]))
    module, _, name = kind.partition(":")
    if not module.startswith(_ROOMS):
        raise TypeError(kind)
    made: Any = getattr(import_module(module), name)
    is_model = isinstance(made, type) and issubclass(made, Options)
    if not is_model and not is_dataclass(made):
        raise TypeError(kind)
    construct: Any = made.model_construct if is_model else made
    return construct(**{key: decode(item) for key, item in value["fields"].items()})


def _is_secret(catalog: CatalogDescription, key: str, value: Any) -> bool:
    text = str(value)
    return holds_secret(key) or catalog.redact(text) != text
