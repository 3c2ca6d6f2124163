"""Stages rows as Parquet on a store that this process and Spark both reach, which is faster than sending them.

The file is next to the tables of the catalog's warehouse. Its name does not begin with an underscore, because Spark
ignores such files, and it has no directory of its own, which a Hadoop catalog would list as a namespace.
"""

import logging
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyarrow import parquet
from pyiceberg.io import FileIO, load_file_io

from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.first_line import first_line
from dagster_iceberg_spark.catalog.look import translated_answers

PREFIX: Final = "dagster-staged-"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Store:
    """A store for staged files.

    Args:
        location: The URI of the directory.
        properties: The properties of pyiceberg's FileIO.
        catalog: The catalog whose warehouse this is, or None for a directory of this machine.
    """

    location: str
    properties: Mapping[str, Any]
    catalog: CatalogDescription | None = None

    def new_file(self) -> "StagedFile":
        """Return a file that does not exist yet."""
        uri = f"{self.location.rstrip('/')}/{PREFIX}{uuid.uuid4().hex}.parquet"
        return StagedFile(uri, load_file_io(dict(self.properties), uri), self.catalog)


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file with rows, for Spark to read."""

    uri: str
    _io: FileIO
    _catalog: CatalogDescription | None

    def write(self, schema: pa.Schema, chunks: Iterable[pa.Table]) -> None:
        """Write each chunk as a row group. Errors of the chunks themselves are raised as they are."""
        with self._translated():
            stream = self._io.new_output(self.uri).create()
            writer = parquet.ParquetWriter(stream, schema, version="2.6")
        try:
            for chunk in chunks:
                with self._translated():
                    writer.write_table(chunk)
        finally:
            with self._translated():
                writer.close()
                stream.close()

    def delete(self) -> None:
        """Delete the file. If this fails, the file stays: its rows are written, and no reader lists it."""
        try:
            self._io.delete(self.uri)
        except FileNotFoundError:
            pass
        except Exception as error:  # noqa: BLE001 - of the store's client
            _log.warning("Could not delete the staged file %s: %s", self.uri, first_line(error))

    def _translated(self) -> AbstractContextManager[None]:
        if self._catalog is None:
            return nullcontext()
        return translated_answers(self._catalog, action="stage rows in the warehouse of")


def warehouse_of(catalog: CatalogDescription) -> Store | None:
    """Return the warehouse as a store, or None if the catalog does not say where it is."""
    if catalog.warehouse is None or ":/" not in catalog.warehouse:
        return None
    return Store(catalog.warehouse, catalog.pyiceberg_properties, catalog)


@contextmanager
def local_store() -> Iterator[Store]:
    """Yield a directory of this machine, which is deleted at the end."""
    with tempfile.TemporaryDirectory(prefix="dagster-iceberg-") as directory:
        yield Store(Path(directory).as_uri(), {})
