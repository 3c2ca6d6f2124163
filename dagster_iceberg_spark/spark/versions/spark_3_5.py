"""Spark 3.5."""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, DataFrameWriterV2, types

from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.spark.session.runtime import is_connect
from dagster_iceberg_spark.spark.versions.spark_4_0 import Spark40
from dagster_iceberg_spark.spark.versions.spark_4_1 import MergeWriter

_STATIC_INVOKE: Final = "staticinvoke"


class Spark35(Spark40):
    """What Spark 3.5 does otherwise than 4.0."""

    name = "3.5"
    alters_columns_together = False
    has_siblings_on_connect = False

    def configuration(self, session: Any) -> dict[str, str]:
        """Return the whole configuration of the session."""
        if not is_connect(session):
            converters = session._jvm.scala.collection.JavaConverters
            return dict(converters.mapAsJavaMap(session._jsparkSession.conf().getAll()))
        from pyspark.sql.connect.proto import ConfigRequest

        answer = session.client.config(ConfigRequest.Operation(get_all=ConfigRequest.GetAll()))
        return {key: value for key, value in answer.pairs if value is not None}

    @contextmanager
    def without_retries(self, session: Any) -> Iterator[None]:
        """Disable the retries of a Spark Connect session while the block runs."""
        policy = session.client._retry_policy  # noqa: SLF001 - no public way before 4.0
        retries, policy["max_retries"] = policy["max_retries"], 0
        try:
            yield
        finally:
            policy["max_retries"] = retries

    def never_retry(self, session: Any) -> None:
        """Disable the retries of a Spark Connect session."""
        session.client._retry_policy["max_retries"] = 0  # noqa: SLF001 - no public way before 4.0

    def release(self, session: Any) -> None:
        """Leave the session to its server, which ends it when it is idle. The protocol of 3.5 has no request for it."""

    @contextmanager
    def progress(
        self,
        session: Any,  # noqa: ARG002 - the protocol of 3.5 reports no progress
        handler: Callable[..., None],  # noqa: ARG002
    ) -> Iterator[None]:
        """Report nothing."""
        yield

    def require_supported(self, session: Any, subject: str, *, merges: bool, mixes_specs: bool) -> None:
        """Reject what the protocol of Spark Connect 3.5 cannot carry."""
        if not is_connect(session):
            return
        if merges:
            raise _unsupported_over_connect(
                subject, "`iceberg/write_disposition` 'merge'", "no checkpoints and no snapshot properties for MERGE"
            )
        if mixes_specs:
            raise _unsupported_over_connect(
                subject,
                "`iceberg/write_disposition` 'overwrite_partitions' after a change of the partition spec",
                "no checkpoints",
            )

    def overwrite(self, session: Any, writer: DataFrameWriterV2, rows: Column, *, is_by_partition: bool) -> None:
        """Replace the rows that the filter matches.

        Over Connect, the rows cannot be computed before they are written. Their partitions are then those that the
        write itself finds, which are the same for a table with a single partition spec.
        """
        if is_by_partition and is_connect(session):
            writer.overwritePartitions()
        else:
            writer.overwrite(rows)

    def query(self, session: Any, text: str, frames: Mapping[str, DataFrame]) -> DataFrame:
        """Return the result of a query. Over Connect, views stand for the DataFrames, for as long as the session."""
        if not is_connect(session):
            return super().query(session, text, frames)
        views = {name: f"frame_{uuid.uuid4().hex}" for name in frames}
        for name, frame in frames.items():
            frame.createTempView(views[name])
        return session.sql(text.format(**views))  # type: ignore[no-any-return]

    def make_active(self, session: Any) -> None:
        """Make a classic session the active one of the JVM's thread."""
        session._jvm.SparkSession.setActiveSession(session._jsparkSession)

    def observation(self, session: Any, name: str) -> Any:
        """Return an observation for a classic session. The client of 3.5 cannot observe a write over Connect."""
        return None if is_connect(session) else super().observation(session, name)

    def frame_of(self, session: Any, rows: Any, schema: types.StructType) -> DataFrame:
        """Return the Arrow table as a DataFrame that is part of the plan, as `createDataFrame` of 4.0 does."""
        if is_connect(session):
            from pyspark.sql.connect.dataframe import DataFrame as ConnectFrame
            from pyspark.sql.connect.plan import LocalRelation

            frames: Any = ConnectFrame

            return frames.withPlan(LocalRelation(rows, schema=schema.json()), session)  # type: ignore[no-any-return]
        from pyspark.sql.pandas.serializers import ArrowStreamSerializer

        jvm = session._jvm
        stream = session._sc._serialize_to_jvm(  # noqa: SLF001 - no public way before 4.0
            rows.to_batches(),
            ArrowStreamSerializer(),
            jvm.PythonSQLUtils.readArrowStreamFromFile,
            jvm.ArrowIteratorServer,
        )
        return DataFrame(jvm.PythonSQLUtils.toDataFrame(stream, schema.json(), session._jsparkSession), session)

    def arrow_of(self, frame: Any) -> Any:
        """Return the DataFrame as an Arrow table, as `toArrow` of 4.0 does."""
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_schema

        schema = to_arrow_schema(frame.schema)
        if is_connect(frame.sparkSession):
            client = frame.sparkSession.client
            table, _ = client.to_table(frame._plan.to_proto(client))  # noqa: SLF001 - no public way before 4.0
        else:
            batches = frame._collect_as_arrow()  # noqa: SLF001
            table = pa.Table.from_batches(batches, batches[0].schema if batches else schema)
        return table.cast(schema)

    def on_disk(self, frame: Any) -> DataFrame:
        """Return the DataFrame with its rows in the memory of the executors, or on their disks if it is full."""
        if is_connect(frame.sparkSession):
            raise _unsupported_over_connect("rows of Arrow", "more than 16 MB of them", "no checkpoints")
        return frame.localCheckpoint()  # type: ignore[no-any-return]

    def checkpoint(self, frame: Any) -> DataFrame:
        """Return the DataFrame with its rows computed once, in one copy, or as it is over Connect: no checkpoints."""
        return frame if is_connect(frame.sparkSession) else frame.localCheckpoint()  # type: ignore[no-any-return]

    def overwrite_filter(self, stored: Callable[[], DataFrame], rows: Column) -> Column:
        """Return the filter with transforms as calls of Iceberg's functions.

        Spark 3.5 resolves them to calls of Java methods, which it does not hand to Iceberg (`V2ExpressionBuilder`).
        Iceberg replaces these in filters, but not in the filter of an overwrite (`ReplaceStaticInvoke`).
        """
        table = stored()
        if is_connect(table.sparkSession):
            return rows
        condition = table.where(rows)._jdf.queryExecution().analyzed().condition()
        if _STATIC_INVOKE not in condition.toString():
            return rows
        jvm: Any = table.sparkSession._jvm
        return Column(jvm.org.apache.spark.sql.Column(_with_iceberg_functions(jvm, condition)))

    @property
    def primitive_types(self) -> Mapping[type[types.DataType], str]:
        """None: 3.5 has no variant."""
        return {}

    def is_valid_utf8(self, text: str) -> str:
        """Return an expression for whether a text is valid UTF-8. Others change when they are encoded again."""
        return f"CAST(CAST({text} AS STRING) AS BINARY) = encode(CAST({text} AS STRING), 'UTF-8')"

    def valid_utf8(self, text: str) -> str:
        """Return an expression for a text with a replacement for bytes that are not UTF-8."""
        return f"decode(encode({text}, 'UTF-8'), 'UTF-8')"

    def condition_of(self, error: PySparkException) -> str | None:
        """Return Spark's error condition, which 3.5 calls the error's class."""
        return error.getErrorClass()

    def merge_into(
        self, source: DataFrame, table: str, condition: Column, snapshot_properties: Mapping[str, str]
    ) -> MergeWriter:
        """Return a MERGE of the DataFrame, whose commit carries the properties."""
        return _MergeInto(source, table, condition, snapshot_properties)


def _with_iceberg_functions(jvm: Any, expression: Any) -> Any:
    """Return the resolved expression with calls of Iceberg's functions, and names for the columns of the table."""
    kind = expression.getClass().getSimpleName()
    if kind == "AttributeReference":
        return jvm.org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute.quoted(expression.name())
    children = _list(jvm, expression.children())
    changed = jvm.PythonUtils.toSeq([_with_iceberg_functions(jvm, child) for child in children])
    if kind != "StaticInvoke":
        return expression.withNewChildren(changed)
    given = jvm.org.apache.spark.sql.types.StructType()
    for index, child in enumerate(children):
        given = given.add(f"_{index}", child.dataType(), child.nullable())
    function = jvm.org.apache.iceberg.spark.functions.SparkFunctions.loadFunctionByClass(expression.staticObject())
    return jvm.org.apache.spark.sql.catalyst.expressions.ApplyFunctionExpression(function.bind(given), changed)


def _list(jvm: Any, items: Any) -> list[Any]:
    return list(jvm.scala.collection.JavaConverters.seqAsJavaList(items))


class _MergeInto:
    """Spark's `MergeIntoWriter` for 3.5: it makes the same plan, and commits it with snapshot properties.

    Spark 3.5 has MERGE as a statement only, in which columns would have to be text. Iceberg's runtime for 3.5 does not
    read snapshot properties from the session's configuration, but from its `CommitMetadata`, for one thread.
    """

    def __init__(
        self, source: DataFrame, table: str, condition: Column, snapshot_properties: Mapping[str, str]
    ) -> None:
        self._source, self._table, self._condition = source, table, condition
        self._snapshot_properties = snapshot_properties
        self._matched: list[Any] = []
        self._not_matched: list[Any] = []
        session: Any = source.sparkSession
        self._jvm = session._jvm
        self._logical = self._jvm.org.apache.spark.sql.catalyst.plans.logical

    def whenMatched(self, condition: Column | None = None) -> "_Clause":  # noqa: N802 - Spark's name
        return _Clause(self, self._matched, condition)

    def whenNotMatched(self, condition: Column | None = None) -> "_Clause":  # noqa: N802 - Spark's name
        return _Clause(self, self._not_matched, condition)

    def merge(self) -> None:
        """Run the MERGE as `MergeIntoWriterImpl.merge` of Spark 4.0 does."""
        session: Any = self._source.sparkSession
        state = session._jsparkSession.sessionState()
        jvm = self._jvm
        relation = jvm.org.apache.spark.sql.catalyst.analysis.UnresolvedRelation(
            state.sqlParser().parseMultipartIdentifier(self._table),
            jvm.org.apache.spark.sql.util.CaseInsensitiveStringMap.empty(),
            False,  # noqa: FBT003 - py4j takes no keywords
        )
        plan = self._logical.MergeIntoTable(
            relation,
            self._source._jdf.queryExecution().logical(),
            _expression(self._condition),
            self._sequence(self._matched),
            self._sequence(self._not_matched),
            self._sequence([]),
        )
        mode = jvm.org.apache.spark.sql.execution.CommandExecutionMode.ALL()
        _with_commit_properties(
            session, self._snapshot_properties, lambda: state.executePlan(plan, mode).assertCommandExecuted()
        )

    def action(self, kind: str, condition: Column | None, *assigned: Mapping[str, Column]) -> Any:
        """Return Spark's `MergeAction` of this kind."""
        given = self._jvm.scala.Option.apply(None if condition is None else _expression(condition))
        return getattr(self._logical, kind)(
            given, *(self._sequence(list(self._assignments(each))) for each in assigned)
        )

    def _assignments(self, assigned: Mapping[str, Column]) -> Iterator[Any]:
        parser: Any = self._source.sparkSession._jsparkSession.sessionState().sqlParser()
        for name, value in assigned.items():
            yield self._logical.Assignment(parser.parseExpression(name), _expression(value))

    def _sequence(self, items: Sequence[Any]) -> Any:
        return self._jvm.PythonUtils.toSeq(items)


class _Clause:
    """A clause of a MERGE."""

    def __init__(self, writer: _MergeInto, actions: list[Any], condition: Column | None) -> None:
        self._writer, self._actions, self._condition = writer, actions, condition

    def update(self, assigned: Mapping[str, Column]) -> _MergeInto:
        return self._with(self._writer.action("UpdateAction", self._condition, assigned))

    def insert(self, assigned: Mapping[str, Column]) -> _MergeInto:
        return self._with(self._writer.action("InsertAction", self._condition, assigned))

    def delete(self) -> _MergeInto:
        return self._with(self._writer.action("DeleteAction", self._condition))

    def _with(self, action: Any) -> _MergeInto:
        self._actions.append(action)
        return self._writer


class _Call:
    """A Python function as Java's `Callable`. It keeps an error, which py4j would turn into text."""

    class Java:
        implements = ("java.util.concurrent.Callable",)

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function
        self.error: BaseException | None = None

    def call(self) -> None:
        try:
            self._function()
        except BaseException as error:  # noqa: BLE001 - raised where Java has returned
            self.error = error


def _with_commit_properties(session: Any, properties: Mapping[str, str], commit: Callable[[], object]) -> None:
    """Call the function. Iceberg's commits of this thread carry the properties while it runs."""
    from pyspark.java_gateway import ensure_callback_server_started

    jvm = session._jvm
    ensure_callback_server_started(session.sparkContext._gateway)  # type: ignore[no-untyped-call]  # noqa: SLF001
    call = _Call(commit)
    failure = jvm.java.lang.Class.forName("java.lang.RuntimeException")
    jvm.org.apache.iceberg.spark.CommitMetadata.withCommitProperties(dict(properties), call, failure)
    if call.error is not None:
        raise call.error


def _expression(column: Any) -> Any:
    return column._jc.expr()  # noqa: SLF001 - Spark's expression, as `MergeIntoWriterImpl` takes it


def _unsupported_over_connect(subject: str, what: str, why: str) -> ConfigurationError:
    """The protocol of Spark Connect 3.5 cannot carry a write."""
    return ConfigurationError.refusing(
        "write",
        subject,
        expected=f"a classic session, or Spark Connect 4.0 or newer, for {what}",
        found=f"Spark Connect 3.5, whose protocol has {why}",
        hint="leave `remote` out, or use Spark 4.",
    )
