"""Write docs/reference.md and docs/errors.json from the code: `python scripts/generate_reference.py`.

With `--check`, it only compares.
"""

import argparse
import datetime as dt
import inspect
import json
import re
import sys
import types as python_types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pyspark.sql import types

from dagster_iceberg_spark import errors
from dagster_iceberg_spark.config.catalog import AutomaticStore, GcsStore, HadoopStore
from dagster_iceberg_spark.config.catalogs import (
    GlueCatalog,
    HadoopCatalog,
    HiveCatalog,
    InMemoryCatalog,
    SparkCatalogByName,
)
from dagster_iceberg_spark.config.rest_catalog import (
    BasicAuthentication,
    BearerToken,
    NoAuthentication,
    OAuth2,
    RestCatalog,
    SigV4,
)
from dagster_iceberg_spark.config.sql_catalog import EmbeddedCatalog, SqlCatalog
from dagster_iceberg_spark.config.stores import AdlsStore, AwsCredentials, S3Store
from dagster_iceberg_spark.errors import CommitOutcomeUnknownError, RetryableError
from dagster_iceberg_spark.failure_kinds import FailureKind
from dagster_iceberg_spark.features.maintenance.options import MaintenancePolicy
from dagster_iceberg_spark.features.metrics.config import OpenTelemetryMetrics, PrometheusMetrics
from dagster_iceberg_spark.features.mirror.config import DuckLakeMirror
from dagster_iceberg_spark.features.remote_sessions.emr import EmrServerlessSession, EmrSession
from dagster_iceberg_spark.features.remote_sessions.spark_operator import SparkConnectService
from dagster_iceberg_spark.io_manager import IcebergPySparkIOManager
from dagster_iceberg_spark.plan.options import output_options as options
from dagster_iceberg_spark.plan.options.metadata_key import PREFIX, MetadataKey, duration_text
from dagster_iceberg_spark.plan.options.output_options import WriteOptions, addressing_keys, output_keys, result_keys
from dagster_iceberg_spark.plan.read import read_options
from dagster_iceberg_spark.plan.read.history import NEWEST
from dagster_iceberg_spark.plan.schema.schema_evolution import storage_verdict
from dagster_iceberg_spark.plan.write.definition import whole_bounds
from dagster_iceberg_spark.plan.write.draft import CREATION_PROPERTIES
from dagster_iceberg_spark.resource import IcebergSparkResource
from dagster_iceberg_spark.spark.columns import iceberg_type
from dagster_iceberg_spark.spark.failures import RECOGNISERS
from dagster_iceberg_spark.table import lineage
from dagster_iceberg_spark.table.lineage import Materialization
from dagster_iceberg_spark.table.scope import Dimension, PartitionScope, PartitionSlice

DOCS: Final = Path(__file__).parents[1] / "docs"
PAGE: Final = DOCS / "reference.md"
ERRORS: Final = DOCS / "errors.json"

RESULTS: Final = {
    "dagster/column_schema": "columns of the table after the commit: name, Iceberg type, description, nullability",
    "dagster/table_name": "catalog, namespace and table",
    "dagster/uri": "location of the table",
    "dagster/storage_kind": "`iceberg`",
    "dagster/row_count": "rows of the whole table after the commit; for assets without partitions, unless the table "
    "has delete files (`merge-on-read`)",
    "dagster/column_lineage": "the columns of upstream assets that each column is [derived from](lineage.md), as far "
    "as they are known",
    "dagster/partition_row_count": "rows of the partition, if the run replaces one partition; in a run of 2 to 50, the "
    "rows that the run wrote to each partition",
    "iceberg/snapshot_id": "the snapshot that carries the commit token",
    "iceberg/parent_snapshot_id": "the parent snapshot; absent for the first snapshot",
    "iceberg/contract_version": "the name and version of the contract that the write has kept",
    "iceberg/operation": "Iceberg's operation: `append`, `overwrite` or `delete`",
    "iceberg/added_rows": "rows in the added files, including rows carried over",
    "iceberg/deleted_rows": "rows in the removed files, including rows carried over",
    "iceberg/carried_over_rows": "rows of other partitions that were written again because their files also held "
    "owned rows; only if there were any",
    "iceberg/merge_inserted_rows": "rows that a merge inserted",
    "iceberg/merge_updated_rows": "stored rows that a merge updated",
    "iceberg/merge_deleted_rows": "stored rows that a merge deleted, including replaced rows",
    "iceberg/merge_unchanged_rows": "rows of a merge's batch that the table already had, or that a rule kept out",
    "iceberg/dropped_rows": "rows that `iceberg/rows_outside_partition` = `drop` left out; only if there were any",
    "iceberg/added_files": "data files added",
    "iceberg/deleted_files": "data files removed",
    "iceberg/added_bytes": "size of the added files, in bytes",
    "iceberg/deleted_bytes": "size of the removed files, in bytes",
    "iceberg/write_seconds": "seconds from loading the table to the snapshot's timestamp, in the successful attempt; 0 "
    "if adopted",
    "iceberg/commit_seconds": "seconds from the snapshot's timestamp to the engine's return; 0 if adopted",
    "iceberg/retries": "how often the write was planned again after a conflict or an outage",
    "iceberg/retry_seconds": "seconds that earlier attempts took, including the waits between them",
    "iceberg/table_changes": "changes to columns, partition fields and properties, in words; only if there were any",
    "iceberg/publication": "how the staged rows were published: `fast-forward` or `rebase`",
    "iceberg/publication_seconds": "seconds from the end of the staged write to the end of the publication",
    "iceberg/published": "`false` for rows that wait for a release; absent otherwise",
    "iceberg/staged_branch": "the branch of rows that wait for a release",
    "iceberg/commit_token": "the commit token of rows that wait for a release",
    "iceberg/mirror_state": "what the [mirror](mirror.md) shows: `state` (`current` or `behind`), `table`, `mode`, "
    "`snapshot_id`, `ducklake_snapshot_id` (if the mirror has changed), `seconds`, `error`",
    "iceberg/average_file_bytes": "average size in bytes of the files that the write added, if "
    "`iceberg/min_file_size` is set",
    "iceberg/copied_columns": "columns that have the value of an input's column, unchanged, by asset: the column of "
    "the input by that of the asset",
    "iceberg/row_columns": "columns that decide [which rows there are](lineage.md), by asset; if all of them are known",
    "iceberg/inputs": "what the step has read: asset, table, snapshot, when it was committed, partitions, and the run "
    "that wrote it",
    "iceberg/history": f"the newest {NEWEST} snapshots of the table",
    "iceberg/adopted": "`true` if the snapshot of an earlier attempt was adopted; absent otherwise",
}
SUMMARY: Final = {
    lineage.ASSET_KEY: "the asset key with slashes between its parts; for an op's output: step, output and mapping key",
    lineage.RUN_ID: "the run id, or `no-run` for a context that was built by hand",
    lineage.JOB: "the name of the run's job",
    lineage.STEP_KEY: "the key of the run's step",
    lineage.PARTITION_KEYS: "one key, a JSON list of up to 20 keys, or `first..last (count)`; absent without "
    "partitions",
    lineage.PARTITION_DIGEST: "hash of the exact set of partition keys",
    lineage.CODE_VERSION: "the asset's code version, if it has one",
    lineage.COMMIT_TOKEN: "the [commit token](exactly-once.md)",
    lineage.UPSTREAM: "JSON list of the inputs that the package loaded for the step: `asset`, `table`, `snapshot_id`, "
    "`scope`, `left_out` (the option that left out rows), `staged_snapshot_id` (the snapshot that was read, if a "
    "release has published its rows as another one); above 2 kB, their digest and count",
    lineage.WRITE_DISPOSITION: "`replace`, `append`, `merge` or `overwrite_partitions`; `undo` if the snapshot undoes "
    "others, `retention` if it deletes rows that `iceberg/retain` does not keep",
    lineage.RESUMES: "the commit tokens of the runs that the run resumes, as a JSON list; absent if it resumes none",
    lineage.UNDOES: "the ids of the snapshots that the snapshot undoes, as a JSON list",
    lineage.PACKAGE_VERSION: "version of this package",
    lineage.BOUNDARY: "the instant at which the versions begin that a merge added to a history (SCD 2)",
    lineage.HISTORY: "a digest of the rows whose versions the merge compared",
    lineage.CARRIES_OVER: "`true` if rows of other partitions were written again, because their files also held owned "
    "rows; absent otherwise",
}
PROPERTIES: Final = {
    lineage.OWNER_PROPERTY: "the asset that owns the table",
    lineage.SHARED_PROPERTY: f"`{lineage.NAMED_EXPLICITLY}` if that key names the table; other assets that use the key "
    "to name the same table may then write to it too",
    lineage.SHARERS_PROPERTY: "the other assets that have written to the table, as a JSON list",
    lineage.MAINTAINED_PROPERTY: "when the package [maintained](maintenance.md) the table last",
    **{
        name: f"`{value}`, for a table that the package creates, unless `iceberg/table_properties` sets another value"
        for name, value in {**CREATION_PROPERTIES, **whole_bounds(["<partition column>"])}.items()
    },
}
TYPES: Final = (
    *(data_type() for data_type in (
        types.BooleanType, types.ByteType, types.ShortType, types.IntegerType, types.LongType, types.FloatType,
        types.DoubleType,
    )),
    types.DecimalType(10, 2), types.DecimalType(20, 2), types.DecimalType(38, 0),
    *(data_type() for data_type in (
        types.DateType, types.TimestampType, types.TimestampNTZType, types.StringType, types.BinaryType,
        types.NullType,
    )),
)  # fmt: skip
"""The types of a DataFrame's column. Tables lack the smaller integers and, in format 2, a type for NULL only."""
NO_COLUMN: Final = ("tinyint", "smallint", "void")
VERDICTS: Final = {"as is": "as is", "stored": "stored", "widened": "**widens**", "refused": ""}
RESOURCES: Final = {
    ("IcebergPySparkIOManager", "spark"): (
        "IcebergSparkResource",
        "`IcebergSparkResource()`",
        "The session and the catalog.",
    ),
    ("IcebergSparkResource", "pyspark"): (
        "PySparkResource or LazyPySparkResource",
        "none",
        "A resource whose session is used instead of a new one.",
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page, or check that it is up to date; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit with 1 if a page differs from the code")
    is_check = parser.parse_args(arguments).check
    code = 0
    for path, text in ((PAGE, page()), (ERRORS, errors_document())):
        if not is_check:
            path.write_text(text, encoding="utf-8")
        elif path.read_text(encoding="utf-8") != text:
            print(f"{path.name} differs from the code. Run: python scripts/{Path(__file__).name}")
            code = 1
    return code


def errors_document() -> str:
    """Return the errors for programs: the meaning of each class, and what each failure of an engine becomes."""
    classes = [
        {
            "error": kind.__name__,
            "group": _group_of(kind).__name__,
            "meaning": _first_line(kind),
            "may_be_retried": kind.allows_retries,
        }
        for kind in _all_errors(errors.IcebergSparkError)
    ]
    failures = [
        {
            "failure": recogniser.kind.label,
            "signs": list(recogniser.signs),
            "needs_every_sign": recogniser.needs_every_sign,
            "error": recogniser.kind.error_during("write").__name__,
            "expected": recogniser.kind.expected,
            "hint": recogniser.kind.hint,
        }
        for recogniser in RECOGNISERS
    ]
    return json.dumps({"errors": classes, "failures_while_writing": failures}, indent=2) + "\n"


def _all_errors(kind: type[errors.IcebergSparkError]) -> Iterator[type[errors.IcebergSparkError]]:
    for item in kind.__subclasses__():
        if item.__module__ == errors.__name__:
            yield item
            yield from _all_errors(item)


def _group_of(kind: type[errors.IcebergSparkError]) -> type:
    """Return the class below IcebergSparkError from which an error is derived, or which it is."""
    bases = [item for item in kind.__mro__ if issubclass(item, errors.IcebergSparkError)]
    return bases[-2]


def page() -> str:
    """Return the text of the page."""
    return "\n".join(line.rstrip() for line in _lines()) + "\n"


def _configurations(*models: type[BaseModel]) -> Iterator[str]:
    for model in models:
        yield from ("", f"### {model.__name__}", "", _first_line(model))
        if set(model.model_fields) != {"kind"}:
            yield from _fields(model)


def _lines() -> Iterator[str]:
    yield "# Reference"
    yield ""
    yield "All keys, fields, types and errors."
    yield ""
    yield "Generated from the code by `scripts/generate_reference.py`; do not edit."
    yield from _keys_of_outputs()
    yield from _keys_of_inputs()
    yield from _types()
    yield from _section("What a materialization reports", "A key that the asset sets itself keeps its value.")
    yield from _table(("key", "meaning"), _covering(RESULTS, result_keys(), prefix=PREFIX))
    yield from _maintenance()
    yield from _section("IcebergPySparkIOManager", _first_line(IcebergPySparkIOManager))
    yield from _fields(IcebergPySparkIOManager)
    yield from _section("IcebergSparkResource", _first_line(IcebergSparkResource))
    yield from _fields(IcebergSparkResource)
    yield from _section(
        "Sessions from elsewhere", "Values of `remote` of `IcebergSparkResource`. See [clusters](clusters.md)."
    )
    for provider in (EmrServerlessSession, EmrSession, SparkConnectService):
        yield from _provider(provider)
    yield from _section("Catalogs", "Values of `catalog` of `IcebergSparkResource`.")
    yield from _configurations(
        EmbeddedCatalog,
        SqlCatalog,
        RestCatalog,
        GlueCatalog,
        HiveCatalog,
        HadoopCatalog,
        InMemoryCatalog,
        SparkCatalogByName,
    )
    yield from _section("Stores", "Values of `store` of a catalog.")
    yield from _configurations(AutomaticStore, S3Store, AdlsStore, GcsStore, HadoopStore)
    yield from _section("Logins", "Values of `authentication` of `RestCatalog`.")
    yield from _configurations(NoAuthentication, BearerToken, OAuth2, BasicAuthentication, SigV4)
    yield from ("", "### AwsCredentials", "", "Value of `credentials` of `S3Store` and `SigV4`.", "")
    yield from (_first_line(AwsCredentials),)
    yield from _fields(AwsCredentials)
    yield from _section("Metrics", "Values of `metrics` of `IcebergPySparkIOManager`. See [metrics](metrics.md).")
    yield from _configurations(OpenTelemetryMetrics, PrometheusMetrics)
    yield from _section("Mirror", "Value of `mirror` of `IcebergPySparkIOManager`. See [mirror](mirror.md).")
    yield from _configurations(DuckLakeMirror)
    yield from _section("Errors", "See [errors](errors.md) for what to do about them.")
    yield from ("", "```text", *_tree(), "```")
    yield from _errors()
    yield from _section(
        "What an error of the engine becomes",
        "Errors of Spark (classic or Connect), Iceberg, and the clients of catalogs and stores while a table is "
        "written. The first row that applies counts. A sign is a part of the name of a class or of a message, or the "
        "beginning of one of Spark's error conditions. *Planned again* is limited by `commit_attempts` and "
        "`commit_seconds`.",
    )
    yield from _table(("error of the engine", "signs", "becomes", "then"), _failure_rows())
    yield from _section("Summary of a snapshot", "The package writes these keys to every snapshot that it commits.")
    yield from _table(("key", "meaning"), _covering(SUMMARY, _written_to_summaries()))
    yield from _section("Table properties", "The package sets these properties of a table.")
    yield from _table(("property", "meaning"), PROPERTIES.items())


def _failure_rows() -> Iterator[tuple[str, str, str, str]]:
    for recogniser in RECOGNISERS:
        joint = " together with " if recogniser.needs_every_sign else ", "
        yield _failure_row(recogniser.kind, joint.join(f"`{sign}`".replace("\n", " ") for sign in recogniser.signs))
    yield _failure_row(FailureKind.ENGINE_FAILED, "anything else")


def _failure_row(kind: FailureKind, signs: str) -> tuple[str, str, str, str]:
    error = kind.error_during("write")
    if issubclass(error, CommitOutcomeUnknownError):
        then = "the token is looked for"
    elif issubclass(error, RetryableError):
        then = "planned again"
    else:
        then = "raised; a `RetryPolicy` may try again" if error.allows_retries else "raised"
    return kind.label, signs, f"`{error.__name__}`", then


def _keys_of_outputs() -> Iterator[str]:
    yield from _section(
        "Metadata keys of an output",
        "Set these keys on an asset, `AssetOut` or `Out`. The order of precedence is: metadata that a run attaches to "
        "its output, metadata of the definition, the IO manager's configuration, the default. Only the definition can "
        f"set the keys that locate the rows: {', '.join(f'`{key}`' for key in addressing_keys())}.",
    )
    dagster_keys = {name: key.values for name, key in output_keys().items() if not name.startswith(PREFIX)}
    dagster_keys["dagster/column_schema"] = "a `dagster.TableSchema`; its column descriptions become those of the table"
    yield from _table(("Dagster's key", "value"), dagster_keys.items())
    own_keys = (key for name, key in output_keys().items() if name.startswith(PREFIX))
    yield from _table(("key", "value", "default"), ((key.name, key.values, _default_of(key)) for key in own_keys))
    names = ", ".join(f"`{name}`" for name in sorted(options.WRITE_OPTION_NAMES))
    yield from ("", f"`iceberg/write_options` accepts `snapshot-property.<name>` and these names: {names}.", "")
    yield (
        "`metadata_for_table(...)` takes the same keys as arguments, without their prefix. It validates them when the "
        "asset is defined and returns the dict."
    )


def _keys_of_inputs() -> Iterator[str]:
    yield from _section("Metadata keys of an input", "Set these keys on `AssetIn` or `In`.")
    yield from _table(("key", "value"), ((name, key.values) for name, key in read_options.INPUT_KEYS.items()))
    yield ""
    yield (
        f"`{read_options.AS_OF}` and `{read_options.REF}` can be combined; `{read_options.SNAPSHOT_ID}`, "
        f"`{read_options.AS_OF_RUN}` and `{read_options.AS_OF_RELEASE}` stand alone. You can also set these five "
        "keys as tags of a run, for every input, and without `iceberg/` in a run's configuration of an input. The "
        "configuration replaces the tags, and the tags replace the definition."
    )


def _maintenance() -> Iterator[str]:
    yield from _section(
        "MaintenancePolicy",
        f"{_first_line(MaintenancePolicy)} `iceberg/maintenance` takes the same names. Durations are `timedelta` "
        "objects in Python, and texts such as `12 hours` or `7 days` in metadata.",
    )
    meanings = _meanings(MaintenancePolicy)
    fields_of_policy = MaintenancePolicy.model_fields
    rows = ((name, _policy_default(field.default), meanings[name]) for name, field in fields_of_policy.items())
    yield from _table(("field", "default", "meaning"), rows)


def _provider(provider: Any) -> Iterator[str]:
    yield from ("", f"### {provider.__name__}", "", _first_line(provider))
    kinds: list[Any] = [kind for kind in reversed(provider.__mro__) if is_dataclass(kind)]
    meanings = {name: text for kind in kinds for name, text in _meanings(kind).items()}
    rows = ((item.name, _provider_default(item), meanings[item.name]) for item in fields(provider))
    yield from _table(("field", "default", "meaning"), rows)


def _provider_default(item: Any) -> str:
    if item.default_factory is not MISSING:
        return f"`{item.default_factory()}`"
    return "required" if item.default is MISSING else _default_text(item.default)


def _meanings(item: type[object]) -> dict[str, str]:
    """Return the descriptions of the arguments in a docstring."""
    described = inspect.cleandoc(item.__doc__ or "").split("Args:\n", 1)[1].split("\n\n", 1)[0]
    joined = re.sub(r"\n {8,}", " ", described)
    lines = (line.strip().partition(": ") for line in joined.splitlines())
    return {name: text for name, _, text in lines}


def _policy_default(value: Any) -> str:
    if value is None or value == ():
        return "none"
    return f"`{duration_text(value)}`" if isinstance(value, dt.timedelta) else f"`{value}`"


def _types() -> Iterator[str]:
    yield from _section(
        "Types",
        "This table shows how a column of a DataFrame (left) is stored in an existing column of a table (top). Both "
        "have Spark's type names. *as is*: the types are equal. *stored*: the table's type holds every value. "
        "*widens*: the table's column gets the DataFrame's type, with `add_columns` or `full`. An empty cell: the "
        "write is rejected before it changes anything. The same rules apply inside structs, lists and maps, but the "
        "keys of a map never change.",
    )
    columns = [item for item in TYPES if item.simpleString() not in NO_COLUMN]
    known = {item: iceberg_type(item, ("c",), "t") for item in TYPES}
    header = ("", *(item.simpleString() for item in columns))
    rows = (
        (item.simpleString(), *(VERDICTS[storage_verdict(known[item], known[column])] for column in columns))
        for item in TYPES
    )
    yield from _table(header, rows)
    yield from (
        "",
        "`char` and `varchar` are `string` in Iceberg. These types are rejected as new columns: `void` (only NULL);",
        "`variant`, unless [`iceberg/readers`](readers.md) names engines that read it; and types that Iceberg 1.12",
        "does not write from Spark: intervals, `time`, `geometry` and `geography`.",
        "A column of type `uuid` or `fixed` that another engine created accepts `string` or `binary`. A value that the",
        "type does not have is rejected.",
    )


def _default_of(key: MetadataKey) -> str:
    if key.default is not None:
        return key.default
    value = getattr(WriteOptions(), key.option)  # the other keys have a text
    return f"`{value}`" if value else "none"


def _written_to_summaries() -> Iterable[str]:
    scope = PartitionScope((Dimension(None, "day"),), ((PartitionSlice("2024-01-01"),),), ("2024-01-01",))
    written = Materialization(
        asset_key="a",
        run_id="r",
        job="j",
        step_key="s",
        scope=scope,
        code_version="1",
        upstream=(),
        write_disposition="replace",
        commit_token="t",  # noqa: S106 - no secret
        package_version="0",
    )
    others = (lineage.CARRIES_OVER, lineage.BOUNDARY, lineage.HISTORY, lineage.RESUMES, lineage.UNDOES)
    return {**written.properties(), **dict.fromkeys(others, "")}


def _covering(explained: Mapping[str, str], keys: Iterable[str], *, prefix: str = "") -> Iterable[tuple[str, str]]:
    """Return the explanations, unless the code has other keys than they explain."""
    different = set(keys) ^ {key for key in explained if key.startswith(prefix)}
    if different:
        message = f"Explain in {Path(__file__).name}, or remove there: {', '.join(sorted(different))}"
        raise LookupError(message)
    return explained.items()


def _fields(model: type[BaseModel]) -> Iterator[str]:
    rows = (_field(model.__name__, name, field) for name, field in model.model_fields.items() if name != "kind")
    yield from _table(("field", "type", "default", "meaning"), rows)


def _field(model: str, name: str, field: FieldInfo) -> tuple[str, str, str, str]:
    if (model, name) in RESOURCES:
        return (name, *RESOURCES[model, name])
    default = "required" if field.is_required() else _default_text(field.default)
    limits = "".join(f"; {limit}" for limit in map(_limit, field.metadata) if limit)
    return name, _type_text(field.annotation) + limits, default, field.description or ""


def _default_text(value: object) -> str:
    if value is None:
        return "none"
    return f"`{type(value).__name__}()`" if isinstance(value, BaseModel) else f"`{value!r}`".replace("'", '"')


def _limit(constraint: object) -> str:
    names = {"ge": "at least", "gt": "more than"}
    return " ".join(f"{text} {getattr(constraint, name)}" for name, text in names.items() if hasattr(constraint, name))


def _type_text(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if origin in (Union, python_types.UnionType):
        return " or ".join(_type_text(item) for item in arguments if item is not type(None))
    if origin is not None:
        return f"{origin.__name__}[{', '.join(map(_type_text, arguments))}]"
    return str(annotation.__name__)


def _tree() -> Iterator[str]:
    lines = inspect.cleandoc(errors.__doc__ or "").splitlines()
    return (line[4:] for line in lines if line.startswith("    "))


def _errors() -> Iterator[str]:
    known = [item for item in vars(errors).values() if _is_error(item)]
    rows = (
        (item.__name__, _first_line(item), "yes" if item.allows_retries else "no", _builtin_of(item)) for item in known
    )
    yield from _table(("error", "meaning", "retried by a RetryPolicy", "also a"), rows)


def _is_error(item: object) -> bool:
    return isinstance(item, type) and issubclass(item, errors.IcebergSparkError)


def _builtin_of(error: type[BaseException]) -> str:
    builtins = [base.__name__ for base in error.__mro__ if base.__module__ == "builtins"]
    return ", ".join(f"`{name}`" for name in builtins if name not in ("Exception", "BaseException", "object"))


def _first_line(item: type[object] | Callable[..., object]) -> str:
    return inspect.cleandoc(item.__doc__ or "").splitlines()[0]


def _section(title: str, text: str) -> Iterator[str]:
    yield from ("", f"## {title}", "", text)


def _table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield from ("", f"| {' | '.join(header)} |", f"|{'---|' * len(header)}")
    for name, *cells in rows:
        escaped = [cell.replace("|", "\\|") for cell in cells]
        yield f"| {' | '.join([f'`{name}`', *escaped])} |"


if __name__ == "__main__":
    sys.exit(main())
