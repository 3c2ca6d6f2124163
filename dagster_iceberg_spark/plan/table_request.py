"""The table that a definition asks for."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.plan.environment import Environment
from dagster_iceberg_spark.plan.options import WriteOptions
from dagster_iceberg_spark.plan.placement import LocationTemplate
from dagster_iceberg_spark.plan.renames import StoredNames
from dagster_iceberg_spark.plan.staging import Staging
from dagster_iceberg_spark.table import lineage
from dagster_iceberg_spark.table.identifier import TableIdentifier


@dataclass(frozen=True, slots=True)
class TableCreation:
    """How a table and its namespace are created. Without a template, the catalog chooses the location."""

    creates_table: bool = True
    creates_namespace: bool = True
    namespace_properties: Mapping[str, str] = field(default_factory=dict)
    location: LocationTemplate | None = None

    def __post_init__(self) -> None:
        """Reject properties that namespaces cannot share, or that Spark sets."""
        for key in ("location", "owner"):
            if key in self.namespace_properties:
                raise ConfigurationError.refusing(
                    "use",
                    "`namespace_properties`",
                    expected="properties that suit every namespace",
                    found=repr(key),
                    hint="place tables by `table_location`." if key == "location" else "Spark sets it to its user.",
                )


def missing_namespace(identifier: TableIdentifier) -> ConfigurationError:
    """Return the error for a table whose namespace does not exist and must not be created."""
    return ConfigurationError.refusing(
        "write",
        str(identifier),
        expected="a namespace that is there, as `auto_create_namespace` is false",
        found="none of that name",
        hint="create it, or let the IO manager do it.",
    )


def missing_table(identifier: TableIdentifier, columns: str | None = None) -> ConfigurationError:
    """Return the error for a table that does not exist and must not be created."""
    how = "create it" if columns is None else f"create it with the columns {columns}"
    return ConfigurationError.refusing(
        "write",
        str(identifier),
        expected="a table that is there, as `auto_create_table` is false",
        found="none of that name",
        hint=f"{how}, or let the IO manager do it.",
    )


@dataclass(frozen=True, slots=True)
class TableRequest:
    """The table that a definition asks for. An op's output has no asset key, and owns no table.

    `staging` is None for a write whose rows are published at once, and `environment` for one in production.
    """

    identifier: TableIdentifier
    asset_key: str | None
    is_named_explicitly: bool
    options: WriteOptions
    column_docs: Mapping[str, str] = field(default_factory=dict)
    creation: TableCreation = field(default_factory=TableCreation)
    staging: Staging | None = None
    environment: Environment | None = None

    @property
    def branch(self) -> str:
        """The branch that the write goes to."""
        return self.options.branch if self.staging is None else self.staging.branch

    def by_names(self, names: StoredNames) -> "TableRequest":
        """Return the request with the table's names of the columns."""
        docs = {names.column(column): doc for column, doc in self.column_docs.items()}
        return replace(self, options=names.of_options(self.options), column_docs=docs)

    def with_properties(self, properties: Mapping[str, str]) -> "TableRequest":
        """Return the request with more table properties. Those that it already sets keep their values."""
        wanted = {**properties, **self.options.table_properties}
        return replace(self, options=replace(self.options, table_properties=wanted))

    def ownership(self) -> dict[str, str]:
        """Return the table properties that record the owner."""
        if self.asset_key is None:
            return {}
        named = {lineage.SHARED_PROPERTY: lineage.NAMED_EXPLICITLY} if self.is_named_explicitly else {}
        return {lineage.OWNER_PROPERTY: self.asset_key, **named}
