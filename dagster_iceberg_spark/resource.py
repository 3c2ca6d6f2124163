"""The Spark session as a Dagster resource.

Each process has one session per configuration, however many copies of the resource Dagster makes.
"""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import dagster as dg
from pydantic import Field, PrivateAttr

from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.check.findings import CheckReport, Finding, report_of
from dagster_iceberg_spark.config.catalogs import CatalogConfig
from dagster_iceberg_spark.config.configuration import (
    HIDES_INPUT,
    ConfiguredOnce,
    Properties,
    require_fields,
    without_secrets,
)
from dagster_iceberg_spark.config.sql_catalog import EmbeddedCatalog
from dagster_iceberg_spark.errors import ConfigurationError, SparkEnvironmentError
from dagster_iceberg_spark.spark.session.databricks import require_not_databricks
from dagster_iceberg_spark.table.identifier import split_parts
from dagster_iceberg_spark.timeouts import HANDED_OUT_IDLE_SECONDS, IDLE_SECONDS, STEP_SECONDS
from dagster_iceberg_spark.versions import installed_pyspark

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from dagster_iceberg_spark.spark.session.session import Context, IcebergSession, Session


SessionIdentity: TypeAlias = tuple[object, ...]
"""Two resources with equal identities share a session."""


def require_pyspark() -> None:
    """Reject an environment without pyspark, which the package does not need to read tables without Spark.

    Raises:
        SparkEnvironmentError: Neither `pyspark` nor `pyspark-client` is installed.
    """
    if installed_pyspark() is None:
        raise SparkEnvironmentError.refusing(
            "use",
            "Spark",
            expected="pyspark or pyspark-client",
            found="neither",
            hint="run `pip install 'dagster-iceberg-spark[classic]'`; or, for Spark Connect only, "
            "`pip install 'dagster-iceberg-spark[connect]'`.",
        )


@dataclass(slots=True)
class _SharedSession:
    session: "IcebergSession"
    users: set[int] = field(default_factory=set)


class SessionRegistry:
    """The sessions of the process by configuration, and the resources that use each."""

    def __init__(self) -> None:
        """Start with no sessions."""
        self._shared: dict[SessionIdentity, _SharedSession] = {}
        self._doubted: dict[int, IcebergSession] = {}
        self._lock = threading.RLock()
        self._process_id = os.getpid()

    def require_own_process(self) -> None:
        """Reject a fork of the process that opened the sessions: both processes would use one connection.

        Raises:
            SparkEnvironmentError: This process is a fork of the process that opened the sessions.
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
        """Return the session of the resource's configuration; the first user opens it."""
        require_pyspark()
        from dagster_iceberg_spark.spark.session.session import (
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
                    self.doubt(known.session)  # other resources may hold it
                    known = None
                if known is None:
                    known = _SharedSession(open_session(settings))
                    self._abandon_unreachable()
                self._doubted.pop(id(known.session), None)
            self._shared[identity] = known
            known.users.add(user)
            return known.session

    def doubt(self, session: "IcebergSession") -> None:
        """Let `acquire` ask the server of a session before the next use, because a step has failed in it."""
        self._doubted[id(session)] = session

    def doubts(self, session: "IcebergSession") -> bool:
        """Return whether a session is doubted. One that is lost stays so, for the resources that still hold it."""
        return id(session) in self._doubted

    def _abandon_unreachable(self) -> None:
        """Abandon unused sessions whose catalog no longer exists."""
        from dagster_iceberg_spark.spark.session.session import abandon_session

        for identity, shared in list(self._shared.items()):
            if not shared.users and shared.session.catalog.is_gone:
                del self._shared[identity]
                abandon_session(shared.session)

    def release(self, user: int, *, stops_when_unused: Literal["yes", "no"]) -> None:
        """Release the user's sessions. A session that has no other user may be stopped."""
        if not self._shared:  # also where pyspark is not installed
            return
        from dagster_iceberg_spark.spark.session.runtime import is_connect
        from dagster_iceberg_spark.spark.session.session import close_session

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
        """Close the process's sessions on Spark Connect servers. A classic session ends with its JVM."""
        from dagster_iceberg_spark.spark.session.runtime import is_connect
        from dagster_iceberg_spark.spark.session.session import close_session

        with self._lock:
            for shared in self._shared.values():
                if is_connect(shared.session.spark):
                    close_session(shared.session)
            self._shared.clear()

    def users_of(self, session: "IcebergSession") -> int:
        """Return the number of resources that use the session."""
        with self._lock:
            return sum(len(shared.users) for shared in self._shared.values() if shared.session is session)


SESSIONS: Final = SessionRegistry()
"""The sessions of the process."""


class IcebergSparkResource(ConfiguredOnce, dg.ConfigurableResource[Any]):
    """A Spark session with an Iceberg catalog, started when it is first used.

    Pass it to `IcebergPySparkIOManager` as `spark`. An asset can also use its `spark_session`, as with
    dagster-pyspark's `PySparkResource`. Resources with equal configuration share one session.

    Example:
        >>> from dagster_iceberg_spark import IcebergSparkResource, SqlCatalog
        >>> spark = IcebergSparkResource(catalog=SqlCatalog(uri="sqlite:///lake/catalog.db", warehouse="lake"))
    """

    model_config = HIDES_INPUT

    catalog: CatalogConfig = Field(
        default=EmbeddedCatalog(),
        description="The Iceberg catalog: embedded (the default), SQL, REST, Glue, Hive, Hadoop, in memory, or a "
        "catalog that is already configured in the session.",
    )
    spark_config: Properties = Field(
        default={},
        description="Spark configuration, such as `spark.driver.memory`. It overrides the package's settings; "
        "extensions and packages are added to those of the package.",
    )
    remote: str | None = Field(
        default=None,
        description="Address of a Spark Connect server, `sc://host:port`. `local`: a server on this machine that the "
        "processes of the Dagster instance share, started when it is needed and stopped after 15 idle minutes (pyspark "
        "4.1). In Python also a function, or an object with `connect_url()`, that returns the address when a session "
        "is opened. Default: a classic session in this process.",
    )
    jars: Literal["maven", "provided"] = Field(
        default="maven",
        description="Source of Iceberg's runtime and the catalog's JDBC driver. `maven`: Spark downloads them "
        "(`spark.jars.packages`). `provided`: they are part of the Spark installation or listed in `spark.jars`.",
    )
    stop_session: Literal["at_exit", "when_unused"] = Field(
        default="at_exit",
        description="When a session that the resource opened is stopped: when the process exits, or when the last run "
        "that uses it ends.",
    )
    pyspark: dg.ResourceDependency[Any]
    endpoint: dg.ResourceDependency[Any] = Field(
        default=None,  # type: ignore[arg-type]  # pydantic's plugin knows no dependencies
        description="The function, or the object with `connect_url()`, that was given as `remote`.",
    )

    _user: int | None = PrivateAttr(default=None)
    _storage_directory: str | None = PrivateAttr(default=None)
    _description: CatalogDescription | None = PrivateAttr(default=None)
    _session: Any = PrivateAttr(default=None)
    _asked_at: float = PrivateAttr(default=0.0)

    def __init__(self, **data: Any) -> None:
        """Take the fields as keywords. `pyspark` may be a PySparkResource or LazyPySparkResource to wrap."""
        require_fields(type(self), data)
        data.setdefault("pyspark", None)
        remote = data.get("remote")
        require_not_databricks(remote)
        if callable(remote) or hasattr(remote, "connect_url"):
            # Dagster copies resources by their fields. Only a dependency may hold a function.
            data["endpoint"] = data.pop("remote")
        data.setdefault("endpoint", None)
        super().__init__(**data)

    def __repr__(self) -> str:
        """Return the configuration without secrets."""
        return without_secrets(self)

    __str__ = __repr__

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        """Store the instance's storage directory. This starts no session."""
        if context.instance is not None:
            self._storage_directory = context.instance.storage_directory()

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:  # noqa: ARG002 - Dagster's signature
        """Release the session. Other resources keep using it."""
        if self._session is not None:
            self._session = None
            stops = "yes" if self.stop_session == "when_unused" and not self.wraps_session else "no"
            SESSIONS.release(id(self), stops_when_unused=stops)  # type: ignore[arg-type]

    @property
    def wraps_session(self) -> bool:
        """Whether the session belongs to a wrapped resource."""
        return self.pyspark is not None

    @property
    def iceberg_session(self) -> "IcebergSession":
        """The session with its catalog, started if necessary.

        Raises:
            SparkEnvironmentError: Java or Iceberg's runtime is missing or unsuitable, or the process is a fork of the
                process that opened the session.
            CatalogUnavailableError: The catalog or the server does not respond.
        """
        SESSIONS.require_own_process()
        if self._session is None or self._may_be_lost():
            self._session = SESSIONS.acquire(self, id(self))
        self._asked_at = time.monotonic()
        return self._session  # type: ignore[no-any-return]

    @contextmanager
    def doubted_after_failures(self) -> Iterator[None]:
        """If the block fails, ask before the next use of the session whether its server still knows it."""
        try:
            yield
        except Exception:
            if self._session is not None:
                SESSIONS.doubt(self._session)
            raise

    def _may_be_lost(self) -> bool:
        """Return whether the session was stopped, is doubted, or has been idle so long that it may have been dropped.

        A service that hands out sessions ends them at its own time.
        """
        from dagster_iceberg_spark.spark.session.session import is_closed

        longest = IDLE_SECONDS if self.endpoint is None else HANDED_OUT_IDLE_SECONDS
        is_idle = time.monotonic() - self._asked_at > longest
        return not self.wraps_session and (is_idle or SESSIONS.doubts(self._session) or is_closed(self._session))

    @property
    def is_case_sensitive(self) -> bool:
        """Whether names of columns are compared with their case. This starts no session.

        Without a session, it is `spark.sql.caseSensitive` of the configuration that says so.
        """
        if self._session is not None:
            return bool(self._session.is_case_sensitive)
        configured = {**(getattr(self.pyspark, "spark_config", None) or {}), **self.spark_config}
        return str(configured.get("spark.sql.caseSensitive", "false")).lower() == "true"

    @property
    def spark_session(self) -> "Session":
        """The Spark session, started if necessary."""
        return self.iceberg_session.spark

    @property
    def spark_context(self) -> "Context":
        """The SparkContext of a classic session.

        Raises:
            ConfigurationError: The session is a Spark Connect session, which has no context.
        """
        from dagster_iceberg_spark.spark.session.runtime import is_connect

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
        """The same catalog in pyiceberg. This starts a session only for a `SparkCatalogByName`."""
        from dagster_iceberg_spark.catalog.look import call_catalog, open_catalog

        description = self.catalog_description
        return call_catalog(description, lambda: open_catalog(description), action="open")

    @property
    def catalog_description(self) -> CatalogDescription:
        """The catalog as Spark and pyiceberg need it. If only the session describes it, this opens a session.

        Raises:
            ConfigurationError: The catalog's configuration is incomplete.
        """
        description = self.configured_description
        return description if description.source == "configuration" else self.iceberg_session.catalog

    @property
    def configured_description(self) -> CatalogDescription:
        """The catalog as the configuration describes it. This opens no session.

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
        """Test the configuration, Java, the catalog, the session, and a table that both engines read.

        The check creates a table of a few rows, replaces it, reads it with Spark and with pyiceberg, and drops it. It
        reports failures and raises none.

        Args:
            namespace: An existing namespace for the table, with dots between levels. Default: the check creates a
                namespace and drops it.
            seconds: Time limit of each step, in seconds.

        Example:
            >>> IcebergSparkResource(catalog=SqlCatalog(uri="mysql://db", warehouse="lake")).check().is_fit
            False
        """
        return report_of(self.findings(namespace=namespace, seconds=seconds))

    def findings(self, *, namespace: str | None = None, seconds: float = STEP_SECONDS) -> Iterator[Finding]:
        """Yield the finding of each step of `check` as soon as the step ends."""
        from dagster_iceberg_spark.check.catalog import CatalogCheck

        steps = CatalogCheck(
            lambda: self.configured_description,
            lambda: self.catalog_description,
            lambda: self.iceberg_session,
            redact=self.redact,
            jars=self.jars,
            needs_java=self.remote in {None, "local"} and self.endpoint is None and not self.wraps_session,
            namespace=None if namespace is None else split_parts(namespace),
        )
        yield from steps.findings(self.catalog.name, seconds=seconds)

    def redact(self, text: str) -> str:
        """Return the text without the secrets of the catalog and of an open session. This opens no session."""
        if self._session is not None:
            text = self._session.catalog.redact(text)
        try:
            return self.configured_description.redact(text)
        except ConfigurationError:
            return text

    def session_settings(self) -> Any:
        """Return the settings to open a session of this resource with."""
        from dagster_iceberg_spark.spark.session.session import SessionSettings

        directory = None if self._storage_directory is None else Path(self._storage_directory, "iceberg_spark_server")
        return SessionSettings(
            self.configured_description,
            dict(self.spark_config),
            self.remote,
            self.jars,
            state_directory=directory if self.remote == "local" else None,
            endpoint=getattr(self.endpoint, "connect_url", self.endpoint),
            metadata=getattr(self.endpoint, "connect_metadata", None),
        )
