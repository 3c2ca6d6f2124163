"""The tables of a catalog as of points, which are resolved once for each client."""

import datetime as dt
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyiceberg.catalog.rest import RestCatalog

from dagster_iceberg_spark.catalog.branches import change_tags
from dagster_iceberg_spark.catalog.clients.rest_requests import vended_credentials
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.look import (
    TableDocument,
    call_catalog,
    open_catalog,
    pointer_of,
    pointers_of,
    table_document,
)
from dagster_iceberg_spark.catalog.tables import tables_of
from dagster_iceberg_spark.errors import CommitConflictError, ConfigurationError, NotAnIcebergTableError
from dagster_iceberg_spark.features.serving.plan import Point, document_at, resolution_id, snapshots_at, tags_to_keep
from dagster_iceberg_spark.table.identifier import TableIdentifier

_MOST_RESOLUTIONS: Final = 256
_MOST_DOCUMENTS: Final = 1_024
_ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True)
class Resolution:
    """The snapshots of a point.

    Args:
        id: An id over them.
        snapshots: The snapshot of each table that the point has.
    """

    id: str
    point: Point
    snapshots: Mapping[TableIdentifier, int]


@dataclass
class ServedTables:
    """The tables of a catalog as of points.

    A resolution is found by an id over its snapshots, which a client keeps. It is the same whatever is committed later.

    Args:
        description: The catalog.
        keep_days: For how many days tags keep the snapshots of a point from expiry once it is asked for, or None to
            write nothing. A release has a tag of its own.
        vends: Whether clients get the credentials for files that the catalog, a REST catalog, hands out.
    """

    description: CatalogDescription
    keep_days: int | None = None
    vends: bool = False
    _resolutions: "OrderedDict[str, Resolution]" = field(default_factory=OrderedDict)
    _documents: "OrderedDict[tuple[TableIdentifier, str], TableDocument]" = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def resolve(self, point: Point) -> Resolution:
        """Return the snapshots of a point, as of one moment.

        Raises:
            UpstreamMissingError: No table has the point. The message lists some that there are.
            CommitConflictError: Other writers commit faster than all tables are looked at.
        """
        documents = self._all_documents()
        states = {identifier: found.state for identifier, found in documents.items()}
        snapshots = snapshots_at(point, states, action="serve")
        found = Resolution(resolution_id(point, snapshots), point, snapshots)
        if self.keep_days is not None and point.kind != "release":
            now = dt.datetime.now(dt.timezone.utc)
            for identifier, tag in tags_to_keep(found.id, snapshots, states, days=self.keep_days, now=now).items():
                if not change_tags(self.description, identifier, [tag]):
                    raise ConfigurationError.refusing(
                        "keep",
                        str(identifier),
                        expected="a table that takes a tag without an engine",
                        found="a table in a directory",
                        hint="serve without `--keep`.",
                    )
        with self._lock:
            self._resolutions[found.id] = found
            while len(self._resolutions) > _MOST_RESOLUTIONS:
                self._resolutions.popitem(last=False)
        return found

    def known(self, resolution: str) -> Resolution | None:
        """Return a resolution by its id, or None if it was made too long ago, or by another server."""
        return self._resolutions.get(resolution)

    def metadata(self, identifier: TableIdentifier, snapshot_id: int) -> tuple[str, dict[str, Any]] | None:
        """Return where a table's metadata is, and the metadata as of a snapshot. None if the snapshot has expired."""
        found = self._document(identifier, pointer_of(self.description, identifier))
        if found is None or snapshot_id not in found.state.snapshots:
            return None
        return found.location, document_at(found.document, snapshot_id)

    def vended(self, identifier: TableIdentifier) -> dict[str, Any]:
        """Return what the catalog hands out for the files of a table, as fields of the answer to `loadTable`."""
        if not self.vends:
            return {"config": {}}

        def answer() -> dict[str, Any]:
            catalog = open_catalog(self.description)
            return vended_credentials(catalog, identifier.parts) if isinstance(catalog, RestCatalog) else {}

        found = call_catalog(self.description, answer, action=f"ask for the credentials of {identifier} in")
        return {"config": {}, **found}

    def _all_documents(self) -> dict[TableIdentifier, TableDocument]:
        """Return the documents of all tables as they were at one moment, if the catalog shows what has moved."""
        for _ in range(_ATTEMPTS):
            names = tables_of(self.description)
            pointers = pointers_of(self.description, names)
            documents = {name: self._document(name, pointers[name]) for name in names}
            found = {name: known for name, known in documents.items() if known is not None}
            pointers = pointers_of(self.description, names)
            if all(pointers[name] in (None, known.location) for name, known in found.items()):
                return found
        raise CommitConflictError.refusing(
            "serve",
            str(self.description),
            expected="a moment in which no table moves",
            found="commits during each look at all tables",
            hint="ask again.",
        )

    def _document(self, identifier: TableIdentifier, pointer: str | None) -> TableDocument | None:
        if pointer is not None and (known := self._documents.get((identifier, pointer))) is not None:
            return known
        try:
            found = table_document(self.description, identifier)
        except NotAnIcebergTableError:
            return None
        if found is not None:
            with self._lock:
                self._documents[identifier, found.location] = found
                while len(self._documents) > _MOST_DOCUMENTS:
                    self._documents.popitem(last=False)
        return found
