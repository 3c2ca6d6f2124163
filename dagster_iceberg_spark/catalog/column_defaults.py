"""Sets default values of columns. Spark 4.1 and pyiceberg 0.12 cannot (`UNSUPPORTED_FEATURE.TABLE_OPERATION`)."""

from collections.abc import Iterator, Sequence
from typing import Any

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.schema import Schema
from pyiceberg.table.update import AddSchemaUpdate, AssertCurrentSchemaId, AssertTableUUID, SetCurrentSchemaUpdate

from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.document_commit import NewSchema
from dagster_iceberg_spark.catalog.look import can_commit, known_document, open_catalog
from dagster_iceberg_spark.catalog.transaction import TableCommit, commit_table
from dagster_iceberg_spark.errors import CommitConflictError, ConfigurationError
from dagster_iceberg_spark.plan.options.output_options import DEFAULTS
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.updates import AddColumn, SetDefault, TableUpdate


def is_default(change: TableUpdate) -> bool:
    """Return whether a change sets a default value."""
    return isinstance(change, SetDefault) or (isinstance(change, AddColumn) and change.default is not None)


def require_defaults(description: CatalogDescription, changes: Sequence[TableUpdate], *, subject: str) -> None:
    """Reject changes of default values in a catalog whose metadata only an engine writes."""
    if any(map(is_default, changes)) and not can_commit(description):
        raise ConfigurationError.refusing(
            "write",
            subject,
            expected=f"a catalog other than a directory, for `{DEFAULTS}`",
            found=f"the {description}: Spark cannot set default values",
            hint="leave the key out, or set the values in the asset.",
        )


def set_defaults(description: CatalogDescription, identifier: TableIdentifier, changes: Sequence[TableUpdate]) -> None:
    """Set default values, and add columns that have some, in one commit.

    Raises:
        CommitConflictError: Another writer commits at the same moment, or has changed the columns.
    """
    table, document = known_document(description, identifier, action="prepare")
    current = next(item for item in document["schemas"] if item["schema-id"] == document["current-schema-id"])
    before, last_id = current["schema-id"], document["last-column-id"]
    new_id = max(schema["schema-id"] for schema in document["schemas"]) + 1
    fields = list(_fields(current["fields"], changes, last_id))
    schema = {**current, "schema-id": new_id, "fields": fields}
    requirements = (
        AssertTableUUID(uuid=table.metadata.table_uuid),
        AssertCurrentSchemaId.model_validate({"current-schema-id": before}),
    )
    updates: tuple[Any, ...] = (NewSchema(schema, max(field["id"] for field in fields)),)
    if isinstance(open_catalog(description), RestCatalog):
        own = Schema.model_validate(schema)
        updates = (AddSchemaUpdate(schema=own), SetCurrentSchemaUpdate.model_validate({"schema-id": -1}))
    commit = TableCommit(identifier, table, {}, requirements, updates)
    if not commit_table(description, commit, action=f"set the default values of {identifier} in"):
        raise CommitConflictError.to_plan_again(
            "prepare", identifier, expected="a table that no other writer changes", found="a commit of another writer"
        )


def _fields(fields: Sequence[dict[str, Any]], changes: Sequence[TableUpdate], last_id: int) -> Iterator[dict[str, Any]]:
    defaults = {change.column: change.default for change in changes if isinstance(change, SetDefault)}
    for field in fields:
        yield {**field, "write-default": defaults[field["name"]]} if field["name"] in defaults else field
    added = [change for change in changes if isinstance(change, AddColumn)]
    for number, change in enumerate(added, start=last_id + 1):
        values = {"initial-default": change.default, "write-default": change.default}
        doc = {} if change.doc is None else {"doc": change.doc}
        yield {"id": number, "name": change.path[0], "required": False, "type": str(change.type), **doc, **values}
