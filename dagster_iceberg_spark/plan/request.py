"""What is asked of one write: the definition's table, the frame's columns."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dagster_iceberg_spark.plan.options import WriteOptions
from dagster_iceberg_spark.plan.renames import StoredNames
from dagster_iceberg_spark.table import lineage
from dagster_iceberg_spark.table.identifier import TableIdentifier


@dataclass(frozen=True, slots=True)
class TableRequest:
    """What the definition wants of the table.

    Args:
        identifier: The table's name.
        asset_key: The owning asset, its parts joined by slashes; None for an op's output, which owns nothing.
        is_named_explicitly: Whether `iceberg/table` gave the name.
        options: How the output is written.
        column_docs: Descriptions of columns that the definition gives.
    """

    identifier: TableIdentifier
    asset_key: str | None
    is_named_explicitly: bool
    options: WriteOptions
    column_docs: Mapping[str, str] = field(default_factory=dict)

    def by_names(self, names: StoredNames) -> "TableRequest":
        """Return the request over the names that the table has for its columns."""
        docs = {names.column(column): doc for column, doc in self.column_docs.items()}
        return replace(self, options=names.of_options(self.options), column_docs=docs)

    def with_properties(self, properties: Mapping[str, str]) -> "TableRequest":
        """Return the request with more table properties, where it does not say something else of them."""
        wanted = {**properties, **self.options.table_properties}
        return replace(self, options=replace(self.options, table_properties=wanted))

    def ownership(self) -> dict[str, str]:
        """Return the table properties that record the owner."""
        if self.asset_key is None:
            return {}
        named = {lineage.SHARED_PROPERTY: lineage.NAMED_EXPLICITLY} if self.is_named_explicitly else {}
        return {lineage.OWNER_PROPERTY: self.asset_key, **named}
