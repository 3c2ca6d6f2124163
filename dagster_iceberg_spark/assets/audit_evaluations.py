"""Records the results of audits as evaluations of the asset's checks."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import dagster as dg

from dagster_iceberg_spark.assets.dagster_private import record_evaluation
from dagster_iceberg_spark.errors import AuditFailedError
from dagster_iceberg_spark.table.audit import AuditResult
from dagster_iceberg_spark.table.lineage import SNAPSHOT_ID


@contextmanager
def recorded_failures(context: dg.OutputContext) -> Iterator[None]:
    """Record the results of all audits if the block fails because of one."""
    try:
        yield
    except AuditFailedError as error:
        record_audits(context, error.results)
        raise


def record_audits(context: dg.OutputContext, results: Iterable[AuditResult], *, snapshot_id: int | None = None) -> None:
    """Record each result as the evaluation of the check of its name, and log the failures that are warnings."""
    if not context.has_asset_key:
        return
    for result in results:
        record_evaluation(context, evaluation_of(context.asset_key, result, snapshot_id=snapshot_id))
        if not result.passed and not result.forbids_publication:
            context.log.warning(f"The rows fail the audit {result}. They are published, as its severity is `warn`.")


def evaluation_of(key: dg.AssetKey, result: AuditResult, *, snapshot_id: int | None) -> dg.AssetCheckEvaluation:
    """Return a result as the evaluation of the asset's check of its name."""
    is_error = result.audit.severity == "error"
    return dg.AssetCheckEvaluation(
        asset_key=key,
        check_name=result.audit.name,
        passed=result.passed,
        metadata=_metadata(result, snapshot_id),
        severity=dg.AssetCheckSeverity.ERROR if is_error else dg.AssetCheckSeverity.WARN,
        description=None if result.passed else str(result),
    )


def _metadata(result: AuditResult, snapshot_id: int | None) -> dict[str, Any]:
    """Return what a check shows of a result: the rule, the values, rows that fail it, and where it was found."""
    sample = [dg.TableRecord(dict(row)) for row in result.sample]
    columns = [dg.TableColumn(name) for name in (result.sample[0] if result.sample else ())]
    values = {name: value if isinstance(value, int | float) else str(value) for name, value in result.found.items()}
    optional = {
        "iceberg/failing_rows": dg.MetadataValue.table(sample, dg.TableSchema(columns)) if sample else None,
        SNAPSHOT_ID: None if snapshot_id is None else str(snapshot_id),
    }
    return {
        "iceberg/rule": str(result.audit.rule),
        **values,
        **{key: value for key, value in optional.items() if value is not None},
        "iceberg/evaluated_by": result.source,
    }
