"""Opens sessions: classic, Spark Connect, or an existing session of the process."""

import atexit
import logging
import os
import socket
import threading
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from pyspark.sql import SparkSession
from tenacity import retry, retry_if_exception_type, stop_after_attempt

from dagster_iceberg_spark.catalog.description import HIDDEN, SENSITIVE_NAMES, CatalogDescription, holds_secret
from dagster_iceberg_spark.catalog.look import require_reachable
from dagster_iceberg_spark.catalog.of_session import resolve
from dagster_iceberg_spark.errors import CatalogUnavailableError, CommitConflictError, SparkEnvironmentError
from dagster_iceberg_spark.failure_kinds import FailureKind
from dagster_iceberg_spark.spark import sql
from dagster_iceberg_spark.spark.failures import ENGINE_ERRORS, inspect_failure, kind_of, translate
from dagster_iceberg_spark.spark.session.databricks import require_not_databricks
from dagster_iceberg_spark.spark.session.jvm_credentials import aws_properties, set_jvm_properties
from dagster_iceberg_spark.spark.session.runtime import is_connect, loses_executors, require_java, require_jvm
from dagster_iceberg_spark.spark.versions import installed_version, sibling_of, version_of
from dagster_iceberg_spark.spark.versions.spark_4_1 import SNAPSHOT_PROPERTY
from dagster_iceberg_spark.timeouts import CONNECT_TIMEOUT_SECONDS
from dagster_iceberg_spark.versions import ICEBERG_EXTENSIONS, ICEBERG_SPARK_CATALOG, ICEBERG_SPARK_RUNTIME, has_jvm

if TYPE_CHECKING:
    from pyspark import SparkContext

Session: TypeAlias = SparkSession
Context: TypeAlias = "SparkContext"
Jars: TypeAlias = Literal["maven", "provided"]
SessionOwner: TypeAlias = Literal["us", "someone else"]

LOCAL: Final = "local"
"""The value of `remote` that means the local server."""
CASE_SENSITIVE: Final = "spark.sql.caseSensitive"

_CONNECT_PORT: Final = 15002
_CATALOGS: Final = "spark.sql.catalog"
_left_in_jvm: set[str] = set()
"""Keys of catalogs that the package has set in the JVM's configuration, which every new session inherits."""
_logger = logging.getLogger(__name__)
_DEFAULTS: Final = {
    "spark.app.name": "dagster",
    "spark.ui.showConsoleProgress": "false",
    "spark.redaction.regex": SENSITIVE_NAMES,
    "spark.storage.cachedPeersTtl": "0",  # an executor that was alone would keep single copies for a minute
}


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """The settings of a session. Equal settings share one session.

    Args:
        catalog: The catalog of the session.
        conf: The Spark configuration of the user.
        remote: The address `sc://host:port` of a Spark Connect server, `local` for the server of the state directory,
            or None for a classic session.
        jars: `maven` if Spark downloads Iceberg's runtime and the catalog's driver, `provided` if they are installed.
        state_directory: The directory of the local server's state.
        endpoint: A function that returns the address of a server when a session is opened.
        metadata: A function that returns what each request to that server carries, such as a token that is renewed.
    """

    catalog: CatalogDescription
    conf: Mapping[str, str] = field(default_factory=dict)
    remote: str | None = field(default=None, repr=False)
    jars: Jars = "maven"
    state_directory: Path | None = None
    endpoint: Callable[[], str] | None = field(default=None, repr=False)
    metadata: Callable[[], Mapping[str, str]] | None = field(default=None, repr=False)

    @property
    def uses_local_server(self) -> bool:
        """Whether the session is on the local server, which the package starts."""
        return self.endpoint is None and self.remote == LOCAL

    @property
    def identity(self) -> tuple[object, ...]:
        """Settings with equal identities share a session. Dagster copies the object whose method is the endpoint."""
        provider = getattr(self.endpoint, "__self__", None)
        return (
            self.catalog.identity,
            tuple(sorted(self.conf.items())),
            self.remote,
            self.jars,
            self.state_directory,
            provider if isinstance(provider, Hashable) and provider is not None else self.endpoint,
        )


@dataclass(frozen=True, slots=True)
class IcebergSession:
    """A Spark session with an Iceberg catalog.

    Args:
        spark: The session.
        catalog: The catalog.
        runtime_conf: The configuration that was set after the session started. A sibling session needs the same.
        may_be_stale: Whether the session may use a cache of tables.
        is_on_this_machine: Whether the session's server was started on this machine by the package.
        address: The address `sc://host:port` of the session's server, if the package has opened the session there.
    """

    spark: SparkSession
    catalog: CatalogDescription
    runtime_conf: Mapping[str, str] = field(repr=False, default_factory=dict)
    may_be_stale: bool = True
    is_on_this_machine: bool = False
    address: str | None = None

    @property
    def is_case_sensitive(self) -> bool:
        """Whether names that differ only in case are different names. Users may change this at any time."""
        return self.spark.conf.get(CASE_SENSITIVE, "false") == "true"

    @contextmanager
    def sibling(self, snapshot_properties: Mapping[str, str]) -> Iterator[SparkSession]:
        """Yield a sibling session. Only its SQL commits carry the properties.

        A MERGE takes its snapshot properties from the session's configuration, which threads would share.
        """
        beside = _take_session_beside(self)
        keys = [f"{SNAPSHOT_PROPERTY}{key}" for key in snapshot_properties]
        for key, value in zip(keys, snapshot_properties.values(), strict=True):
            beside.conf.set(key, value)
        beside.conf.set(CASE_SENSITIVE, str(self.is_case_sensitive).lower())
        try:
            yield beside
        finally:
            for key in keys:
                beside.conf.unset(key)
            _give_back(self, beside)


@contextmanager
def temporary_settings(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Apply settings that Spark has values for while the block runs, to a session that nothing else uses."""
    before = {key: str(session.conf.get(key)) for key in settings}
    for key, value in settings.items():
        session.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in before.items():
            session.conf.set(key, value)


def open_session(settings: SessionSettings) -> IcebergSession:
    """Open a session, or attach to the server or to the process's JVM."""
    installed_version()
    require_reachable(settings.catalog)
    remote = _server_url(settings)
    if remote is not None:
        require_not_databricks(remote)
        _require_server(remote)
        attached = attach_catalog(_remote_session(settings, remote), settings.catalog, conf=settings.conf)
        is_here = settings.uses_local_server and not loses_executors(attached.spark)
        return replace(attached, is_on_this_machine=is_here, address=_address(remote))
    running = _running_context()
    if running is not None:
        beside = _configure(SparkSession(running).newSession(), settings.conf)
        return attach_catalog(beside, settings.catalog, owner="us", conf=settings.conf)
    require_jvm()
    require_java()
    return attach_catalog(_launch(settings), settings.catalog, owner="us", conf=settings.conf)


def _server_url(settings: SessionSettings) -> str | None:
    """Return the address of the server, which may contain a token. This may start the local server."""
    if settings.endpoint is not None:
        address = settings.endpoint()
        if not str(address).startswith("sc://"):
            raise SparkEnvironmentError.refusing(
                "open",
                "the Spark session",
                expected="an address `sc://host:port` from the function given as `remote`",
                found=f"another value of type {type(address).__name__}",
                hint="return the address as a string.",
            )
        return address
    if not settings.uses_local_server:
        return settings.remote
    from dagster_iceberg_spark.spark.session.local_server import local_url  # needs a POSIX system

    return local_url(settings.state_directory or Path.home() / ".dagster_iceberg_spark", launch_conf(settings))


def _running_context() -> "SparkContext | None":
    """Return the context of the process's JVM, if there is one. This starts none."""
    if not has_jvm():
        return None
    from pyspark import SparkContext

    return SparkContext._active_spark_context  # noqa: SLF001 - there is no public way to ask without starting one


def attach_catalog(
    session: SparkSession,
    catalog: CatalogDescription,
    *,
    owner: SessionOwner = "someone else",
    conf: Mapping[str, str] = MappingProxyType({}),
) -> IcebergSession:
    """Add the catalog to a running session and open it.

    Args:
        session: The session.
        catalog: The catalog.
        owner: Who opened the session. A session that the package did not open, or a server's, keeps its catalog of the
            same name, which must be the same catalog. The package's own session gets the package's catalog.
        conf: The user's configuration of the session, which takes precedence.
    """
    theirs: Any = session
    if is_connect(theirs):
        with suppress(NotImplementedError):  # a channel of the user's own class
            require_not_databricks(f"sc://{theirs.client.host}")
    _require_extensions(session)
    if catalog.source == "session":
        return _with_its_own(session, catalog)
    prefix, secrets = f"{_CATALOGS}.{catalog.name}", _prefix(catalog, catalog.spark_secrets)
    ours = {**_shown_conf(catalog), **secrets}
    if owner == "someone else" and session.conf.get(prefix, None) is not None:
        _require_same_catalog(session, catalog)
        ours = {}
    else:
        set_jvm_properties(session, catalog)
        ours.update(_prefix(catalog, aws_properties(session, catalog)))
        ours.update({key: value for key, value in conf.items() if key.startswith(f"{prefix}.")})
        _hide_from_event_log(session, secrets)
    for key, value in ours.items():
        if session.conf.get(key, None) != value:
            session.conf.set(key, value)
    if owner == "us":
        _unset_others(session, prefix, ours)
    _open_catalog(session, catalog)
    stale = session.conf.get(f"{prefix}.cache-enabled", "true") != "false"
    return IcebergSession(session, catalog, ours, may_be_stale=stale)


def _with_its_own(session: SparkSession, named: CatalogDescription) -> IcebergSession:
    """Open the session's catalog of this name."""
    conf = _everything_in(session)
    catalog, prefix = resolve(named, conf), f"{_CATALOGS}.{named.name}"
    _open_catalog(session, catalog)
    own = {key: value for key, value in conf.items() if key == prefix or key.startswith(f"{prefix}.")}
    stale = conf.get(f"{prefix}.cache-enabled", "true") != "false"
    return IcebergSession(session, catalog, own, may_be_stale=stale)


def _everything_in(session: SparkSession) -> dict[str, str]:
    try:
        return version_of(session).configuration(session)
    except ENGINE_ERRORS as error:
        raise translate(error, action="read the configuration of", subject="the Spark session") from error


def _unset_others(session: SparkSession, prefix: str, ours: Container[str]) -> None:
    """Unset the properties of earlier catalogs of this name in the JVM, which a new session would inherit."""
    for key in _left_in_jvm:
        if key.startswith(f"{prefix}.") and key not in ours:
            session.conf.unset(key)


@retry(retry=retry_if_exception_type(CommitConflictError), stop=stop_after_attempt(2), reraise=True)
def _open_catalog(session: SparkSession, catalog: CatalogDescription) -> None:
    """Load the catalog in Spark. If another session updates the tables of a new SQL catalog then, load it again."""
    try:
        session.sql(sql.probe(catalog.name)).collect()
    except ENGINE_ERRORS as error:
        if kind_of(inspect_failure(error)) is FailureKind.NAMESPACE_MISSING:
            return  # the catalog was loaded; the first namespace creates its directory
        raise translate(error, action="open", subject=str(catalog), redact=catalog.redact) from error


def _hide_from_event_log(session: SparkSession, keys: Iterable[str]) -> None:
    """Add placeholders for the settings to the application's configuration, before they are set on the session.

    In the properties of jobs and stages, the event log redacts only those that are also in the application's
    configuration (`EventLoggingListener.redactProperties` in Spark). A Connect server's configuration is out of reach.
    """
    if is_connect(session):
        return
    application: Any = session.sparkContext._jsc.sc().conf()  # pyspark returns a copy
    for key in keys:
        if not application.contains(key):
            application.set(key, HIDDEN)
            _left_in_jvm.add(key)


def _require_same_catalog(session: SparkSession, catalog: CatalogDescription) -> None:
    """Reject a session with another catalog of this name: one engine would not see what the other writes."""
    for key in ("type", "uri", "warehouse"):
        wanted = catalog.spark_properties.get(key)
        found = session.conf.get(f"{_CATALOGS}.{catalog.name}.{key}", None)
        if wanted is not None and found is not None and _place(wanted) != _place(found):
            raise SparkEnvironmentError.refusing(
                "use",
                f"the session's catalog {catalog.name!r}",
                expected=f"`{key}` {_place(wanted)!r}, as the resource's `catalog` says",
                found=repr(_place(found)),
                hint="give both the same settings, or the resource's catalog another `name`.",
            )


def _place(value: str) -> str:
    """Return a URI without its options, which contain timeouts and secrets."""
    return value.split("?", maxsplit=1)[0].removeprefix("file:").rstrip("/").replace("//", "/")


def is_closed(session: IcebergSession) -> bool:
    """Return whether the session was stopped, or its server is known to have restarted."""
    spark: Any = session.spark
    if is_connect(session.spark):
        return bool(spark.is_stopped)
    jsc = spark.sparkContext._jsc
    return jsc is None or bool(jsc.sc().isStopped())


def is_alive(session: IcebergSession, settings: SessionSettings) -> bool:
    """Return whether a session with these settings can still be used. This sends a request to a server."""
    if is_closed(session):
        return False
    if not is_connect(session.spark):
        return True
    try:
        if session.address is not None and not settings.uses_local_server:
            _require_server(session.address)
        # A service accepts connections to a session that has ended: pyspark would ask for ten minutes.
        is_handed_out = settings.endpoint is not None
        with version_of(session.spark).without_retries(session.spark) if is_handed_out else nullcontext():
            session.spark.conf.get(CASE_SENSITIVE, None)
    except (*ENGINE_ERRORS, CatalogUnavailableError):
        return False
    return True


def forget_session(session: IcebergSession) -> Sequence[SparkSession]:
    """Remove and return the unused siblings of a session that is lost or about to be stopped."""
    with _besides_lock:
        owner, unused = _besides.pop(id(session.spark), (None, []))
    return unused if owner is session.spark else []


def launch_conf(settings: SessionSettings) -> dict[str, str]:
    """Return the configuration for starting a JVM, without secrets, which would be in its command line."""
    catalog = _shown_conf(settings.catalog) if settings.catalog.source == "configuration" else {}
    conf = {**_DEFAULTS, **catalog, **settings.conf}
    conf["spark.sql.extensions"] = _join(settings.conf.get("spark.sql.extensions"), ICEBERG_EXTENSIONS)
    if settings.jars == "maven":
        coordinates = (ICEBERG_SPARK_RUNTIME, *settings.catalog.packages)
        conf["spark.jars.packages"] = _join(settings.conf.get("spark.jars.packages"), *coordinates)
    return conf


def _launch(settings: SessionSettings) -> SparkSession:
    builder = SparkSession.builder
    for key, value in launch_conf(settings).items():
        builder = builder.config(key, value)
        if key.startswith(f"{_CATALOGS}.") and key not in settings.conf:
            _left_in_jvm.add(key)
    try:
        return builder.getOrCreate()
    except (*ENGINE_ERRORS, OSError, RuntimeError) as error:
        found = settings.catalog.redact(str(error).splitlines()[0] if str(error) else type(error).__name__)
        raise SparkEnvironmentError.refusing(
            "start",
            "Spark",
            expected="a JVM that starts",
            found=found,
            hint="read the JVM's own output above. Without network, set `jars` to `provided` and `spark.jars` to local "
            "files.",
        ) from error


def _remote_session(settings: SessionSettings, remote: str) -> SparkSession:
    try:
        if settings.metadata is not None:
            session: Any = _renewed_session(remote, settings.metadata)
        elif _running_context() is not None:
            from pyspark.sql.connect.session import SparkSession as ConnectSession

            session = ConnectSession.builder.remote(remote).create()
        else:
            session = SparkSession.builder.remote(remote).create()
        _leave_at_exit(session)
        _leave_to_its_stop(type(session))
        session.conf.get(CASE_SENSITIVE, None)  # the first request: the server checks the token
        return _configure(session, settings.conf)
    except ENGINE_ERRORS as error:
        if "UNAUTHENTICATED" in str(error):
            raise SparkEnvironmentError.refusing(
                "attach to",
                _address(remote),
                expected="a token that the server accepts",
                found="a wrong token, or none",
                hint="end the address in `remote` with `/;token=...`, with the token that the server was started with.",
            ) from error
        raise translate(error, action="attach to", subject=_address(remote)) from error


def _renewed_session(remote: str, metadata: Callable[[], Mapping[str, str]]) -> Any:
    """Open a session whose requests carry the current metadata."""
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    from dagster_iceberg_spark.spark.session.renewed_channel import RenewedChannelBuilder

    if _running_context() is None:
        os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"  # as pyspark does for an address: functions need no JVM then
    return ConnectSession.builder.channelBuilder(RenewedChannelBuilder(remote, metadata)).create()


def _leave_at_exit(session: Any) -> None:
    """Make the process exit immediately if the server is gone. pyspark's clean-up at exit tries for ten minutes."""
    atexit.register(version_of(session).never_retry, session)


def _leave_to_its_stop(connect_session: Any) -> None:
    """Remove the finalizer from Spark Connect sessions: it waits for threads wherever Python collects garbage.

    In a thread that is ending another thread, as in a server, it waits for itself. It also closes resources that all
    sessions of the process share (`ExecutePlanResponseReattachableIterator.shutdown` of 4.1). `stop` still closes a
    session.
    """
    if hasattr(connect_session, "__del__"):
        del connect_session.__del__


_COMPLETED: Final = frozenset({"spark.driver.extraJavaOptions", "spark.sql.warehouse.dir"})
"""Settings that Spark puts something in front of when it starts: its own options of Java, the scheme of a URI."""


def _configure(session: SparkSession, conf: Mapping[str, str]) -> SparkSession:
    """Set the configuration that a running session accepts. The rest was set when its JVM or the server started."""
    for key, value in conf.items():
        current = session.conf.get(key, None)
        if current == value or (key in _COMPLETED and current is not None and current.endswith(value)):
            continue
        # Spark accepts settings of a catalog until the catalog is used, although it does not know them.
        if session.conf.isModifiable(key) or key.startswith(f"{_CATALOGS}."):
            if holds_secret(key):
                _hide_from_event_log(session, [key])
            session.conf.set(key, value)
        else:
            _logger.warning("Spark is running already: `%s` stays as it was set when it started.", key)
    return session


def _require_server(remote: str) -> None:
    parts = urlsplit(remote)
    host, port = parts.hostname or "localhost", parts.port or _CONNECT_PORT
    try:
        socket.create_connection((host, port), timeout=CONNECT_TIMEOUT_SECONDS).close()
    except OSError as error:
        raise CatalogUnavailableError.refusing(
            "attach to",
            _address(remote),
            expected=f"a Spark Connect server that accepts connections within {CONNECT_TIMEOUT_SECONDS:.0f} s",
            found=str(error),
            hint="check `remote`, and that the server runs.",
        ) from None


def _require_extensions(session: SparkSession) -> None:
    extensions = session.conf.get("spark.sql.extensions", "") or ""
    if ICEBERG_EXTENSIONS not in extensions:
        raise SparkEnvironmentError.refusing(
            "use",
            "the Spark session",
            expected=f"{ICEBERG_EXTENSIONS} in spark.sql.extensions",
            found=repr(extensions) if extensions else "no extensions",
            hint="set it where the session is started, together with `spark.jars.packages` holding "
            f"{ICEBERG_SPARK_RUNTIME}; or let the resource start the session.",
        )


_besides: dict[int, tuple[SparkSession, list[SparkSession]]] = {}
"""Unused sibling sessions by the id of their original session."""
_besides_lock: Final = threading.Lock()


def _take_session_beside(session: IcebergSession) -> SparkSession:
    """Return an unused sibling of the session, or a new one. Each new one opens a connection to the catalog."""
    with _besides_lock:
        owner, unused = _besides.get(id(session.spark), (None, []))
        if owner is session.spark and unused:
            return unused.pop()
    beside = _new_session_beside(session.spark)
    for key, value in session.runtime_conf.items():
        beside.conf.set(key, value)
    if session.runtime_conf and not is_connect(beside):
        _unset_others(beside, f"{_CATALOGS}.{session.catalog.name}", session.runtime_conf)
    return beside


def _give_back(session: IcebergSession, beside: SparkSession) -> None:
    with _besides_lock:
        owner, unused = _besides.get(id(session.spark), (None, []))
        if owner is not session.spark:
            unused = []
            _besides[id(session.spark)] = (session.spark, unused)
        unused.append(beside)


def _new_session_beside(spark: Any) -> SparkSession:
    beside = sibling_of(spark)
    if is_connect(spark):
        _leave_at_exit(beside)
    return beside  # type: ignore[no-any-return]


def close_session(session: IcebergSession) -> None:
    """Stop the session and, on a Connect server, its siblings. Siblings of a classic session end with its JVM."""
    unused = forget_session(session)
    if is_connect(session.spark):
        for remote in (*unused, session.spark):
            _stop(remote)
    else:
        session.spark.stop()


def abandon_session(session: IcebergSession) -> None:
    """Close the connections of a session and its siblings to a catalog that no longer exists. The JVM keeps running."""
    unused = forget_session(session)
    for spark in (session.spark, *unused):
        if is_connect(spark):
            _stop(spark)
        elif not is_closed(session):
            with suppress(*ENGINE_ERRORS):
                known: Any = spark
                manager = known._jsparkSession.sessionState().catalogManager()
                manager.catalog(session.catalog.name).icebergCatalog().close()


def _stop(remote: Any) -> None:
    """Stop a session on a server with a single request. pyspark would retry for long if the server is gone."""
    if not remote.is_stopped:
        version = version_of(remote)
        with version.without_retries(remote), suppress(*ENGINE_ERRORS):
            version.release(remote)
    remote.release_session_on_close = False
    remote.stop()


@contextmanager
def active(spark: SparkSession) -> Iterator[None]:
    """Make a Connect session the thread's active session while the block runs.

    pyspark 4.1 assigns a checkpointed DataFrame to the thread's active session instead of the session that created it.
    """
    if not is_connect(spark):
        yield
        return
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    local = ConnectSession._active_session  # noqa: SLF001 - there is no public way
    before = getattr(local, "session", None)
    local.session = spark
    try:
        yield
    finally:
        local.session = before


def _shown_conf(catalog: CatalogDescription) -> dict[str, str]:
    """Return the catalog as Spark configures it, without secrets."""
    properties = _prefix(catalog, {**catalog.spark_properties, "cache-enabled": "false"})
    return {f"{_CATALOGS}.{catalog.name}": ICEBERG_SPARK_CATALOG, **properties}


def _prefix(catalog: CatalogDescription, properties: Mapping[str, str]) -> dict[str, str]:
    return {f"{_CATALOGS}.{catalog.name}.{key}": value for key, value in properties.items()}


def _join(given: str | None, *ours: str) -> str:
    listed = [item.strip() for item in (given or "").split(",") if item.strip()]
    return ",".join(dict.fromkeys((*listed, *ours)))


def _address(remote: str) -> str:
    parts = urlsplit(remote)
    return f"{parts.scheme}://{parts.hostname}:{parts.port or _CONNECT_PORT}"
