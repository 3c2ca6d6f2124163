"""The write request of one materialization, and the table that a definition asks for."""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from string import Formatter
from typing import Final, TypeAlias

from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.plan.options.output_options import WriteOptions
from dagster_iceberg_spark.plan.publication.environment import WriteTarget
from dagster_iceberg_spark.plan.publication.staging import Staging
from dagster_iceberg_spark.plan.schema.renames import StoredNames
from dagster_iceberg_spark.plan.write.adoption import RecordCheck, RemoteAttempt, TokenCandidate
from dagster_iceberg_spark.table import lineage
from dagster_iceberg_spark.table.audit import SHOWN_ROWS
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.lineage import Materialization
from dagster_iceberg_spark.table.snapshot import MAIN_BRANCH, Commit

NAMESPACE: Final = "namespace"
TABLE: Final = "table"
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.-]")
_safe: Final = partial(_UNSAFE.sub, "_")
_IS_ABSOLUTE: Final = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:")
_DEFAULT: Final = "{namespace}/{table}"


@dataclass(frozen=True, slots=True)
class LocationTemplate:
    """A template for the directories of tables, such as `s3://lake/{namespace}/{table}`.

    A relative path is below the warehouse. The namespace, a slash and the table keep any two tables apart.
    """

    text: str

    def __post_init__(self) -> None:
        try:
            parts = list(Formatter().parse(self.text))
        except ValueError:
            parts = []
        fields = [(field, spec, conversion) for _, field, spec, conversion in parts if field is not None]
        if fields != [(NAMESPACE, "", None), (TABLE, "", None)] or "/" not in parts[1][0]:
            raise ConfigurationError.refusing(
                "place tables by",
                "`table_location`",
                expected=f"a template with `{{{NAMESPACE}}}`, a slash and `{{{TABLE}}}`, such as s3://lake/{_DEFAULT}",
                found=repr(self.text),
            )

    def location_of(self, identifier: TableIdentifier, warehouse: str | None) -> str:
        """Return the table's directory. The warehouse is None if only the catalog's server knows it."""
        path = self.text.format(namespace="/".join(map(_safe, identifier.namespace)), table=_safe_name(identifier))
        if _IS_ABSOLUTE.match(path):
            return path
        if warehouse is None:
            raise ConfigurationError.refusing(
                "place",
                str(identifier),
                expected="a `table_location` that begins with the scheme of its store, such as s3://lake/",
                found=f"{self.text!r}, which is relative to a warehouse that only the catalog's server knows",
            )
        return f"{warehouse.rstrip('/')}/{path}"


def default_location(identifier: TableIdentifier, warehouse: str | None) -> str | None:
    """Return a directory for a table whose name makes a path that some engines cannot read, or None for other tables.

    A slash in a name would nest one table in another. pyiceberg 0.12.0 cuts a path at `#` and `?`, as if it were a URI
    (not reported upstream as of 0.12.0).
    """
    if warehouse is None or not _UNSAFE.search("".join(identifier.parts)):
        return None
    return LocationTemplate(_DEFAULT).location_of(identifier, warehouse)


def _safe_name(identifier: TableIdentifier) -> str:
    """Return the table's name. If a part had to be changed, a digest of all parts keeps the name unique."""
    if not _UNSAFE.search("".join(identifier.parts)):
        return identifier.name
    digest = hashlib.sha256("\0".join(identifier.parts).encode()).hexdigest()[:12]
    return f"{_safe(identifier.name)}-{digest}"


@dataclass(frozen=True, slots=True)
class TableCreation:
    """How a table and its namespace are created. Without a template, the catalog chooses the location."""

    creates_table: bool = True
    creates_namespace: bool = True
    namespace_properties: Mapping[str, str] = field(default_factory=dict)
    location: LocationTemplate | None = None

    def __post_init__(self) -> None:
        """Reject properties that namespaces cannot share, or that Spark sets."""
        for key in ("location", "owner"):
            if key in self.namespace_properties:
                raise ConfigurationError.refusing(
                    "use",
                    "`namespace_properties`",
                    expected="properties that suit every namespace",
                    found=repr(key),
                    hint="place tables by `table_location`." if key == "location" else "Spark sets it to its user.",
                )


def missing_namespace(identifier: TableIdentifier) -> ConfigurationError:
    """Return the error for a table whose namespace does not exist and must not be created."""
    return ConfigurationError.refusing(
        "write",
        str(identifier),
        expected="a namespace that is there, as `auto_create_namespace` is false",
        found="none of that name",
        hint="create it, or let the IO manager do it.",
    )


def missing_table(identifier: TableIdentifier, columns: str | None = None) -> ConfigurationError:
    """Return the error for a table that does not exist and must not be created."""
    how = "create it" if columns is None else f"create it with the columns {columns}"
    return ConfigurationError.refusing(
        "write",
        str(identifier),
        expected="a table that is there, as `auto_create_table` is false",
        found="none of that name",
        hint=f"{how}, or let the IO manager do it.",
    )


@dataclass(frozen=True, slots=True)
class TableRequest:
    """The table that a definition asks for. An op's output has no asset key, and owns no table.

    `staging` is None for a write whose rows are published at once.
    """

    identifier: TableIdentifier
    asset_key: str | None
    is_named_explicitly: bool
    options: WriteOptions
    column_docs: Mapping[str, str] = field(default_factory=dict)
    creation: TableCreation = field(default_factory=TableCreation)
    staging: Staging | None = None
    target: WriteTarget = field(default_factory=WriteTarget)

    @property
    def branch(self) -> str:
        """The branch that the write goes to."""
        return self.options.branch if self.staging is None else self.staging.branch

    def by_names(self, names: StoredNames) -> "TableRequest":
        """Return the request with the table's names of the columns."""
        docs = {names.column(column): doc for column, doc in self.column_docs.items()}
        return replace(self, options=names.of_options(self.options), column_docs=docs)

    def with_properties(self, properties: Mapping[str, str]) -> "TableRequest":
        """Return the request with more table properties. Those that it already sets keep their values."""
        wanted = {**properties, **self.options.table_properties}
        return replace(self, options=replace(self.options, table_properties=wanted))

    def ownership(self) -> dict[str, str]:
        """Return the table properties that record the owner."""
        if self.asset_key is None:
            return {}
        named = {lineage.SHARED_PROPERTY: lineage.NAMED_EXPLICITLY} if self.is_named_explicitly else {}
        return {lineage.OWNER_PROPERTY: self.asset_key, **named}


Report: TypeAlias = Callable[[str], None]
"""Writes a line to the run's log."""
Announce: TypeAlias = Callable[[RemoteAttempt], None]
"""Records the session on a Spark Connect server in which an attempt is about to write."""


@dataclass(frozen=True, slots=True)
class RetryLimits:
    """The limits of a write: attempts, including the first, and the seconds in which an attempt may start."""

    attempts: int = 5
    seconds: float = 600.0


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """The write request of an output.

    Args:
        announce: Records the session on a Spark Connect server in which this attempt writes.
        earlier_attempts: Returns the sessions in which earlier attempts wrote.
        audit_samples: How many rows that fail an audit are shown.
    """

    table: TableRequest
    materialization: Materialization
    candidates: tuple[TokenCandidate, ...]
    record_of: RecordCheck
    limits: RetryLimits
    report: Report
    announce: Announce
    earlier_attempts: Callable[[], Sequence[RemoteAttempt]]
    audit_samples: int = SHOWN_ROWS

    @property
    def identifier(self) -> TableIdentifier:
        """The table."""
        return self.table.identifier

    @property
    def subject(self) -> str:
        """The table, for messages."""
        return str(self.table.identifier)

    @property
    def branch(self) -> str:
        """The branch that the write goes to."""
        return self.table.branch

    def shows_in_main(self, commit: Commit) -> bool:
        """Return whether the rows of a commit are in `main`, not in another branch or staged."""
        return commit.staged_branch is None and self.table.options.branch == MAIN_BRANCH

    @property
    def searched_branches(self) -> tuple[tuple[str, tuple[TokenCandidate, ...]], ...]:
        """The branches that may hold what an earlier attempt committed, each with the tokens to look for.

        What another run has staged, and no run has published, is not adopted: its rows may have failed an audit.
        """
        staging = self.table.staging
        if staging is None:
            return ((self.branch, self.candidates),)
        own = tuple(candidate for candidate in self.candidates if candidate.is_same_run)
        return ((staging.target, self.candidates), (staging.branch, own))
