"""The job's side: its inputs, pinned to the snapshots of the run, and its outputs, each one snapshot.

Nothing here imports Dagster: the environment of the job has `dagster-pipes` alone.
"""

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from dagster_pipes import PipesContext, open_dagster_pipes

from dagster_iceberg_spark.arrow import reader
from dagster_iceberg_spark.assets.engines import commit_output
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.errors import AuditFailedError, ConfigurationError
from dagster_iceberg_spark.features.pipes.extras import JobDocument, JobOutput, JobReport, read_document
from dagster_iceberg_spark.plan.read.read_plan import ReadPlan
from dagster_iceberg_spark.plan.write.write_request import Staging, TableRequest, WriteRequest, staged_branch

if TYPE_CHECKING:
    from dagster_iceberg_spark.spark.session.session import IcebergSession
    from dagster_iceberg_spark.table.snapshot import Commit

_SPARK_FRAME: Final = "pyspark.sql.DataFrame"


@contextmanager
def open_iceberg_pipes(
    *, spark: Any = None, properties: Mapping[str, str] = MappingProxyType({}), **options: Any
) -> Iterator["IcebergJob"]:
    """Open the inputs and outputs of a job that `IcebergPipes.run` has launched.

    Args:
        spark: The `SparkSession` of the job. By default, the active one, or a new one. It may have the catalog
            already, with its credentials; else it gets the catalog without secrets.
        properties: Further properties of the catalog for pyiceberg, such as secrets, which the run does not send.
        options: Arguments of `open_dagster_pipes`, such as `message_writer`.

    Raises:
        ConfigurationError: The code location has another version of the package, or has not launched the job.
    """
    with open_dagster_pipes(**options) as pipes:
        yield IcebergJob(pipes, read_document(pipes.extras), spark, dict(properties))


@dataclass
class IcebergJob:
    """The inputs and outputs of a job.

    Attributes:
        pipes: The context of Dagster Pipes, for logs and messages.
    """

    pipes: PipesContext
    _document: JobDocument
    _spark: Any = field(repr=False)
    _properties: Mapping[str, str] = field(repr=False)

    def read(self, name: str, as_type: str = _SPARK_FRAME) -> Any:
        """Return the rows of an input, from the snapshot and the partitions that the run has chosen.

        Args:
            name: The name of the input.
            as_type: `pyspark.sql.DataFrame`, or a type that needs no Spark, such as `pandas.DataFrame`.
        """
        plan: ReadPlan = _named(self._document.inputs, name, "input")
        if as_type == _SPARK_FRAME:
            from dagster_iceberg_spark.spark.read import frames

            return frames.read(self.iceberg_session, plan)
        kind = reader.input_type_of(as_type)
        if kind is None:
            known = ", ".join([_SPARK_FRAME, *(known.path for known in reader.INPUT_TYPES)])
            raise ConfigurationError.refusing("load", f"the input {name!r}", expected=f"one of {known}", found=as_type)
        return reader.read(self.catalog_description, {"": plan}, kind, self._changelog)[""]

    def write(self, rows: Any, output: str = "result") -> "Commit":
        """Commit the rows as exactly one snapshot of the output's table, or adopt the one of an earlier attempt.

        Args:
            rows: A `pyspark.sql.DataFrame`, classic or Connect; or rows of pyarrow, pandas, polars, DuckDB or ibis,
                which are written without Spark.
            output: The name of the output. An asset has one, `result`.

        Raises:
            IcebergSparkError: The rows are not committed, as the IO manager would raise it.
        """
        request = self._request(_named(self._document.outputs, output, "output"))
        try:
            written = commit_output(self, request, rows, arrow_bytes=self._document.arrow_bytes)
        except AuditFailedError as error:
            self.pipes.report_custom_message(JobReport.of(output, error.results).message())
            raise
        report = JobReport.of(output, written.commit.audits, written.commit)
        self.pipes.report_custom_message(report.message())
        return written.commit

    @cached_property
    def catalog_description(self) -> CatalogDescription:
        """The catalog, with what the job knows of its secrets."""
        given = self._document.catalog
        return CatalogDescription(
            name=given.name,
            kind=given.kind,
            endpoint=given.endpoint,
            spark_properties=given.spark_properties,
            pyiceberg_properties={**given.pyiceberg_properties, **self._properties},
            packages=given.packages,
            warehouse=given.warehouse,
            secrets=tuple(self._properties.values()),
            has_transactions=given.has_transactions,
        )

    @cached_property
    def iceberg_session(self) -> "IcebergSession":
        """The session of the job, with the catalog."""
        from dagster_iceberg_spark.features.pipes.spark import session_of

        return session_of(self._spark, self.catalog_description, self._properties)

    @property
    def spark(self) -> Any:
        """The `SparkSession` of the job, with the catalog. It is opened when it is first used."""
        return self.iceberg_session.spark

    @property
    def is_case_sensitive(self) -> bool:
        """Whether names of columns are compared with their case, in the code location."""
        return self._document.is_case_sensitive

    def _request(self, output: JobOutput) -> WriteRequest:
        return WriteRequest(
            table=_appended_once(output),
            materialization=output.materialization,
            candidates=output.candidates,
            record_of=lambda snapshot_id: output.records.get(snapshot_id, "none"),
            limits=output.limits,
            report=self.pipes.log.info,
            announce=lambda _: None,
            earlier_attempts=lambda: (),
            audit_samples=output.audit_samples,
        )

    def _changelog(self, plan: ReadPlan) -> Any:
        from dagster_iceberg_spark.spark.read import frames
        from dagster_iceberg_spark.spark.versions import version_of

        frame = frames.read(self.iceberg_session, plan)
        return version_of(frame.sparkSession).arrow_of(frame)


def _appended_once(output: JobOutput) -> TableRequest:
    """Return the table's request. Appended rows are staged, unless they are already.

    Nothing in an append conflicts with the append of another job of the step. Rows that are published are: the catalog
    verifies that the branch has not moved since it was searched for the tokens.
    """
    table, written = output.table, output.materialization
    rivals = frozenset({written.commit_token, *(candidate.token for candidate in output.candidates)})
    if table.staging is not None:
        return replace(table, staging=replace(table.staging, rivals=rivals))
    if written.write_disposition != "append":
        return table
    branch = staged_branch(root_run_id=uuid.uuid4().hex, output=table.asset_key or "", scope=None, target=table.branch)
    kept = table.target.retention_days
    return replace(table, staging=Staging(branch, table.branch, target_retention_days=kept, rivals=rivals))


def _named(known: Mapping[str, Any], name: str, what: str) -> Any:
    if name not in known:
        raise ConfigurationError.refusing(
            "open",
            f"the {what} {name!r} of the job",
            expected=f"one of {', '.join(sorted(known)) or 'none'}",
            found=repr(name),
            hint=f"pass it to `IcebergPipes.run`, or use the name of an {what} there.",
        )
    return known[name]
