"""The mirror of one Iceberg table."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from dagster_iceberg_spark.catalog.description import CatalogDescription, hide_secrets
from dagster_iceberg_spark.errors import IcebergSparkError
from dagster_iceberg_spark.features.mirror.options import Mirror
from dagster_iceberg_spark.features.mirror.plan import MirrorRecord
from dagster_iceberg_spark.table.identifier import TableIdentifier

DatabaseKind: TypeAlias = Literal["sqlite", "duckdb", "postgresql"]
FORMAT_VERSION: Final = "1.0"
"""The version of the DuckLake specification that the package reads and writes."""


@dataclass(frozen=True, slots=True)
class DuckLake:
    """A DuckLake: the database of its metadata, and the directory of its own files.

    Args:
        kind: The kind of the database.
        address: The path of the file, or the URI of the PostgreSQL database, which may hold a password.
        shown: The address without a password, for messages.
        data_path: The directory or the URI of its own files, or None if the DuckLake must exist.
        is_encrypted: Whether its own files are encrypted, if it does not exist yet.
        secrets: Texts that no message shows, in all of their spellings.
    """

    kind: DatabaseKind
    address: str = field(repr=False)
    shown: str
    data_path: str | None
    is_encrypted: bool = False
    secrets: tuple[str, ...] = field(repr=False, default=())

    def __str__(self) -> str:
        return f"DuckLake at {self.shown}"

    @property
    def may_exist(self) -> bool:
        """Whether its database exists. That of PostgreSQL must."""
        return self.kind == "postgresql" or Path(self.address).exists()

    def redact(self, text: str) -> str:
        """Return the text without the secrets of the DuckLake."""
        return hide_secrets(text, self.secrets)


if TYPE_CHECKING:
    from dagster_iceberg_spark.features.mirror.synchronization import MirrorState


@dataclass(frozen=True, slots=True)
class TableMirror:
    """The mirror of one Iceberg table in a DuckLake. A code location loads without the modules that use it.

    Args:
        lake: The DuckLake.
        mirror: How the table is mirrored.
        on_failure: Whether a failure of the mirror is a warning, or fails the step.
    """

    lake: DuckLake
    mirror: Mirror
    on_failure: Literal["warn", "error"]

    def __str__(self) -> str:
        return f"{self.mirror.table} in the {self.lake}"

    def synchronize(self, catalog: "CatalogDescription", identifier: TableIdentifier) -> "MirrorState":
        """Make the mirror of a table show its newest snapshot. See `mirror.synchronization`."""
        from dagster_iceberg_spark.features.mirror.synchronization import synchronize

        return synchronize(self.lake, self.mirror, catalog, identifier)

    def record(self) -> MirrorRecord | None:
        """Return what the mirror shows, or None if there is none yet. See `mirror.inspection`."""
        from dagster_iceberg_spark.features.mirror.synchronization import mirror_record

        return mirror_record(self.lake, self.mirror)

    def problems(self, catalog: "CatalogDescription", identifier: TableIdentifier) -> list[str]:
        """Return in sentences how the mirror differs from its table. See `mirror.inspection`."""
        from dagster_iceberg_spark.features.mirror.synchronization import mirror_problems

        return mirror_problems(self.lake, self.mirror, catalog, identifier)

    def failure_text(self, error: Exception, catalog: "CatalogDescription") -> str:
        """Return why the mirror has failed, without the secrets of the DuckLake and the catalog."""
        found = str(error) if isinstance(error, IcebergSparkError) else f"{type(error).__name__}: {error}"
        return self.lake.redact(catalog.redact(found))
