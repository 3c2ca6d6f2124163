"""The IO manager without its observers: it stores DataFrames as Iceberg tables and loads them."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import dagster as dg
from pydantic import Field

from dagster_iceberg_spark.assets.address import plain_metadata, table_of
from dagster_iceberg_spark.assets.asking import OutputFacts, input_facts, output_facts
from dagster_iceberg_spark.assets.commit_metadata import record_audits, recorded_failures, report_commit
from dagster_iceberg_spark.assets.dagster_private.context import StepFacts
from dagster_iceberg_spark.assets.engines import commit_output
from dagster_iceberg_spark.assets.observers import ObservedTable, ObservedWrite, Observer, report_write
from dagster_iceberg_spark.assets.read_requests import RUN_CONFIG, read_request
from dagster_iceberg_spark.assets.write_requests import defined_table, write_request
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.config.configuration import (
    HIDES_INPUT,
    ConfiguredOnce,
    Properties,
    require_fields,
    without_secrets,
)
from dagster_iceberg_spark.errors import IcebergSparkError
from dagster_iceberg_spark.plan.options.output_options import CONFIGURABLE
from dagster_iceberg_spark.plan.publication.branch import (
    ENVIRONMENT_RETENTION_DAYS,
    REPLAYED_RUN,
    Environment,
    replay_environment,
)
from dagster_iceberg_spark.plan.write.comparison import DefinedTable
from dagster_iceberg_spark.plan.write.placement import LocationTemplate, TableCreation
from dagster_iceberg_spark.plan.write.write_request import STAGED_RETENTION_DAYS, RetryLimits, WriteRequest
from dagster_iceberg_spark.resource import IcebergSparkResource
from dagster_iceberg_spark.table.audit import SHOWN_ROWS
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.snapshot import PublishedBy


class TableIOManager(ConfiguredOnce, dg.ConfigurableIOManager):
    """Stores the DataFrames that assets return as Iceberg tables, and loads them. No feature is needed for it."""

    model_config = HIDES_INPUT

    spark: dg.ResourceDependency[IcebergSparkResource]
    namespace: str | None = Field(
        default=None,
        description="Namespace of the tables. An asset's `schema` metadata overrides it. Default: the last part of the "
        "asset key's prefix, else `public`.",
    )
    write_disposition: Literal["replace", "append", "merge", "overwrite_partitions"] = Field(
        default="replace", description="How rows are written if an asset does not set `iceberg/write_disposition`."
    )
    schema_evolution: Literal["strict", "add_columns", "full"] = Field(
        default="add_columns",
        description="What happens if the columns of a DataFrame differ from those of its table: `strict` rejects the "
        "DataFrame, `add_columns` adds columns and widens types, `full` also drops columns and adopts the DataFrame's "
        "order.",
    )
    partition_evolution: Literal["evolve", "error"] = Field(
        default="evolve",
        description="What happens if an asset's `iceberg/partition_by` differs from the spec of its table: `evolve` "
        "changes the spec for new files, `error` rejects the write.",
    )
    engine: Literal["auto", "arrow", "spark"] = Field(
        default="auto",
        description="What writes rows of Arrow, pandas, polars, DuckDB and ibis: `arrow`, without a JVM; `spark`; or "
        "Arrow where it can, else Spark (`auto`).",
    )
    arrow_bytes: int = Field(
        default=256 * 1024 * 1024,
        ge=0,
        description="The bytes in memory up to which Arrow writes rows. With `auto`, Spark writes more.",
    )
    rows_outside_partition: Literal["error", "drop"] = Field(
        default="error",
        description="What happens to rows that belong to none of the run's partitions: `error` rejects the write, "
        "`drop` leaves the rows out.",
    )
    table_properties: Properties = Field(
        default={},
        description="Iceberg table properties of every table. An asset's `iceberg/table_properties` replaces them.",
    )
    write_options: Properties = Field(
        default={},
        description="Iceberg's Spark write options for every write. An asset's `iceberg/write_options` replaces them.",
    )
    auto_create_table: bool = Field(
        default=True, description="Whether the first write of an asset creates its table. If not, the table must exist."
    )
    auto_create_namespace: bool = Field(
        default=True, description="Whether the namespace is created with the table. If not, it must exist."
    )
    namespace_properties: Properties = Field(
        default={},
        description="Properties of the namespaces that the IO manager creates, such as `comment`, but not `location`.",
    )
    table_location: str | None = Field(
        default=None,
        description="Directory of each new table: a template with `{namespace}` and `{table}`, such as "
        "`s3://lake/{namespace}/{table}`. A relative path is below the catalog's warehouse. An asset's "
        "`iceberg/location` overrides it. Default: the catalog's choice.",
    )
    publish: PublishedBy = Field(
        default="step",
        description="What publishes the rows of an asset that does not set `iceberg/publish`: the `step` that writes "
        "them, or a `release` of several assets.",
    )
    on_failure: Literal["keep", "drop"] = Field(
        default="keep",
        description="Whether staged rows that an audit or a release rejects stay in their branch (`keep`), or are "
        "dropped (`drop`).",
    )
    staged_retention_days: int = Field(
        default=STAGED_RETENTION_DAYS,
        ge=1,
        description="Days for which staged rows that are not published stay in their branch. After that, the expiry "
        "of snapshots removes the branch.",
    )
    audit_samples: int = Field(
        default=SHOWN_ROWS,
        ge=0,
        description="How many rows that fail an audit are shown in the error and in Dagster's event log, each with the "
        "columns of the audit, of the partitions and of the merge keys. 0 for none.",
    )
    environment: str | None = Field(
        default=None,
        description="Environment: writes go to the branch `env_<name>` of each table, and reads take it where it "
        "exists. Production if it is empty, or an EnvVar that is not set.",
    )
    environment_retention_days: int = Field(
        default=ENVIRONMENT_RETENTION_DAYS,
        ge=1,
        description="Days without a write after which the expiry of snapshots removes a branch of the environment.",
    )
    data_version: Literal["auto", "snapshot", "dagster"] = Field(
        default="auto",
        description="The data version that Dagster records: the snapshot id (`snapshot`), the one that Dagster "
        "computes (`dagster`), or the snapshot id unless the asset has a code version (`auto`).",
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
    ] = Field(default="pyspark.sql.DataFrame", description="The type of an input that has no annotation.")
    commit_attempts: int = Field(
        default=5,
        ge=1,
        description="Maximum number of attempts of a write. It is attempted again if another writer commits first, or "
        "if the catalog, the store or the server fails temporarily.",
    )
    commit_seconds: float = Field(
        default=600.0, gt=0, description="Seconds after the start of the write in which a new attempt may start."
    )

    def __init__(self, **data: Any) -> None:
        require_fields(type(self), data)
        environment = data.get("environment")
        if isinstance(environment, dg.EnvVar) and os.environ.get(environment.env_var_name) is None:
            del data["environment"]
        if "spark" not in data:
            data["spark"] = IcebergSparkResource()
        super().__init__(**data)

    def __repr__(self) -> str:
        """Return the configuration without secrets."""
        return without_secrets(self)

    __str__ = __repr__

    def table_of(self, spec: dg.AssetSpec) -> TableIdentifier:
        """Return the table of an asset.

        Args:
            spec: The spec of the asset, from `AssetsDefinition.specs`.
        """
        subject = "/".join(spec.key.path)
        return table_of(spec.key, plain_metadata(spec.metadata), self.namespace, subject=subject)

    def definition_of(self, spec: dg.AssetSpec) -> DefinedTable:
        """Return the table that the definition of an asset asks for.

        Args:
            spec: The spec of the asset, from `AssetsDefinition.specs`.
        """
        return defined_table(
            spec, namespace=self.namespace, configuration=self._configuration(), environment=self._environment
        )

    def observers(self) -> Sequence[Observer]:
        """Return what observes the tables: nothing, unless a subclass has fields for it."""
        return ()

    def observed_table(self, spec: dg.AssetSpec) -> ObservedTable:
        """Return the table of an asset, for observers."""
        metadata, subject = plain_metadata(spec.metadata), "/".join(spec.key.path)
        return ObservedTable(self.spark.catalog_description, self.table_of(spec), metadata, subject)

    def moved(
        self, table: ObservedTable, *, report: Callable[[str], None], warn: Callable[[str], None]
    ) -> dict[str, Any]:
        """Tell the observers that `main` of a table has moved. Return what they report, by the keys of metadata."""
        reported = dict[str, Any]()
        for observer in self.observers():
            reported |= observer.moved(table, report=report, warn=warn)
        return reported

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Store the DataFrame as one snapshot of its table.

        Args:
            context: Dagster's context of the output.
            obj: A `pyspark.sql.DataFrame`, classic or Connect; or rows of pyarrow, pandas, polars, DuckDB or ibis; or
                an iterator of Arrow batches, which are written as they arrive.

        Raises:
            Failure: You must fix the configuration or the data first. The cause is an `IcebergSparkError`.
            RetryableError: The same write may succeed if it is tried again.
        """
        facts = output_facts(context)
        with final_errors(is_in_step=facts.step is not None), self.spark.doubted_after_failures():
            catalog, request = self.write_request_of(facts)
            metadata, observers = plain_metadata(facts.definition), self.observers()
            table = ObservedTable(catalog, request.identifier, metadata, request.subject)
            for observer in observers:
                observer.planned(table)
            with _observed_failures(observers, table), recorded_failures(context):
                written = commit_output(self.spark, request, obj, arrow_bytes=self.arrow_bytes)
                commit = written.commit
                write = ObservedWrite(context, table, request, written)
                reported = report_write(observers, write)
            record_audits(context, commit.audits, snapshot_id=commit.snapshot.snapshot_id)
            report_commit(context, catalog, request, commit, reported, policy=self.data_version)
            if request.shows_in_main(commit):
                context.add_output_metadata(self.moved(table, report=context.log.info, warn=context.log.warning))

    def load_input(self, context: dg.InputContext) -> Any:
        """Load the input's partitions from one snapshot of the table, as the annotated type.

        Args:
            context: Dagster's context of the input.

        Raises:
            Failure: You must fix the configuration or materialize the upstream asset first. The cause is an
                `IcebergSparkError`.
            RetryableError: The same read may succeed if it is tried again.
        """
        from dagster_iceberg_spark.assets.loading import InputLoader

        facts = input_facts(context)
        with final_errors(is_in_step=facts.step is not None), self.spark.doubted_after_failures():
            request = read_request(
                facts, namespace=self.namespace, publish=self.publish, environment=self._environment_of(facts.step)
            )
            return InputLoader(self.spark, context, request, self.input_type, self.observers()).load()

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:  # noqa: ARG002 - Dagster's signature
        """Let the observers export what they have noted."""
        for observer in self.observers():
            observer.flush()

    def write_request_of(self, facts: OutputFacts) -> tuple[CatalogDescription, WriteRequest]:
        """Return the catalog of an output's table, and the write request of the output."""
        request = write_request(
            facts,
            namespace=self.namespace,
            configuration=self._configuration(),
            creation=TableCreation(
                creates_table=self.auto_create_table,
                creates_namespace=self.auto_create_namespace,
                namespace_properties=self.namespace_properties,
                location=None if self.table_location is None else LocationTemplate(self.table_location),
            ),
            limits=RetryLimits(self.commit_attempts, self.commit_seconds),
            staged_retention_days=self.staged_retention_days,
            audit_samples=self.audit_samples,
            environment=self._environment_of(facts.step),
        )
        return self.spark.catalog_description, request

    @classmethod
    def input_config_schema(cls) -> Any:
        """Return the schema of an input's run configuration: the keys of time travel."""
        return RUN_CONFIG

    @property
    def _environment(self) -> Environment | None:
        return Environment(self.environment, self.environment_retention_days) if self.environment else None

    def _environment_of(self, step: StepFacts | None) -> Environment | None:
        """Return the environment of a run: that of its replay, or the configured one."""
        replayed = step.run_tags.get(REPLAYED_RUN) if step else None
        return self._environment if replayed is None else replay_environment(replayed)

    def _configuration(self) -> dict[str, Any]:
        """Return the fields that an asset's metadata may override."""
        return {option: getattr(self, option) for option in CONFIGURABLE}


@contextmanager
def _observed_failures(observers: Sequence[Observer], table: ObservedTable) -> Iterator[None]:
    """Tell the observers of an error that leaves the block."""
    try:
        yield
    except BaseException as error:
        for observer in observers:
            observer.failed(table, error)
        raise


@contextmanager
def final_errors(*, is_in_step: bool = True) -> Iterator[None]:
    """Raise errors that no retry can fix as a `Failure` without retries; outside a step, raise them as they are."""
    try:
        yield
    except IcebergSparkError as error:
        if error.allows_retries or not is_in_step:
            raise
        raise dg.Failure(
            description=str(error), metadata={"error": type(error).__name__}, allow_retries=False
        ) from error
