"""The IO manager: `handle_output` and `load_input`, each a short story told in the rooms' words."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import dagster as dg
from pydantic import Field

from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.config.configuration import HIDES_INPUT, require_fields, without_secrets
from dagster_iceberg_spark.dagster_private import add_partition_metadata, set_data_version, step_facts
from dagster_iceberg_spark.errors import IcebergSparkError
from dagster_iceberg_spark.inputs.read_log import record_read
from dagster_iceberg_spark.inputs.read_request import RUN_CONFIG, read_request
from dagster_iceberg_spark.outputs.definition import defined_table
from dagster_iceberg_spark.outputs.metadata import data_version, materialization_metadata, partition_metadata
from dagster_iceberg_spark.outputs.write_request import write_request
from dagster_iceberg_spark.plan.comparison import TableReport, differences
from dagster_iceberg_spark.plan.options import OUTPUT_KEYS
from dagster_iceberg_spark.plan.placement import LocationTemplate
from dagster_iceberg_spark.plan.table_request import TableCreation, missing_namespace, missing_table
from dagster_iceberg_spark.plan.write_request import RetryLimits, WriteRequest
from dagster_iceberg_spark.resource import IcebergSparkResource
from dagster_iceberg_spark.table.commit import Commit


class IcebergPySparkIOManager(dg.ConfigurableIOManager):
    """Stores Spark DataFrames that assets return as Iceberg tables, and loads them for other assets.

    Example:
        >>> import dagster as dg
        >>> from dagster_iceberg_spark import IcebergPySparkIOManager
        >>> defs = dg.Definitions(assets=[], resources={"iceberg": IcebergPySparkIOManager()})
    """

    model_config = HIDES_INPUT

    spark: dg.ResourceDependency[IcebergSparkResource]
    namespace: str | None = Field(
        default=None,
        description="Namespace of the tables. Default: the last part of an asset key's prefix, else `public`. An "
        "asset's own `schema` metadata wins.",
    )
    write_disposition: Literal["replace", "append", "merge", "overwrite_partitions"] = Field(
        default="replace", description="How rows are written where an asset's `iceberg/write_disposition` does not say."
    )
    schema_evolution: Literal["strict", "add_columns", "full"] = Field(
        default="add_columns",
        description="What happens when a DataFrame has other columns than its table: `strict` refuses it, "
        "`add_columns` adds columns and widens types, `full` also drops columns and takes the DataFrame's order.",
    )
    partition_evolution: Literal["evolve", "error"] = Field(
        default="evolve",
        description="What happens when an asset's `iceberg/partition_by` differs from its table's spec.",
    )
    rows_outside_partition: Literal["error", "drop"] = Field(
        default="error", description="What happens to rows that the run's partitions do not own."
    )
    table_properties: dict[str, str] = Field(
        default={},
        description="Iceberg table properties of every table; an asset's `iceberg/table_properties` replaces them.",
    )
    write_options: dict[str, str] = Field(
        default={},
        description="Iceberg's write options of every write; an asset's `iceberg/write_options` replaces them.",
    )
    auto_create_table: bool = Field(
        default=True, description="Whether the first write of an asset creates its table. If not, it has to be there."
    )
    auto_create_namespace: bool = Field(
        default=True, description="Whether a table's namespace is created with it. If not, it has to be there."
    )
    namespace_properties: dict[str, str] = Field(
        default={},
        description="Properties of namespaces that are created, such as `comment`; none of them is `location`.",
    )
    table_location: str | None = Field(
        default=None,
        description="Directory of each new table: a template with `{namespace}` and `{table}`, such as "
        "`s3://lake/{namespace}/{table}`; a relative one is below the catalog's warehouse. Default: the catalog's "
        "choice. An asset's `iceberg/location` wins.",
    )
    data_version: Literal["auto", "snapshot", "dagster"] = Field(
        default="auto",
        description="The data version that Dagster records: the snapshot id (`snapshot`), Dagster's own (`dagster`), "
        "or the snapshot id unless the asset has a code version (`auto`).",
    )
    input_type: Literal[
        "pyspark.sql.DataFrame",
        "pyarrow.Table",
        "pyarrow.RecordBatchReader",
        "pandas.DataFrame",
        "polars.DataFrame",
        "polars.LazyFrame",
        "duckdb.DuckDBPyRelation",
        "ibis.Table",
        "pyiceberg.table.DataScan",
        "pyiceberg.table.Table",
    ] = Field(default="pyspark.sql.DataFrame", description="What an input without annotation is loaded as.")
    commit_attempts: int = Field(
        default=5,
        ge=1,
        description="How often a write is planned in all when other writers commit first or the catalog, the store or "
        "the server fails for a while.",
    )
    commit_seconds: float = Field(default=600.0, gt=0, description="Seconds after which no new attempt starts.")

    def __init__(self, **data: Any) -> None:
        """Take the fields as keywords; without `spark` an embedded catalog and local files are used."""
        require_fields(type(self), data)
        if "spark" not in data:
            data["spark"] = IcebergSparkResource()
        super().__init__(**data)

    def __repr__(self) -> str:
        """Return the configuration without what may be secret."""
        return without_secrets(self)

    __str__ = __repr__

    def inspect_table(self, spec: dg.AssetSpec) -> TableReport:
        """Compare the table of an asset with its definition; nothing is written.

        No session is started, unless only the session knows the catalog.

        Args:
            spec: The asset's, as `AssetsDefinition.specs` has it.

        Raises:
            ConfigurationError: The definition is wrong, or the next write of the asset would be refused.
            CatalogUnavailableError: The catalog does not answer.
        """
        from dagster_iceberg_spark.catalog.look import has_namespace, look

        defined = defined_table(spec, namespace=self.namespace, configuration=self._configuration())
        catalog, identifier = self.spark.catalog_description, defined.request.identifier
        state = look(catalog, identifier)
        if state is None and not self.auto_create_table:
            raise missing_table(identifier)
        if state is None and not self.auto_create_namespace and not has_namespace(catalog, identifier.namespace):
            raise missing_namespace(identifier)
        found = None if state is None else differences(defined, state)
        return TableReport(identifier, exists=state is not None, differences=found or ())

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Store the DataFrame as one snapshot of its table.

        Args:
            context: Dagster's.
            obj: A `pyspark.sql.DataFrame`, classic or Connect; or rows as pyarrow, pandas, polars, DuckDB or ibis
                have them, or an iterator of Arrow batches, which are written as they come.

        Raises:
            Failure: The configuration or the data must be fixed first; the cause is an `IcebergSparkError`.
            RetryableError: The same may succeed when it is tried again.
        """
        with _final_errors(context):
            _, request = self.write_request_of(context)
            commit = self._materialize(request, obj)
            self._report(context, request, commit)

    def load_input(self, context: dg.InputContext) -> Any:
        """Load the input's partitions, pinned to one snapshot of the table, as its annotation says.

        Args:
            context: Dagster's.

        Raises:
            Failure: The configuration must be fixed or the upstream materialized; the cause is an `IcebergSparkError`.
            RetryableError: The same may succeed when it is tried again.
        """
        from dagster_iceberg_spark.inputs.loading import InputLoader

        with _final_errors(context):
            request, asked_at = read_request(context, namespace=self.namespace), time.time()
            loaded = InputLoader(self.spark, context, request, self.input_type).load()
            record_read(context, request, loaded.snapshot_id, loaded.changes, loaded.output_heads, asked_at=asked_at)
            return loaded.value

    def write_request_of(self, context: dg.OutputContext) -> tuple[CatalogDescription, WriteRequest]:
        """Return what an output asks for, and the catalog of its table.

        Args:
            context: Dagster's.

        Raises:
            MetadataKeyError: A metadata key or value is wrong.
            PartitioningError: `partition_expr` is missing or does not fit the partitions definition.
        """
        request = write_request(
            context,
            namespace=self.namespace,
            configuration=self._configuration(),
            creation=self._creation(),
            limits=RetryLimits(self.commit_attempts, self.commit_seconds),
        )
        return self.spark.catalog_description, request

    @classmethod
    def input_config_schema(cls) -> Any:
        """Return what a run's configuration may say of an input: when to read it."""
        return RUN_CONFIG

    def _materialize(self, request: WriteRequest, obj: Any) -> Commit:
        from dagster_iceberg_spark.spark.commit import materialize
        from dagster_iceberg_spark.spark.frames import frame_to_write

        with frame_to_write(obj, lambda: self.spark.iceberg_session, subject=request.subject) as frame:
            return materialize(self.spark.iceberg_session, request, frame)

    def _report(self, context: dg.OutputContext, request: WriteRequest, commit: Commit) -> None:
        catalog, materialization = self.spark.catalog_description, request.materialization
        metadata = materialization_metadata(
            commit, materialization.scope, catalog=catalog.name, column_docs=request.table.column_docs
        )
        given = context.output_metadata
        context.add_output_metadata({key: value for key, value in metadata.items() if key not in given})
        for partition_key, of_partition in partition_metadata(commit).items():
            add_partition_metadata(context, partition_key, of_partition)
        version = data_version(commit, self.data_version, code_version=materialization.code_version)
        if version is not None:
            set_data_version(context, version)
        if commit.has_created:
            context.log.info(f"Created {commit.identifier} at {commit.location}, in the {catalog}.")
        done = "Adopted the earlier attempt's" if commit.is_adopted else "Committed"
        context.log.info(
            f"{done} snapshot {commit.snapshot.snapshot_id} of {commit.identifier}: "
            f"{commit.snapshot.count('added-records')} rows added, {commit.snapshot.count('deleted-records')} deleted, "
            f"{commit.write_seconds:.1f} s to write, {commit.commit_seconds:.1f} s to commit."
        )

    def _creation(self) -> TableCreation:
        return TableCreation(
            creates_table=self.auto_create_table,
            creates_namespace=self.auto_create_namespace,
            namespace_properties=self.namespace_properties,
            location=None if self.table_location is None else LocationTemplate(self.table_location),
        )

    def _configuration(self) -> dict[str, Any]:
        """Return the fields that an asset's metadata overrides."""
        return {key.option: getattr(self, key.option) for key in OUTPUT_KEYS.values() if key.is_configurable}


@contextmanager
def _final_errors(context: dg.OutputContext | dg.InputContext) -> Iterator[None]:
    """Tell Dagster which errors a RetryPolicy should leave alone; outside of a run they stay what they are."""
    try:
        yield
    except IcebergSparkError as error:
        if error.allows_retries or step_facts(context) is None:
            raise
        raise dg.Failure(
            description=str(error), metadata={"error": type(error).__name__}, allow_retries=False
        ) from error
