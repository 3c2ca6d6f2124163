"""The mirror of one Iceberg table."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dagster_iceberg_spark.errors import IcebergSparkError
from dagster_iceberg_spark.features.mirror.ducklake import DuckLake
from dagster_iceberg_spark.features.mirror.options import Mirror
from dagster_iceberg_spark.features.mirror.plan import MirrorRecord
from dagster_iceberg_spark.table.identifier import TableIdentifier

if TYPE_CHECKING:
    from dagster_iceberg_spark.catalog.description import CatalogDescription
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
        from dagster_iceberg_spark.features.mirror.inspection import mirror_record

        return mirror_record(self.lake, self.mirror)

    def problems(self, catalog: "CatalogDescription", identifier: TableIdentifier) -> list[str]:
        """Return in sentences how the mirror differs from its table. See `mirror.inspection`."""
        from dagster_iceberg_spark.features.mirror.inspection import mirror_problems

        return mirror_problems(self.lake, self.mirror, catalog, identifier)

    def failure_text(self, error: Exception, catalog: "CatalogDescription") -> str:
        """Return why the mirror has failed, without the secrets of the DuckLake and the catalog."""
        found = str(error) if isinstance(error, IcebergSparkError) else f"{type(error).__name__}: {error}"
        return self.lake.redact(catalog.redact(found))
