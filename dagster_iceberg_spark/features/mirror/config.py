"""Where tables are mirrored."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias
from urllib.parse import SplitResult, parse_qsl, unquote

import dagster as dg
from pydantic import Field, field_validator

from dagster_iceberg_spark.assets.observers import ObservedTable, Observer
from dagster_iceberg_spark.catalog.description import holds_secret, spellings_of
from dagster_iceberg_spark.config.configuration import Configuration, parts_of, scheme_of, without_password
from dagster_iceberg_spark.errors import ConfigurationError, IcebergSparkError, MetadataKeyError, MirrorFailedError
from dagster_iceberg_spark.features.mirror.options import (
    MIRROR,
    MIRROR_STATE,
    Codec,
    Mirror,
    MirrorMode,
    MirrorSettings,
    mirror_settings,
)
from dagster_iceberg_spark.features.mirror.table_mirror import DuckLake, TableMirror
from dagster_iceberg_spark.table.identifier import TableIdentifier

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_FILE: Final = re.compile(r"(?P<kind>sqlite|duckdb):///(?P<path>[^?]+)")
_SERVERS: Final = ("postgresql", "postgres")
_CATALOGS: Final = "sqlite:///path, duckdb:///path or postgresql://user:password@host:5432/database"


class MirrorObserver(Observer):
    """Makes the mirrors of tables show their newest snapshots.

    Args:
        mirrors: Where the tables are mirrored.
    """

    def __init__(self, mirrors: "NoMirror | DuckLakeMirror") -> None:
        self.mirrors = mirrors

    def mirror_of(self, table: ObservedTable) -> TableMirror | None:
        """Return the mirror of a table, or None without one."""
        settings = mirror_settings(table.metadata, subject=table.subject)
        return self.mirrors.mirror_of(table.identifier, settings, subject=table.subject)

    def planned(self, table: ObservedTable) -> None:
        """Refuse settings that the mirror cannot follow."""
        self.mirror_of(table)

    def needed(self, table: ObservedTable) -> Mapping[int, str]:
        """Return the snapshot whose files the mirror shows. A copy has files of its own."""
        mirror = self.mirror_of(table)
        if mirror is None or mirror.mirror.mode == "copy":
            return {}
        try:
            record = mirror.record()
        except IcebergSparkError as error:
            raise type(error)(f"Cannot read what the mirror {mirror.mirror.table} shows. {error}") from error
        return {} if record is None else {record.snapshot_id: f"the mirror {mirror}, which shows it"}

    def moved(
        self, table: ObservedTable, *, report: Callable[[str], None], warn: Callable[[str], None]
    ) -> Mapping[str, Any]:
        """Make the mirror show the newest snapshot. Return what it shows.

        Raises:
            MirrorFailedError: The mirror failed, and its `on_failure` is `error`.
        """
        mirror = self.mirror_of(table)
        if mirror is None:
            return {}
        shown = {"table": str(mirror.mirror.table), "mode": mirror.mirror.mode}
        try:
            state = mirror.synchronize(table.catalog, table.identifier)
        except Exception as error:  # whatever happens to a mirror, the rows are committed
            found = mirror.failure_text(error, table.catalog)
            failure = MirrorFailedError.after_commit(table.identifier, found)
            if mirror.on_failure == "error":
                failure.allows_retries = not isinstance(error, IcebergSparkError) or error.allows_retries
                raise failure from error
            warn(str(failure))
            return {MIRROR_STATE: {**shown, "state": "behind", "error": found}}
        if state.ducklake_snapshot_id is not None:
            report(
                f"Mirrored snapshot {state.snapshot_id} of {table.identifier} in {state.seconds:.2f} s: "
                f"{mirror.mirror.table} ({mirror.mirror.mode}) in the {mirror.lake}, "
                f"DuckLake snapshot {state.ducklake_snapshot_id}."
            )
        known = {"snapshot_id": state.snapshot_id, "ducklake_snapshot_id": state.ducklake_snapshot_id}
        state_of = {
            **shown,
            "state": "current",
            **{key: str(value) for key, value in known.items() if value is not None},
            "seconds": round(state.seconds, 3),
        }
        return {MIRROR_STATE: state_of}


class NoMirror(Configuration):
    """No mirror."""

    kind: Literal["none"] = Field(default="none", description="No mirror.")

    def observer(self) -> MirrorObserver:
        """Return what refuses settings of assets."""
        return MirrorObserver(self)

    def mirror_of(
        self,
        identifier: TableIdentifier,  # noqa: ARG002
        settings: MirrorSettings | Literal[False] | None,
        *,
        subject: str,
    ) -> None:
        """Return None. Settings of an asset would have no effect.

        Raises:
            MetadataKeyError: The asset has some.
        """
        if settings:
            raise MetadataKeyError.of_value(
                MIRROR,
                subject,
                expected="an IO manager with a `mirror`",
                found="none",
                hint="set `mirror=DuckLakeMirror(catalog=...)` of the IO manager.",
            )

    def keep_files(self) -> None:
        """Do nothing: there is no DuckLake."""


class DuckLakeMirror(Configuration):
    """A DuckLake that shows the rows of the tables to people who work with DuckDB. Needs the extra `ducklake`.

    Example:
        >>> from dagster_iceberg_spark import DuckLakeMirror
        >>> DuckLakeMirror(catalog="sqlite:///lake/mirror.ducklake", mode="view").kind
        'ducklake'
    """

    kind: Literal["ducklake"] = Field(default="ducklake", description="A DuckLake.")
    catalog: str = Field(
        description="URI of the database with the metadata of the DuckLake, which is created if it does not exist: "
        "`sqlite:///path/to/mirror.ducklake`, `duckdb:///path/to/mirror.ducklake` or "
        "`postgresql://user:password@host:5432/database`. Use EnvVar if it holds a password."
    )
    data_path: str | None = Field(
        default=None,
        description="Directory or S3 URI of the DuckLake's own files, to which `copy` writes. Default: that of a "
        "DuckLake that exists, or the path of the `catalog` with `.files` at its end.",
    )
    mode: MirrorMode = Field(
        default="view",
        description="What the mirror of a table is: a `view` over Iceberg's metadata file, a table of Iceberg's own "
        "data files (`register`), or a table of copied rows (`copy`). An asset's `iceberg/mirror` overrides it.",
    )
    compression: Codec = Field(
        default="snappy",
        description="Compression of the files that `copy` writes. An asset's `iceberg/mirror` overrides it.",
    )
    encrypted: bool = Field(
        default=False,
        description="Whether a new DuckLake encrypts its own files. Their keys are in the `catalog`. It cannot "
        "`register` the files of Iceberg.",
    )
    on_failure: Literal["warn", "error"] = Field(
        default="warn",
        description="What happens if the mirror fails after the rows are committed: `warn` logs a warning, `error` "
        "fails the step, and the rows stay committed.",
    )

    def observer(self) -> MirrorObserver:
        """Return what mirrors the tables of an IO manager."""
        return MirrorObserver(self)

    @field_validator("catalog", mode="before")
    @classmethod
    def _has_known_scheme(cls, catalog: object) -> object:
        """Refuse an unknown database when the code location loads."""
        if isinstance(catalog, str) and not isinstance(catalog, dg.EnvVar) and not _is_known(catalog):
            raise _uri_refusal(catalog)
        return catalog

    def ducklake(self) -> DuckLake:
        """Return where the DuckLake is.

        Raises:
            ConfigurationError: The `catalog` is no URI of a database that DuckLake supports.
        """
        data_path = self.data_path
        if data_path is not None and not scheme_of(data_path):
            data_path = str(Path(data_path).absolute())
        file = _FILE.fullmatch(self.catalog)
        if file is not None:
            path = str(Path(file["path"]).absolute())
            kind: Literal["sqlite", "duckdb"] = "sqlite" if file["kind"] == "sqlite" else "duckdb"
            return DuckLake(kind, path, path, data_path, self.encrypted)
        parts = parts_of(self.catalog) if scheme_of(self.catalog) in _SERVERS else None
        if parts is None:
            raise _uri_refusal(self.catalog)
        return DuckLake(
            kind="postgresql",
            address=self.catalog,
            shown=f"{parts.hostname or 'localhost'}:{parts.port or 5432}{parts.path}",
            data_path=data_path,
            is_encrypted=self.encrypted,
            secrets=tuple(sorted(_spellings(parts))),
        )

    def mirror_of(
        self, identifier: TableIdentifier, settings: MirrorSettings | Literal[False] | None, *, subject: str
    ) -> TableMirror | None:
        """Return the mirror of a table, or None if its asset excludes it.

        Raises:
            ConfigurationError: The `catalog` is no URI of a database that DuckLake supports.
            MetadataKeyError: The asset asks for what an encrypted DuckLake cannot do.
        """
        lake = self.ducklake()
        if settings is False:
            return None
        mirror = Mirror.of(identifier, settings or MirrorSettings(), mode=self.mode, compression=self.compression)
        if mirror.mode == "register" and self.encrypted:
            raise MetadataKeyError.of_value(
                MIRROR, subject, expected="the mode `view` or `copy` in an encrypted DuckLake", found="`register`"
            )
        return TableMirror(lake, mirror, self.on_failure)

    def keep_files(self) -> None:
        """Take files that the DuckLake does not own off the list of files that it deletes, if there is a DuckLake."""
        from dagster_iceberg_spark.features.mirror.creation import opened_ducklake
        from dagster_iceberg_spark.features.mirror.synchronization import keep_files

        lake = self.ducklake()
        if lake.may_exist:
            with opened_ducklake(lake) as (database, options):
                keep_files(database, options)

    @contextmanager
    def connect(self) -> "Iterator[DuckDBPyConnection]":
        """Yield a DuckDB in memory that has the DuckLake attached as `mirror`, to read it.

        The extensions come from Python packages, so that nothing is downloaded. For files on S3, create a secret first.

        Raises:
            ConfigurationError: The extra `ducklake` is not installed, or there is no DuckLake.
        """
        from dagster_iceberg_spark.features.mirror.creation import attach_ducklake

        with attach_ducklake(self.ducklake(), name="mirror") as connection:
            yield connection


def _spellings(parts: SplitResult) -> set[str]:
    """Return the secrets of a URI in the spellings of URIs, of connection strings and of SQL."""
    query = [value for name, value in parse_qsl(parts.query, keep_blank_values=True) if holds_secret(name)]
    found = {parts.password or ""}
    for secret in (unquote(parts.password or ""), *query):
        escaped = secret.replace("\\", "\\\\").replace("'", "\\'")
        found |= {*spellings_of(secret), escaped, escaped.replace("'", "''")}
    return found - {""}


def _is_known(uri: str) -> bool:
    return _FILE.fullmatch(uri) is not None or scheme_of(uri) in _SERVERS


def _uri_refusal(uri: str) -> ConfigurationError:
    return ConfigurationError.refusing(
        "use",
        "`catalog` of the DuckLakeMirror",
        expected=_CATALOGS,
        found=repr(without_password(uri)),
        hint="a path that begins with a slash follows the three slashes of the URI: `sqlite:////data/mirror.ducklake`.",
    )


MirrorConfig: TypeAlias = Annotated[NoMirror | DuckLakeMirror, Field(discriminator="kind")]
