"""The session's life: one per process and configuration, counted, however many copies of the resource there are."""

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import dagster as dg
from pydantic import Field, PrivateAttr

from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.check.findings import CheckReport, Finding, report_of
from dagster_iceberg_spark.config.catalogs import CatalogConfig
from dagster_iceberg_spark.config.configuration import HIDES_INPUT, require_fields, without_secrets
from dagster_iceberg_spark.config.embedded_catalog import EmbeddedCatalog
from dagster_iceberg_spark.errors import ConfigurationError, SparkEnvironmentError
from dagster_iceberg_spark.table.identifier import split_parts
from dagster_iceberg_spark.timeouts import IDLE_SECONDS, STEP_SECONDS

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from dagster_iceberg_spark.spark.session import Context, IcebergSession, Session


SessionIdentity: TypeAlias = tuple[object, ...]
"""What makes two sessions the same one."""


@dataclass(slots=True)
class _SharedSession:
    session: "IcebergSession"
    users: set[int] = field(default_factory=set)


class SessionRegistry:
    """The process's sessions by configuration, and who uses each."""

    def __init__(self) -> None:
        """Start with no sessions."""
        self._shared: dict[SessionIdentity, _SharedSession] = {}
        self._lock = threading.RLock()
        self._process_id = os.getpid()

    def require_own_process(self) -> None:
        """Refuse to use sessions in a fork of the process that opened them: both would talk over one connection.

        Raises:
            SparkEnvironmentError: This process is such a fork.
        """
        if self._process_id == os.getpid():
            return
        if self._shared:
            raise SparkEnvironmentError.refusing(
                "use",
                "the Spark session",
                expected=f"the process that opened it, {self._process_id}",
                found=f"{os.getpid()}, which was forked from it",
                hint="start processes by `spawn`, as Dagster's multiprocess executor does by default, or fork them "
                "before the first use of a session.",
            )
        self._process_id = os.getpid()

    def acquire(self, resource: "IcebergSparkResource", user: int) -> "IcebergSession":
        """Return the session of the resource's configuration, opening it for the first user."""
        from dagster_iceberg_spark.spark.session import (
            attach_catalog,
            forget_session,
            is_alive,
            is_closed,
            open_session,
        )

        self.require_own_process()
        identity: SessionIdentity
        with self._lock:
            if resource.wraps_session:
                spark = resource.pyspark.spark_session
                identity = (id(spark), resource.configured_description.identity)
                known = self._shared.get(identity)
                if known is None or is_closed(known.session):
                    known = _SharedSession(attach_catalog(spark, resource.configured_description))
            else:
                settings = resource.session_settings()
                identity = settings.identity
                known = self._shared.get(identity)
                if known is not None and not is_alive(known.session, settings):
                    forget_session(known.session)
                    known = None
                if known is None:
                    known = _SharedSession(open_session(settings))
                    self._let_go_of_gone()
            self._shared[identity] = known
            known.users.add(user)
            return known.session

    def _let_go_of_gone(self) -> None:
        """Forget unused sessions of catalogs that nobody can reach any more."""
        from dagster_iceberg_spark.spark.session import abandon_session

        for identity, shared in list(self._shared.items()):
            if not shared.users and shared.session.catalog.is_gone:
                del self._shared[identity]
                abandon_session(shared.session)

    def release(self, user: int, *, stops_when_unused: Literal["yes", "no"]) -> None:
        """Say that the user needs no session any more; the last one's may be stopped."""
        from dagster_iceberg_spark.spark.columns import is_connect
        from dagster_iceberg_spark.spark.session import close_session

        with self._lock:
            for identity, shared in list(self._shared.items()):
                if user not in shared.users:
                    continue
                shared.users.discard(user)
                if not shared.users and stops_when_unused == "yes":
                    del self._shared[identity]
                    # Classic sessions of one process share a JVM: stopping one would stop the others.
                    if is_connect(shared.session.spark) or not any(
                        other.users and not is_connect(other.session.spark) for other in self._shared.values()
                    ):
                        close_session(shared.session)

    def close_all(self) -> None:
        """Stop every session that the process has opened on a server; a classic one ends with its JVM."""
        from dagster_iceberg_spark.spark.columns import is_connect
        from dagster_iceberg_spark.spark.session import close_session

        with self._lock:
            for shared in self._shared.values():
                if is_connect(shared.session.spark):
                    close_session(shared.session)
            self._shared.clear()

    def users_of(self, session: "IcebergSession") -> int:
        """Return how many resources use the session."""
        with self._lock:
            return sum(len(shared.users) for shared in self._shared.values() if shared.session is session)


SESSIONS: Final = SessionRegistry()
"""The process's sessions."""


class IcebergSparkResource(dg.ConfigurableResource[Any]):
    """A Spark session that knows an Iceberg catalog, started when it is first used.

    Use it where an asset needs `spark.spark_session`, as one would dagster-pyspark's `PySparkResource`, and as the
    `spark` of `IcebergPySparkIOManager`. Resources with equal configuration share one session.

    Example:
        >>> from dagster_iceberg_spark import IcebergSparkResource, SqlCatalog
        >>> spark = IcebergSparkResource(catalog=SqlCatalog(uri="sqlite:///lake/catalog.db", warehouse="lake"))
    """

    model_config = HIDES_INPUT

    catalog: CatalogConfig = Field(
        default=EmbeddedCatalog(),
        description="The Iceberg catalog: embedded (the default), SQL, REST, Glue, Hive, Hadoop, in memory, or one "
        "that the session has.",
    )
    spark_config: dict[str, str] = Field(
        default={},
        description="Spark configuration, passed through, such as `spark.driver.memory`. It wins over what the package "
        "sets, save that extensions and packages are joined.",
    )
    remote: str | None = Field(
        default=None,
        description="Spark Connect server to attach to, `sc://host:port`. Default: a classic session in this process.",
    )
    jars: Literal["maven", "provided"] = Field(
        default="maven",
        description="`maven`: Iceberg's runtime and the catalog's JDBC driver come as Maven coordinates through "
        "`spark.jars.packages`. `provided`: they are there already, on the cluster or in `spark.jars`.",
    )
    stop_session: Literal["at_exit", "when_unused"] = Field(
        default="at_exit",
        description="When a session that the resource opened ends: with the process, or with the last run that uses "
        "it.",
    )
    pyspark: dg.ResourceDependency[Any]

    _user: int | None = PrivateAttr(default=None)
    _storage_directory: str | None = PrivateAttr(default=None)
    _description: CatalogDescription | None = PrivateAttr(default=None)
    _session: Any = PrivateAttr(default=None)
    _asked_at: float = PrivateAttr(default=0.0)

    def __init__(self, **data: Any) -> None:
        """Take the fields as keywords; `pyspark` may be a PySparkResource or LazyPySparkResource to wrap."""
        require_fields(type(self), data)
        data.setdefault("pyspark", None)
        super().__init__(**data)

    def __repr__(self) -> str:
        """Return the configuration without what may be secret."""
        return without_secrets(self)

    __str__ = __repr__

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        """Learn where the instance keeps its files; no session is started."""
        if context.instance is not None:
            self._storage_directory = context.instance.storage_directory()

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:  # noqa: ARG002 - Dagster's signature
        """Give the session back; other resources go on using it."""
        if self._session is not None:
            self._session = None
            stops = "yes" if self.stop_session == "when_unused" and not self.wraps_session else "no"
            SESSIONS.release(id(self), stops_when_unused=stops)  # type: ignore[arg-type]

    @property
    def wraps_session(self) -> bool:
        """Whether the session is another resource's."""
        return self.pyspark is not None

    @property
    def iceberg_session(self) -> "IcebergSession":
        """The session with its catalog, started now if it was not.

        Raises:
            SparkEnvironmentError: Java or Iceberg's runtime is missing or unfit, or the process is a fork of the one
                that opened the session.
            CatalogUnavailableError: The catalog or the server does not answer.
        """
        SESSIONS.require_own_process()
        if self._session is None or self._may_be_lost():
            self._session = SESSIONS.acquire(self, id(self))
        self._asked_at = time.monotonic()
        return self._session  # type: ignore[no-any-return]

    def _may_be_lost(self) -> bool:
        """Say whether the session was stopped, or is idle for so long that a server may have dropped it."""
        from dagster_iceberg_spark.spark.session import is_closed

        is_idle = time.monotonic() - self._asked_at > IDLE_SECONDS
        return not self.wraps_session and (is_idle or is_closed(self._session))

    @property
    def spark_session(self) -> "Session":
        """The Spark session, started now if it was not."""
        return self.iceberg_session.spark

    @property
    def spark_context(self) -> "Context":
        """The classic session's context.

        Raises:
            ConfigurationError: The session is one of Spark Connect, which has none.
        """
        from dagster_iceberg_spark.spark.columns import is_connect

        session = self.spark_session
        if is_connect(session):
            raise ConfigurationError.refusing(
                "use",
                "`spark_context`",
                expected="a classic Spark session",
                found="a Spark Connect session, which has no context",
                hint="use `spark_session`, or leave `remote` out.",
            )
        return session.sparkContext

    @property
    def pyiceberg_catalog(self) -> "Catalog":
        """The same catalog for pyiceberg, without a JVM unless only the session knows it."""
        from dagster_iceberg_spark.catalog.look import asked, open_catalog

        description = self.catalog_description
        return asked(description, lambda: open_catalog(description), action="open")

    @property
    def catalog_description(self) -> CatalogDescription:
        """The catalog as Spark and pyiceberg need it; of one that only the session knows, a session is opened.

        Raises:
            ConfigurationError: The catalog's configuration is incomplete.
        """
        description = self.configured_description
        return description if description.source == "configuration" else self.iceberg_session.catalog

    @property
    def configured_description(self) -> CatalogDescription:
        """The catalog as the configuration alone describes it.

        Raises:
            ConfigurationError: The catalog's configuration is incomplete.
        """
        if self._description is None:
            catalog = self.catalog
            if isinstance(catalog, EmbeddedCatalog) and self._storage_directory is not None:
                catalog = catalog.of_instance(self._storage_directory)
            self._description = catalog.describe()
        return self._description

    def check(self, *, namespace: str | None = None, seconds: float = STEP_SECONDS) -> CheckReport:
        """Try the resource out: its configuration, Java, the catalog, a session, a table that both engines read.

        A table of a few rows is created, replaced, read by Spark and by pyiceberg, and dropped. Nothing is raised for
        what does not work: the report says it.

        Args:
            namespace: Where the table goes, its levels separated by dots; it has to be there, and stays. Default: a
                namespace of its own.
            seconds: How long each of the steps may take.

        Example:
            >>> IcebergSparkResource(catalog=SqlCatalog(uri="mysql://db", warehouse="lake")).check().is_fit
            False
        """
        return report_of(self.findings(namespace=namespace, seconds=seconds))

    def findings(self, *, namespace: str | None = None, seconds: float = STEP_SECONDS) -> Iterator[Finding]:
        """Yield what each step of `check` finds, as soon as it is known."""
        from dagster_iceberg_spark.check.catalog import CatalogCheck

        steps = CatalogCheck(
            lambda: self.configured_description,
            lambda: self.catalog_description,
            lambda: self.iceberg_session,
            redact=self.redact,
            jars=self.jars,
            needs_java=self.remote is None and not self.wraps_session,
            namespace=None if namespace is None else split_parts(namespace),
        )
        yield from steps.findings(self.catalog.name, seconds=seconds)

    def redact(self, text: str) -> str:
        """Return the text without the catalog's secrets, those of an open session too; nothing is opened for it."""
        if self._session is not None:
            text = self._session.catalog.redact(text)
        try:
            return self.configured_description.redact(text)
        except ConfigurationError:
            return text

    def session_settings(self) -> Any:
        """Return what a session of this resource is opened with."""
        from dagster_iceberg_spark.spark.session import SessionSettings

        return SessionSettings(self.configured_description, dict(self.spark_config), self.remote, self.jars)
