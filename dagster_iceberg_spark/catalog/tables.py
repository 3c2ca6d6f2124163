"""Lists the tables of a catalog."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError
from pyiceberg.typedef import Identifier

from dagster_iceberg_spark.catalog.clients.nessie import is_nessie
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.look import call_catalog, look, open_catalog
from dagster_iceberg_spark.errors import IcebergSparkError, NotAnIcebergTableError
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.snapshot import TableState

_S3_TABLES: Final = "s3tables"
"""The service in the signatures of requests to AWS S3 Tables."""


def tables_of(
    description: CatalogDescription, has_namespace: Callable[[Sequence[str]], bool] = lambda _: True
) -> tuple[TableIdentifier, ...]:
    """Return the tables of all namespaces of a catalog, or of some of them, sorted by name."""

    def list_names() -> list[Identifier]:
        catalog = open_catalog(description)
        namespaces = filter(has_namespace, _namespaces(catalog))
        return [table for namespace in namespaces for table in _tables(catalog, namespace)]

    found = call_catalog(description, list_names, action="list the tables of")
    return tuple(TableIdentifier(parts[:-1], parts[-1]) for parts in sorted(set(found)))


def readable_tables(
    description: CatalogDescription, known: Mapping[TableIdentifier, TableState], warn: Callable[[str], None]
) -> tuple[dict[TableIdentifier, TableState], list[str]]:
    """Return the current state of each table of a catalog, and the names of those that cannot be read.

    Args:
        description: The catalog.
        known: The tables whose state is known already.
        warn: Called with a sentence about each table that cannot be read.
    """
    found, unread = dict[TableIdentifier, TableState](), list[str]()
    for identifier in tables_of(description):
        try:
            state = known.get(identifier) or look(description, identifier)
        except NotAnIcebergTableError:
            continue
        except IcebergSparkError as error:
            warn(f"Cannot determine what {identifier} still needs, or was derived from. {error}")
            unread.append(str(identifier))
            continue
        if state is not None:
            found[identifier] = state
    return found, unread


def manages_files(description: CatalogDescription) -> bool:
    """Return whether the catalog itself expires snapshots and deletes files, as S3 Tables and Nessie do."""
    if description.spark_properties.get("rest.signing-name") == _S3_TABLES:
        return True
    return call_catalog(description, lambda: is_nessie(open_catalog(description)), action="open")


def _namespaces(catalog: Catalog, parent: Identifier = ()) -> Iterator[Identifier]:
    """Yield the namespaces below a namespace, on all levels."""
    for namespace in catalog.list_namespaces(parent):
        if len(namespace) > len(parent):  # some catalogs list the namespace itself
            yield namespace
            yield from _namespaces(catalog, namespace)


def _tables(catalog: Catalog, namespace: Identifier) -> list[Identifier]:
    try:
        return catalog.list_tables(namespace)
    except NoSuchNamespaceError:  # dropped in the meantime, or one that exists only by what is below it
        return []
