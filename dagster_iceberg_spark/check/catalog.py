"""The steps that check a catalog, from its configuration to a table that both engines read."""

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.look import find_table, translated_answers
from dagster_iceberg_spark.catalog.transaction import recognizes_repetitions
from dagster_iceberg_spark.check.findings import Finding, Redact, Step, finding_of, findings
from dagster_iceberg_spark.errors import ConfigurationError, IcebergSparkError, InvestigationError, UpstreamMissingError
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.versions import ICEBERG_SPARK_RUNTIME

if TYPE_CHECKING:
    from dagster_iceberg_spark.spark.session.session import IcebergSession

_ROWS: Final = 3


@dataclass
class CatalogCheck:
    """The steps of a check, which share one table."""

    configured: Callable[[], CatalogDescription]
    describe: Callable[[], CatalogDescription]
    """Returns the catalog as the engines need it. If only the session describes it, this opens the session."""
    open_session: Callable[[], "IcebergSession"]
    _: KW_ONLY
    redact: Redact
    jars: str
    needs_java: bool
    namespace: tuple[str, ...] | None
    """An existing namespace for the table. If it is None, the check creates a namespace and drops it."""

    def __post_init__(self) -> None:
        name = f"dagster_check_{uuid.uuid4().hex[:12]}"
        self._namespace = self.namespace or (name,)
        self._table = TableIdentifier(self._namespace, name)
        self._made: list[str] = []
        self._location = ""
        self._is_idle = threading.Event()
        self._is_idle.set()

    def findings(self, subject: str, *, seconds: float) -> Iterator[Finding]:
        """Yield the finding of each step. Whatever the check has created is always dropped."""
        catalog = Step("catalog", self._catalog, "`uri`, `authentication` and `warehouse` of the resource's `catalog`")
        session = Step(
            "session", self._session, "`jars`, `spark_config` and `remote` of the resource, and its `catalog`"
        )
        steps = (
            Step("configuration", lambda: str(self.configured()), "the fields of the resource's `catalog`"),
            Step("Java", self._java, "JAVA_HOME, or the resource's `remote`"),
            *((session, catalog) if self._is_known_by_session() else (catalog, session)),
            Step(
                "namespace",
                self._create_namespace,
                "the permission to create namespaces in the catalog, or `--namespace`",
            ),
            Step(
                "write",
                self._write,
                "`warehouse` and `store` of the resource's `catalog`, and permissions in the catalog",
            ),
            Step("read by Spark", self._read_by_spark, "`store` of the resource's `catalog`"),
            Step("read by pyiceberg", self._read_by_pyiceberg, "`store` and `properties` of the resource's `catalog`"),
        )
        cleaned = None
        try:
            yield from findings(subject, steps, seconds=seconds, redact=self.redact)
        finally:  # the caller may also stop reading findings
            if self._made:
                setting = f"the permission to drop tables and namespaces; {self._table} may still exist"
                clean_up = Step("clean up", self._clean_up, setting)
                cleaned = finding_of(subject, clean_up, seconds=seconds, redact=self.redact)
        if cleaned is not None:
            yield cleaned

    def _is_known_by_session(self) -> bool:
        try:
            return self.configured().source == "session"
        except IcebergSparkError:  # the first step reports it
            return False

    def _java(self) -> str:
        if not self.needs_java:
            return "not needed: Spark runs elsewhere"
        from dagster_iceberg_spark.spark.session.runtime import require_java

        return require_java()

    def _catalog(self) -> str:
        description = self.describe()
        find_table(description, self._table)
        keys = ", and recognizes repeated commits by their key" if recognizes_repetitions(description) else ""
        return f"{description} responds{keys}"

    def _session(self) -> str:
        from dagster_iceberg_spark.spark.session.probe import versions

        description = self.describe()
        needed = ", ".join((ICEBERG_SPARK_RUNTIME, *description.packages))
        source = (
            "from Maven"
            if self.jars == "maven" and self.needs_java
            else "which the server or the Spark installation must provide"
        )
        return f"{versions(self.open_session())}; libraries {needed}, {source}"

    def _create_namespace(self) -> str:
        from dagster_iceberg_spark.spark.session.probe import create_namespace, has_namespace

        session = self.open_session()
        if has_namespace(session, self._namespace):
            return f"{'.'.join(self._namespace)} exists"
        if self.namespace is not None:
            raise ConfigurationError.refusing(
                "use",
                f"the namespace {'.'.join(self._namespace)}",
                expected="an existing namespace",
                found="none",
                hint="create it, or let the check create one.",
            )
        self._made.append("namespace")
        create_namespace(session, self._namespace)
        return f"created {'.'.join(self._namespace)}"

    def _write(self) -> str:
        from dagster_iceberg_spark.spark.session.probe import write_rows

        self._is_idle.clear()
        try:
            self._made.append("table")
            for rows in (1, _ROWS):
                token = uuid.uuid4().hex
                self._location = write_rows(self.open_session(), self._table, rows=rows, token=token)
        finally:
            self._is_idle.set()
        return f"created and replaced {self._table}"

    def _read_by_spark(self) -> str:
        from dagster_iceberg_spark.spark.session.probe import count_rows

        return self._all_rows(count_rows(self.open_session(), self._table))

    def _read_by_pyiceberg(self) -> str:
        description = self.describe()
        table = find_table(description, self._table)
        if table is None:
            raise UpstreamMissingError.refusing(
                "read",
                str(self._table),
                expected=f"the table in the {description}",
                found="none",
                hint="Spark and pyiceberg use different catalogs; compare `name`, `uri` and `warehouse`.",
            )
        with translated_answers(description, action=f"read {self._table} in"):
            rows = table.scan().to_arrow().num_rows
        return f"{self._all_rows(rows)} at {table.location()}"

    def _all_rows(self, rows: int) -> str:
        if rows != _ROWS:
            raise InvestigationError.refusing(
                "read", str(self._table), expected=f"the {_ROWS} rows that were written", found=str(rows)
            )
        return f"{_ROWS} rows"

    def _clean_up(self) -> str:
        from dagster_iceberg_spark.spark.session.probe import drop_namespace, drop_table

        self._is_idle.wait()  # a write that exceeded its time limit would create the table again
        session = self.open_session()
        if "table" in self._made:
            drop_table(session, self._table)
            self._remove_directories()
        if "namespace" in self._made:
            drop_namespace(session, self._namespace)
        return f"dropped the {' and the '.join(reversed(self._made))}"

    def _remove_directories(self) -> None:
        """Remove the empty directories that the dropped table leaves on a local disk."""
        location = urlsplit(self._location)
        if location.scheme == "file":
            table = Path(unquote(location.path))
            namespace = (table.parent,) if "namespace" in self._made else ()
            for directory in (table / "metadata", table / "data", table, *namespace):
                with suppress(OSError):
                    directory.rmdir()
