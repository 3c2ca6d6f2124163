"""Chooses the engine that commits an output: Spark for its DataFrames, Arrow for other rows where it can."""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.errors import EngineUnfitError
from dagster_iceberg_spark.plan.write.write_request import WriteRequest, WrittenElsewhere
from dagster_iceberg_spark.table.schema import fold
from dagster_iceberg_spark.table.snapshot import Commit
from dagster_iceberg_spark.versions import installed_pyspark

if TYPE_CHECKING:
    import pyarrow as pa

    from dagster_iceberg_spark.arrow.write.rows import HeldRows
    from dagster_iceberg_spark.catalog.audits import AuditedRows
    from dagster_iceberg_spark.spark.session.session import IcebergSession
    from dagster_iceberg_spark.table.audit import Audit, AuditResult

_SPARK: str = "pyspark."


@dataclass(frozen=True, slots=True)
class Written:
    """An output that is committed.

    Args:
        frame: The Spark DataFrame that was written, or None if Arrow wrote the rows.
        is_returned: Whether the asset has returned this DataFrame, and not rows of another library.
        columns: The names of the columns that were written.
        left_out: The columns that were not written, because the target takes no new ones.
    """

    commit: Commit
    frame: Any
    is_returned: bool
    columns: tuple[str, ...]
    left_out: tuple[str, ...]


class Engines(Protocol):
    """What writes rows: Arrow with a catalog, or Spark with a session. `IcebergSparkResource` is one."""

    @property
    def catalog_description(self) -> CatalogDescription:
        """The catalog."""

    @property
    def iceberg_session(self) -> "IcebergSession":
        """The session, which is opened when it is needed."""

    @property
    def is_case_sensitive(self) -> bool:
        """Whether names of columns are compared with their case. This opens no session."""


def commit_output(engines: Engines, request: WriteRequest, obj: Any, *, arrow_bytes: int) -> Written:
    """Commit what an asset has returned as exactly one snapshot, or adopt an existing one.

    Rows of other libraries are written by Arrow, unless they need Spark, or have more than `arrow_bytes` bytes.

    Raises:
        EngineUnfitError: The asset asks for Arrow, which cannot write it.
    """
    if isinstance(obj, WrittenElsewhere):
        return _by_another_process(engines.catalog_description, request, obj)
    engine = request.table.options.engine
    is_of_spark = any(kind.__module__.startswith(_SPARK) for kind in type(obj).__mro__)
    if is_of_spark and engine == "arrow":
        raise EngineUnfitError.because(request.subject, "the asset has returned a DataFrame of Spark")
    if is_of_spark or engine == "spark":
        return _by_spark(engines, request, obj)
    from dagster_iceberg_spark.arrow.outputs import arrow_rows, unknown_output
    from dagster_iceberg_spark.arrow.write.rows import HeldRows

    reader = arrow_rows(obj, subject=request.subject)
    if reader is None:
        raise unknown_output(obj, subject=request.subject)
    rows = HeldRows.of(reader, limit=arrow_bytes)
    try:
        if engine == "auto" and rows.exceeds:
            raise EngineUnfitError.because(request.subject, f"its rows have more than {arrow_bytes >> 20} MB")
        return _by_arrow(engines, request, rows, carried_bytes=arrow_bytes if engine == "auto" else None)
    except EngineUnfitError as error:
        if engine == "arrow":
            raise
        if installed_pyspark() is None:
            raise EngineUnfitError.refusing(
                "write",
                request.subject,
                expected="Spark to be installed",
                found=f"that it is not, and {error.reason}",
                hint="run `pip install 'dagster-iceberg-spark[classic]'`.",
            ) from None
        request.report(f"Spark writes {request.subject}: {error.reason}.")
        return _by_spark(engines, request, _as_given(rows, obj))
    finally:
        rows.close()


def _by_arrow(engines: Engines, request: WriteRequest, rows: "HeldRows", *, carried_bytes: int | None) -> Written:
    from dagster_iceberg_spark.arrow.write.engine import commit_rows

    catalog = engines.catalog_description
    left_out = _new_columns(catalog, request, rows.given.names)
    rows.left_out = left_out
    is_case_sensitive = engines.is_case_sensitive
    commit = commit_rows(catalog, request, rows, is_case_sensitive=is_case_sensitive, carried_bytes=carried_bytes)
    return Written(commit, None, is_returned=False, columns=tuple(rows.schema.names), left_out=left_out)


def _by_another_process(catalog: CatalogDescription, request: WriteRequest, written: WrittenElsewhere) -> Written:
    from dagster_iceberg_spark.arrow.write.audits import ArrowAudits
    from dagster_iceberg_spark.commit.elsewhere import adopt

    def scan(audits: "Sequence[Audit]", rows: "AuditedRows") -> "dict[str, AuditResult]":
        return ArrowAudits(catalog, tuple(audits), rows.columns).scan(audits, rows)

    commit = adopt(catalog, request, written, scan)
    return Written(commit, None, is_returned=False, columns=commit.schema.names, left_out=())


def _by_spark(engines: Engines, request: WriteRequest, obj: Any) -> Written:
    session = engines.iceberg_session  # says what to install if there is no pyspark
    from dagster_iceberg_spark.spark.read.frames import frame_to_write
    from dagster_iceberg_spark.spark.write.engine import commit_frame

    with frame_to_write(obj, lambda: session, subject=request.subject) as given:
        left_out = _new_columns(session.catalog, request, given.columns)
        frame = given.drop(*left_out) if left_out else given
        commit = commit_frame(session, request, frame)
        return Written(commit, frame, given is obj, tuple(frame.columns), left_out)


def _new_columns(catalog: CatalogDescription, request: WriteRequest, columns: list[str]) -> tuple[str, ...]:
    """Return the columns that the target does not take. A replay adds no columns to a table."""
    if request.table.target.may_add_columns:
        return ()
    from dagster_iceberg_spark.catalog.look import look

    state = look(catalog, request.identifier)
    renamed = request.table.options.renames.values()
    known = {fold(name) for name in (*state.schema.names, *renamed)} if state else set()
    return tuple(name for name in columns if fold(name) not in known)


def _as_given(rows: "HeldRows", obj: Any) -> Any:
    """Return the rows for Spark: what the asset has returned, or the rest of a stream after what was read of it."""
    if not isinstance(obj, Iterator) and type(obj).__name__ != "RecordBatchReader":
        return obj

    def batches() -> Generator["pa.RecordBatch", None, None]:
        yield from rows.all_once()

    return batches()
