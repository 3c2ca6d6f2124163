"""The IO manager: it stores DataFrames as Iceberg tables (`handle_output`) and loads them (`load_input`)."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import dagster as dg
from pydantic import Field

from dagster_iceberg_spark.addressing import plain_metadata, table_of
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.config.configuration import HIDES_INPUT, require_fields, without_secrets
from dagster_iceberg_spark.config.metrics import MetricsConfig, NoMetrics
from dagster_iceberg_spark.config.mirror import MirrorConfig, NoMirror
from dagster_iceberg_spark.dagster_private import add_partition_metadata, set_data_version, step_facts
from dagster_iceberg_spark.final_errors import final_errors
from dagster_iceberg_spark.inputs.read_request import RUN_CONFIG, read_request
from dagster_iceberg_spark.metrics.instruments import counted_failures
from dagster_iceberg_spark.mirror.table_mirror import TableMirror
from dagster_iceberg_spark.outputs.audits import record_audits, recorded_failures
from dagster_iceberg_spark.outputs.column_lineage import UpstreamTables
from dagster_iceberg_spark.outputs.definition import defined_table
from dagster_iceberg_spark.outputs.metadata import data_version, materialization_metadata, partition_metadata
from dagster_iceberg_spark.outputs.mirror import mirror_table
from dagster_iceberg_spark.outputs.write_request import write_request
from dagster_iceberg_spark.plan.comparison import DefinedTable, TableReport, differences
from dagster_iceberg_spark.plan.environment import RETENTION_DAYS as ENVIRONMENT_RETENTION_DAYS
from dagster_iceberg_spark.plan.environment import Environment
from dagster_iceberg_spark.plan.metadata_key import read_metadata
from dagster_iceberg_spark.plan.mirror_options import MIRROR_STATE
from dagster_iceberg_spark.plan.options import OUTPUT_KEYS, MaintenanceOptions, mirror_settings
from dagster_iceberg_spark.plan.placement import LocationTemplate
from dagster_iceberg_spark.plan.replay import NEW_COLUMNS, READ_BY_NAME, REPLAYED_RUN, replay_environment
from dagster_iceberg_spark.plan.staging import RETENTION_DAYS, PublishedBy, staged_branch
from dagster_iceberg_spark.plan.table_request import TableCreation, TableRequest, missing_namespace, missing_table
from dagster_iceberg_spark.plan.write_request import RetryLimits, WriteRequest
from dagster_iceberg_spark.resource import IcebergSparkResource, require_pyspark
from dagster_iceberg_spark.table.audit import SHOWN_ROWS, Audit, AuditResult
from dagster_iceberg_spark.table.commit import Commit
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.schema import Schema, folded
from dagster_iceberg_spark.table.snapshot import MAIN_BRANCH, Snapshot, TableState


class IcebergPySparkIOManager(dg.ConfigurableIOManager):
    """Stores the DataFrames that assets return as Iceberg tables, and loads them for downstream assets.

    Example:
        >>> import dagster as dg
        >>> from dagster_iceberg_spark import IcebergPySparkIOManager
        >>> defs = dg.Definitions(assets=[], resources={"iceberg": IcebergPySparkIOManager()})
    """

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
    rows_outside_partition: Literal["error", "drop"] = Field(
        default="error",
        description="What happens to rows that belong to none of the run's partitions: `error` rejects the write, "
        "`drop` leaves the rows out.",
    )
    table_properties: dict[str, str] = Field(
        default={},
        description="Iceberg table properties of every table. An asset's `iceberg/table_properties` replaces them.",
    )
    write_options: dict[str, str] = Field(
        default={},
        description="Iceberg's Spark write options for every write. An asset's `iceberg/write_options` replaces them.",
    )
    auto_create_table: bool = Field(
        default=True, description="Whether the first write of an asset creates its table. If not, the table must exist."
    )
    auto_create_namespace: bool = Field(
        default=True, description="Whether the namespace is created with the table. If not, it must exist."
    )
    namespace_properties: dict[str, str] = Field(
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
        default=RETENTION_DAYS,
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
    column_lineage: bool = Field(
        default=True,
        description="Whether a materialization reports which columns of which upstream assets each column is made of "
        "(`dagster/column_lineage`), from the plan of the DataFrame.",
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

    metrics: MetricsConfig = Field(
        default=NoMetrics(),
        description="Where metrics of writes and reads go: `OpenTelemetryMetrics` or `PrometheusMetrics`. Needs the "
        "extra `metrics`. Default: nowhere.",
    )

    mirror: MirrorConfig = Field(
        default=NoMirror(),
        description="Where the tables are mirrored: a `DuckLakeMirror`. Needs the extra `ducklake`. Default: nowhere.",
    )

    def __init__(self, **data: Any) -> None:
        """Take the fields as keywords. Without `spark`, tables go to an embedded catalog and local files.

        An `environment` that is an EnvVar which is not set stands for production.
        """
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

    def inspect_table(self, spec: dg.AssetSpec) -> TableReport:
        """Compare the table of an asset with its definition, without writing.

        This starts a session only for a `SparkCatalogByName`, which only the session describes.

        Args:
            spec: The spec of the asset, from `AssetsDefinition.specs`.

        Raises:
            ConfigurationError: The definition is wrong, or the next write of the asset would be rejected.
            CatalogUnavailableError: The catalog does not respond.
        """
        from dagster_iceberg_spark.catalog.look import has_namespace

        defined = self.definition_of(spec)
        catalog, identifier = self.spark.catalog_description, defined.request.identifier
        state = self._look(defined.request)
        if state is None and not self.auto_create_table:
            raise missing_table(identifier)
        if state is None and not self.auto_create_namespace and not has_namespace(catalog, identifier.namespace):
            raise missing_namespace(identifier)
        found = None if state is None else differences(defined, state)
        return TableReport(identifier, exists=state is not None, differences=found or ())

    def table_of(self, spec: dg.AssetSpec) -> TableIdentifier:
        """Return the table of an asset.

        Args:
            spec: The spec of the asset, from `AssetsDefinition.specs`.

        Raises:
            MetadataKeyError: A metadata key or its value is invalid.
        """
        subject = "/".join(spec.key.path)
        return table_of(spec.key, plain_metadata(spec.metadata), self.namespace, subject=subject)

    def definition_of(self, spec: dg.AssetSpec) -> DefinedTable:
        """Return the table that the definition of an asset asks for.

        Args:
            spec: The spec of the asset, from `AssetsDefinition.specs`.

        Raises:
            MetadataKeyError: A metadata key or its value is invalid.
        """
        return defined_table(
            spec, namespace=self.namespace, configuration=self._configuration(), environment=self._environment
        )

    def maintenance_of(self, spec: dg.AssetSpec) -> MaintenanceOptions:
        """Return how the table of an asset is maintained.

        Args:
            spec: The spec of the asset, from `AssetsDefinition.specs`.

        Raises:
            MetadataKeyError: A metadata key or its value is invalid.
        """
        return read_metadata(MaintenanceOptions, plain_metadata(spec.metadata), subject="/".join(spec.key.path))

    def mirror_of(self, spec: dg.AssetSpec) -> TableMirror | None:
        """Return the mirror of an asset's table, or None without one.

        Args:
            spec: The spec of the asset, from `AssetsDefinition.specs`.

        Raises:
            MetadataKeyError: A metadata key or its value is invalid.
        """
        return self._mirror_of(self.table_of(spec), plain_metadata(spec.metadata), "/".join(spec.key.path))

    def mirror_table(
        self, spec: dg.AssetSpec, *, report: Callable[[str], None], warn: Callable[[str], None]
    ) -> dict[str, Any] | None:
        """Make the mirror of an asset's table show the newest snapshot. Return what it shows, or None without a mirror.

        Args:
            spec: The spec of the asset, from `AssetsDefinition.specs`.
            report: Called with a sentence about what was done.
            warn: Called with a sentence about a failure.

        Raises:
            MetadataKeyError: A metadata key or its value is invalid.
            MirrorFailedError: The mirror failed, and its `on_failure` is `error`.
        """
        mirror = self.mirror_of(spec)
        if mirror is None:
            return None
        return mirror_table(mirror, self.spark.catalog_description, self.table_of(spec), report=report, warn=warn)

    def table_state(self, spec: dg.AssetSpec, *, root_run_id: str | None = None) -> tuple[TableState | None, str]:
        """Return the current state of the table of an asset, or None if it does not exist, and the asset's branch.

        Args:
            spec: The spec of the asset, from `AssetsDefinition.specs`.
            root_run_id: The first of the runs that execute the same run again. If they have staged rows for a release,
                the branch is the staged one.

        Raises:
            MetadataKeyError: A metadata key or its value is invalid.
            CatalogUnavailableError: The catalog does not respond.
        """
        request = self.definition_of(spec).request
        state, branch = self._look(request), request.options.branch
        if state is not None and root_run_id is not None:
            staged = staged_branch(root_run_id=root_run_id, output="/".join(spec.key.path), scope=None, target=branch)
            branch = staged if staged in state.refs else branch
        return state, branch

    def audit_table(
        self, spec: dg.AssetSpec, audits: Sequence[Audit], state: TableState, snapshot: Snapshot
    ) -> Mapping[str, AuditResult]:
        """Evaluate audits on the rows of a snapshot of the table of an asset. Nothing is written.

        This starts a session only for audits that the metadata of the table does not determine.

        Args:
            spec: The spec of the asset, from `AssetsDefinition.specs`.
            audits: The audits to evaluate.
            state: The state of the table.
            snapshot: One of its snapshots.

        Returns:
            The results by the names of the audits.

        Raises:
            MetadataKeyError: An audit cannot be evaluated on the columns of the table.
            CatalogUnavailableError: The catalog does not respond.
        """
        from dagster_iceberg_spark.catalog.audits import audited_rows, evaluated

        rows = audited_rows(
            state, snapshot, Schema(()), self.definition_of(spec).request.options, samples=self.audit_samples
        )

        def scanned(others: Sequence[Audit]) -> dict[str, AuditResult]:
            require_pyspark()
            from dagster_iceberg_spark.spark.audits import scan_published

            return scan_published(self.spark.iceberg_session, others, rows)

        return evaluated(self.spark.catalog_description, audits, rows, scanned)

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
        require_pyspark()
        from dagster_iceberg_spark.spark.commit import materialize
        from dagster_iceberg_spark.spark.frames import frame_to_write

        with final_errors(is_in_step=step_facts(context) is not None):
            catalog, request = self.write_request_of(context)
            mirror = self._mirror_of(request.identifier, plain_metadata(context.definition_metadata), request.subject)
            instruments, table = self.metrics.instruments(), f"{catalog.name}.{request.identifier}"
            with (
                counted_failures(instruments, table),
                recorded_failures(context),
                frame_to_write(obj, lambda: self.spark.iceberg_session, subject=request.subject) as given,
            ):
                frame = self._replayed(context, request, given) if request.is_replay else given
                commit = materialize(self.spark.iceberg_session, request, frame)
                lineage = self._column_lineage(context, request, commit, frame, is_returned=given is obj)
            if instruments is not None:
                instruments.record_commit(table, commit)
            record_audits(context, commit.audits, snapshot_id=commit.snapshot.snapshot_id)
            self._report(context, request, commit, lineage)
            if mirror is not None and request.shows_in_main(commit):
                log = context.log
                state = mirror_table(mirror, catalog, request.identifier, report=log.info, warn=log.warning)
                context.add_output_metadata({MIRROR_STATE: state})

    def load_input(self, context: dg.InputContext) -> Any:
        """Load the input's partitions from one snapshot of the table, as the annotated type.

        Args:
            context: Dagster's context of the input.

        Raises:
            Failure: You must fix the configuration or materialize the upstream asset first. The cause is an
                `IcebergSparkError`.
            RetryableError: The same read may succeed if it is tried again.
        """
        from dagster_iceberg_spark.inputs.loading import InputLoader

        with final_errors(is_in_step=step_facts(context) is not None):
            request = read_request(
                context, namespace=self.namespace, publish=self.publish, environment=self._environment_of(context)
            )
            return InputLoader(self.spark, context, request, self.input_type, self.metrics.instruments()).load()

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:  # noqa: ARG002 - Dagster's signature
        """Export the metrics of the process, if there are any."""
        instruments = self.metrics.instruments()
        if instruments is not None:
            instruments.flush()

    def write_request_of(self, context: dg.OutputContext) -> tuple[CatalogDescription, WriteRequest]:
        """Return the catalog of an output's table, and the write request of the output.

        Args:
            context: Dagster's context of the output.

        Raises:
            MetadataKeyError: A metadata key or its value is invalid.
            PartitioningError: `partition_expr` is missing or does not fit the partitions definition.
        """
        request = write_request(
            context,
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
            environment=self._environment_of(context),
        )
        return self.spark.catalog_description, request

    @classmethod
    def input_config_schema(cls) -> Any:
        """Return the schema of an input's run configuration: the keys of time travel."""
        return RUN_CONFIG

    def _column_lineage(
        self, context: dg.OutputContext, request: WriteRequest, commit: Commit, frame: Any, *, is_returned: bool
    ) -> dict[str, Any]:
        """Return the lineage of the columns as metadata."""
        if not self.column_lineage or not context.has_asset_key:
            return {}
        upstream = UpstreamTables(context, self.spark.catalog_description, request.materialization.upstream)
        return upstream.metadata(frame, commit.schema, is_returned=is_returned)

    def _report(
        self, context: dg.OutputContext, request: WriteRequest, commit: Commit, lineage: Mapping[str, Any]
    ) -> None:
        catalog, materialization = self.spark.catalog_description, request.materialization
        metadata = materialization_metadata(
            commit,
            materialization.scope,
            materialization.upstream,
            catalog=catalog.name,
            column_docs=request.table.column_docs,
        )
        metadata |= lineage
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
        branch = request.table.options.branch
        place = "" if branch == MAIN_BRANCH else f", branch {branch}"
        done = "Staged" if commit.staged_branch else done
        context.log.info(
            f"{done} snapshot {commit.snapshot.snapshot_id} of {commit.identifier}{place}: "
            f"{commit.snapshot.count('added-records')} rows added, {commit.snapshot.count('deleted-records')} deleted, "
            f"{commit.write_seconds:.1f} s to write, {commit.commit_seconds:.1f} s to commit."
        )
        if commit.staged_branch is not None:
            context.log.info(
                f"The rows of {commit.identifier} are in the branch {commit.staged_branch} until a release publishes "
                f"them. Only this run reads them."
            )
        if commit.publication is not None:
            context.log.info(
                f"Published {commit.identifier} in {commit.publication_seconds:.2f} s by a {commit.publication}: "
                f"{sum(result.passed for result in commit.audits)} of {len(commit.audits)} audits passed."
            )

    def _look(self, request: TableRequest) -> TableState | None:
        from dagster_iceberg_spark.catalog.look import look

        return look(self.spark.catalog_description, request.identifier)

    def _mirror_of(self, identifier: TableIdentifier, metadata: Mapping[str, Any], subject: str) -> TableMirror | None:
        return self.mirror.mirror_of(identifier, mirror_settings(metadata, subject=subject), subject=subject)

    @property
    def _environment(self) -> Environment | None:
        return Environment(self.environment, self.environment_retention_days) if self.environment else None

    def _environment_of(self, context: dg.InputContext | dg.OutputContext) -> Environment | None:
        """Return the environment of a run: that of its replay, or the configured one."""
        facts = step_facts(context)
        replayed = facts.run_tags.get(REPLAYED_RUN) if facts else None
        return self._environment if replayed is None else replay_environment(replayed)

    def _replayed(self, context: dg.OutputContext, request: WriteRequest, frame: Any) -> Any:
        """Return a DataFrame without the columns that the table lacks: a replay does not add them."""
        upstream = UpstreamTables(context, self.spark.catalog_description, request.materialization.upstream)
        state = self._look(request.table)
        renamed = request.table.options.renames.values()
        known = {folded(name) for name in (*state.schema.names, *renamed)} if state else set()
        new = [name for name in frame.columns if folded(name) not in known]
        context.add_output_metadata({NEW_COLUMNS: new, READ_BY_NAME: upstream.read_by_name(frame)})
        return frame.drop(*new)

    def _configuration(self) -> dict[str, Any]:
        """Return the fields that an asset's metadata may override."""
        return {key.option: getattr(self, key.option) for key in OUTPUT_KEYS.values() if key.is_configurable}
