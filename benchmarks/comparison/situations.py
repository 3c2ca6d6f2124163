"""Twelve situations, each run with one way of writing Spark DataFrames of assets to Iceberg tables.

`python situations.py SUBJECT DIRECTORY [CATALOG]` prints the outcome of each situation as JSON. It needs what the
subject needs, and nothing else of this repository. With the URI of a REST catalog, it runs the situation of a lost
answer alone.
"""

import json
import os
import sys
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.schema import Schema
from pyiceberg.transforms import MonthTransform
from pyiceberg.types import IntegerType, NestedField, TimestamptzType
from pyspark.sql import SparkSession

BERLIN = ZoneInfo("Europe/Berlin")
UTC = ZoneInfo("UTC")
NAMESPACE = "db"
EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
SESSION = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}
Frame = Callable[[Any, dg.AssetExecutionContext], Any]
"""Makes the DataFrame of a run from the Spark session and the context."""


class Subject(ABC):
    """A way of writing: what an asset is, and what Spark is configured with.

    Args:
        catalog: The properties of the catalog for pyiceberg.
        conf: Those for Spark, without the prefix.
    """

    appends = True

    def __init__(self, catalog: Mapping[str, str], conf: Mapping[str, str]) -> None:
        self.catalog_properties, self.conf = catalog, conf
        self.catalog: Catalog = load_catalog("lake", **catalog)
        self.catalog.create_namespace_if_not_exists(NAMESPACE)

    @abstractmethod
    def asset(self, name: str, frame: Frame, options: "Options") -> dg.AssetsDefinition:
        """Return an asset that stores the DataFrame as the table of its name."""

    @property
    def resources(self) -> dict[str, Any]:
        """The resources of the asset."""
        return {}

    @abstractmethod
    def fail_after_next_commit(self) -> None:
        """Let the next write raise an error after its commit."""

    def spark_conf(self, packages: str) -> dict[str, str]:
        """Return the configuration of a session with the catalog."""
        catalog = {f"spark.sql.catalog.lake.{key}": value for key, value in self.conf.items()}
        return {
            **SESSION,
            "spark.jars.packages": packages,
            "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.defaultCatalog": "lake",
            "spark.sql.extensions": EXTENSIONS,
            **catalog,
        }


class Options:
    """What an asset asks for: its partitions and their column, whether it appends, and its check."""

    def __init__(
        self,
        partitions: dg.PartitionsDefinition | None = None,
        column: str | None = None,
        *,
        appends: bool = False,
        check: str | None = None,
        retries: int = 0,
    ) -> None:
        self.partitions, self.column, self.appends, self.check = partitions, column, appends, check
        self.retry_policy = dg.RetryPolicy(max_retries=retries) if retries else None


class PlainSpark(Subject):
    """An asset that writes its own DataFrame, as Spark's documentation shows it, and returns nothing."""

    def __init__(self, catalog: Mapping[str, str], conf: Mapping[str, str]) -> None:
        super().__init__(catalog, conf)
        from dagster_iceberg_spark.versions import ICEBERG_SPARK_RUNTIME, SQLITE_JDBC

        builder: Any = SparkSession.builder
        for key, value in self.spark_conf(f"{ICEBERG_SPARK_RUNTIME},{SQLITE_JDBC}").items():
            builder = builder.config(key, value)
        self.session = builder.master("local[2]").getOrCreate()
        self._is_to_fail = False

    def asset(self, name: str, frame: Frame, options: Options) -> dg.AssetsDefinition:
        from pyspark.sql.functions import days

        table = f"lake.{NAMESPACE}.{name}"

        @dg.asset(name=name, partitions_def=options.partitions, retry_policy=options.retry_policy)
        def plain(context: dg.AssetExecutionContext) -> None:
            rows = frame(self.session, context)
            writer = rows.writeTo(table)
            if not self.session.catalog.tableExists(table):
                (writer.partitionedBy(days(options.column)) if options.column else writer).create()
            elif options.appends:
                writer.append()
            else:
                writer.overwritePartitions()
            if self._is_to_fail:
                self._is_to_fail = False
                raise OSError(_LOST)
            if options.check is not None and self.session.table(table).where(f"NOT ({options.check})").count():
                raise dg.Failure(_BAD)

        return plain

    def fail_after_next_commit(self) -> None:
        self._is_to_fail = True


class DagsterIceberg(Subject):
    """`SparkIcebergIOManager` of dagster-iceberg, which works over Spark Connect and replaces partitions."""

    appends = False

    def __init__(self, catalog: Mapping[str, str], conf: Mapping[str, str]) -> None:
        super().__init__(catalog, conf)
        connect = "org.apache.spark:spark-connect_2.12:3.5.7"
        packages = f"{connect},org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.12.0,org.xerial:sqlite-jdbc:3.53.4.0"
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"--packages {packages} pyspark-shell"  # its JVM must start with them
        builder: Any = SparkSession.builder
        for key, value in self.spark_conf(packages).items():
            builder = builder.config(key, value)
        self.session = builder.remote("local[2]").getOrCreate()

    @property
    def resources(self) -> dict[str, Any]:
        from dagster_iceberg.io_manager.spark import SparkIcebergIOManager  # type: ignore[import-not-found]

        return {"iceberg": SparkIcebergIOManager(catalog_name="lake", namespace=NAMESPACE)}

    def asset(self, name: str, frame: Frame, options: Options) -> dg.AssetsDefinition:
        from pyspark.sql.connect.dataframe import DataFrame

        metadata = {"partition_expr": options.column} if options.column else {}
        session = self.session

        def theirs(context):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - annotated below
            return frame(session, context)

        theirs.__annotations__ = {"context": dg.AssetExecutionContext, "return": DataFrame}
        return dg.asset(  # Dagster's checks run after the IO manager has stored the rows
            name=name,
            partitions_def=options.partitions,
            retry_policy=options.retry_policy,
            io_manager_key="iceberg",
            metadata=metadata,
        )(theirs)

    def fail_after_next_commit(self) -> None:
        from dagster_iceberg.io_manager.spark import SparkIcebergTypeHandler

        _fail_once(SparkIcebergTypeHandler)


class ThisPackage(Subject):
    """`IcebergPySparkIOManager`."""

    def __init__(self, catalog: Mapping[str, str], conf: Mapping[str, str]) -> None:
        super().__init__(catalog, conf)
        from dagster_iceberg_spark import IcebergPySparkIOManager, IcebergSparkResource, RestCatalog, SqlCatalog

        if catalog["type"] == "rest":
            described: Any = RestCatalog(uri=catalog["uri"], properties={"rest.client.max-retries": "1"})
        else:
            described = SqlCatalog(uri=catalog["uri"], warehouse=catalog["warehouse"])
        self.spark = IcebergSparkResource(catalog=described, spark_config={**SESSION, "spark.master": "local[2]"})
        self.io_manager = IcebergPySparkIOManager(spark=self.spark, namespace=NAMESPACE)

    @property
    def resources(self) -> dict[str, Any]:
        return {"spark": self.spark, "iceberg": self.io_manager}

    def asset(self, name: str, frame: Frame, options: Options) -> dg.AssetsDefinition:
        metadata: dict[str, Any] = {"partition_expr": options.column} if options.column else {}
        metadata |= {"iceberg/write_disposition": "append"} if options.appends else {}
        metadata |= {"iceberg/audits": {"check": options.check}} if options.check else {}

        def ours(context: dg.AssetExecutionContext) -> Any:
            return frame(context.resources.spark.spark_session, context)

        return dg.asset(
            name=name,
            partitions_def=options.partitions,
            retry_policy=options.retry_policy,
            io_manager_key="iceberg",
            metadata=metadata,
            required_resource_keys={"spark"},
        )(ours)

    def fail_after_next_commit(self) -> None:
        from dagster_iceberg_spark import IcebergPySparkIOManager

        _fail_once(IcebergPySparkIOManager)


SUBJECTS: dict[str, Callable[[Mapping[str, str], Mapping[str, str]], Subject]] = {
    "plain": PlainSpark,
    "dagster-iceberg": DagsterIceberg,
    "dagster-iceberg-spark": ThisPackage,
}
_LOST = "the machine is lost"
_BAD = "the check has failed"


def _fail_once(writer: Any) -> None:
    """Let the next call of `handle_output` of a class raise an error at its end."""
    handle = writer.handle_output

    def fails(*args: Any, **kwargs: Any) -> None:
        writer.handle_output = handle
        handle(*args, **kwargs)
        raise OSError(_LOST)

    writer.handle_output = fails


class Lake:
    """Runs assets of a subject, and reads their tables with pyiceberg."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject

    def run(self, asset: dg.AssetsDefinition, key: str | None = None, *, last: str | None = None) -> str | None:
        """Materialize an asset, and return the error of a run that fails, or None."""
        edges = {"dagster/asset_partition_range_start": key, "dagster/asset_partition_range_end": last} if last else {}
        with dg.DagsterInstance.ephemeral() as instance:
            result = dg.materialize(
                [asset],
                partition_key=None if last else key,
                tags={name: edge for name, edge in edges.items() if edge is not None},
                instance=instance,
                resources=self.subject.resources,
                raise_on_error=False,
                run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
            )
        if result.success:
            return None
        data = next(event for event in result.all_events if event.is_step_failure).step_failure_data
        error = data.error
        while error is not None and error.cause is not None:
            error = error.cause
        return "" if error is None else error.message

    def values(self, name: str, column: str = "v") -> list[Any]:
        """Return the values of a column, sorted."""
        table = self.subject.catalog.load_table((NAMESPACE, name))
        return sorted(table.scan().to_arrow().column(column).to_pylist())

    def hours(self, name: str, zone: ZoneInfo = UTC) -> Counter[str]:
        """Return the number of rows of each day."""
        return Counter(str(at.astimezone(zone).date()) for at in self.values(name, "at"))


def hours_of(value: str = "1") -> Frame:
    """Return the frame of an asset with a row for each hour of its partitions."""

    def frame(session: Any, context: dg.AssetExecutionContext) -> Any:
        start, end = context.partition_time_window
        first, last = (int(edge.timestamp()) for edge in (start, end))
        hours = f"timestamp_seconds({first}), timestamp_seconds({last - 3600}), interval 1 hour"
        return session.sql(f"select explode(sequence({hours})) as at, {value} as v")

    return frame


def query(text: str) -> Frame:
    """Return the frame of a query."""
    return lambda session, _: session.sql(text)


def differences(found: Mapping[str, int], expected: Mapping[str, int]) -> str:
    """Return what is wrong with the numbers of rows by day, or `right`."""
    lost = sum(max(expected[day] - found.get(day, 0), 0) for day in expected)
    more = sum(max(count - expected.get(day, 0), 0) for day, count in found.items())
    parts = [f"{lost} rows lost"] if lost else []
    parts += [f"{more} rows too many"] if more else []
    return ", ".join(parts) or RIGHT


RIGHT = "right"
NO_APPEND = "cannot append"
DAYS = dg.DailyPartitionsDefinition("2024-03-01", end_date="2024-05-01")
LOCAL_DAYS = dg.DailyPartitionsDefinition("2024-03-01", end_date="2024-05-01", timezone="Europe/Berlin")


def machine_lost_after_the_commit(lake: Lake) -> str:
    """A step appends two rows and dies before Dagster knows. Dagster tries it again."""
    if not lake.subject.appends:
        return NO_APPEND
    rows = query("select * from values (1), (2) as t(v)")
    asset = lake.subject.asset("appended", rows, Options(appends=True, retries=1))
    lake.subject.fail_after_next_commit()
    lake.run(asset)
    return differences(Counter(map(str, lake.values("appended"))), {"1": 1, "2": 1})


def answer_of_the_catalog_lost(lake: Lake) -> str:
    """The catalog commits an append, and its answer is lost. Dagster tries the step again."""
    if not lake.subject.appends:
        return NO_APPEND
    catalog, name = lake.subject.catalog, (NAMESPACE, "answered")
    if catalog.table_exists(name):
        catalog.drop_table(name)
    catalog.create_table(name, Schema(NestedField(1, "v", IntegerType())))
    rows = query("select * from values (1), (2) as t(v)")
    lake.run(lake.subject.asset("answered", rows, Options(appends=True, retries=1)))
    return differences(Counter(map(str, lake.values("answered"))), {"1": 1, "2": 1})


def day_of_23_hours(lake: Lake) -> str:
    """Daily partitions in Berlin. The day on which the clocks go forward is run again."""
    asset = lake.subject.asset("local", hours_of(), Options(LOCAL_DAYS, "at"))
    for key in ("2024-03-30", "2024-03-31", "2024-04-01", "2024-03-31"):
        lake.run(asset, key)
    return differences(lake.hours("local", BERLIN), {"2024-03-30": 24, "2024-03-31": 23, "2024-04-01": 24})


def table_by_month(lake: Lake) -> str:
    """The table is partitioned by month, and the asset by day. A day is run again."""
    schema = Schema(NestedField(1, "at", TimestamptzType()), NestedField(2, "v", IntegerType()))
    table = lake.subject.catalog.create_table((NAMESPACE, "monthly"), schema)
    with table.update_spec() as update:
        update.add_field("at", MonthTransform(), "at_month")
    asset = lake.subject.asset("monthly", hours_of(), Options(DAYS, "at"))
    for key in ("2024-03-01", "2024-03-02", "2024-03-01"):
        lake.run(asset, key)
    return differences(lake.hours("monthly"), {"2024-03-01": 24, "2024-03-02": 24})


def day_without_rows(lake: Lake) -> str:
    """A day is run again, and has no rows any more."""
    lake.run(lake.subject.asset("emptied", hours_of(), Options(DAYS, "at")), "2024-03-01")
    none = query("select timestamp'2024-03-01' as at, 1 as v where false")
    lake.run(lake.subject.asset("emptied", none, Options(DAYS, "at")), "2024-03-01")
    left = len(lake.values("emptied"))
    return f"{left} old rows stay" if left else RIGHT


def rows_of_another_day(lake: Lake) -> str:
    """The run of a day also returns a row of the day before, such as a late one."""
    lake.run(lake.subject.asset("late", hours_of(), Options(DAYS, "at")), "2024-03-01")
    rows = "select explode(array(timestamp'2024-03-01 12:00:00Z', timestamp'2024-03-02 12:00:00Z')) as at, 1 as v"
    error = lake.run(lake.subject.asset("late", query(rows), Options(DAYS, "at")), "2024-03-02")
    lost = 24 - lake.hours("late")["2024-03-01"]
    if lost > 0:
        return f"{lost} rows of that day lost"
    return "rejected" if error is not None else RIGHT


def first_writes_at_once(lake: Lake) -> str:
    """Four partitions of a new table are written at the same time."""
    keys = [f"2024-03-0{day}" for day in range(1, 5)]
    together = threading.Barrier(len(keys), timeout=60)

    def frame(session: Any, context: dg.AssetExecutionContext) -> Any:
        rows = hours_of()(session, context)
        together.wait()
        return rows

    asset = lake.subject.asset("raced", frame, Options(DAYS, "at"))
    errors = dict[str, str | None]()
    threads = [threading.Thread(target=lambda key=key: errors.update({key: lake.run(asset, key)})) for key in keys]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if any(error is not None for error in errors.values()):
        return "runs fail"
    return differences(lake.hours("raced"), dict.fromkeys(keys, 24))


def range_in_one_run(lake: Lake) -> str:
    """One run writes three days."""
    asset = lake.subject.asset("ranged", hours_of(), Options(DAYS, "at"))
    error = lake.run(asset, "2024-03-01", last="2024-03-03")
    if error is not None:
        return "fails"
    return differences(lake.hours("ranged"), {f"2024-03-0{day}": 24 for day in (1, 2, 3)})


def value_that_does_not_fit(lake: Lake) -> str:
    """A column of whole numbers gets 1.5."""
    lake.run(lake.subject.asset("narrow", query("select 1 as v"), Options()))
    error = lake.run(lake.subject.asset("narrow", query("select 1.5D as v"), Options()))
    found = lake.values("narrow")
    if error is not None:
        return "rejected"
    return RIGHT if found == [1.5] else f"stored as {found[0]}"


def new_column(lake: Lake) -> str:
    """The DataFrame gains a column."""
    lake.run(lake.subject.asset("wider", query("select 1 as v"), Options()))
    error = lake.run(lake.subject.asset("wider", query("select 2 as v, 'x' as w"), Options()))
    return "fails" if error is not None else "added"


def rows_that_fail_a_check(lake: Lake) -> str:
    """A run returns rows that fail a check. What do readers see?"""
    lake.run(lake.subject.asset("checked", query("select 1 as v"), Options(check="v < 10")))
    lake.run(lake.subject.asset("checked", query("select 99 as v"), Options(check="v < 10")))
    return RIGHT if lake.values("checked") == [1] else "readers see the wrong rows"


def where_rows_come_from(lake: Lake) -> str:
    """Which run has written the newest snapshot?"""
    lake.run(lake.subject.asset("known", query("select 1 as v"), Options()))
    snapshot = lake.subject.catalog.load_table((NAMESPACE, "known")).current_snapshot()
    summary = snapshot.summary.additional_properties if snapshot is not None and snapshot.summary is not None else {}
    return RIGHT if any("run_id" in key or "run-id" in key for key in summary) else "unknown"


SITUATIONS: tuple[Callable[[Lake], str], ...] = (
    machine_lost_after_the_commit,
    answer_of_the_catalog_lost,
    day_of_23_hours,
    table_by_month,
    day_without_rows,
    rows_of_another_day,
    first_writes_at_once,
    range_in_one_run,
    value_that_does_not_fit,
    new_column,
    rows_that_fail_a_check,
    where_rows_come_from,
)


def outcome(situation: Callable[[Lake], str], lake: Lake) -> str:
    """Return the outcome of a situation."""
    try:
        return situation(lake)
    except Exception as error:  # noqa: BLE001 - whatever happens is the outcome
        return f"fails: {type(error).__name__}: {str(error)[:200]}"


def main(subject: str, directory: str, catalog: str | None = None) -> None:
    """Run the situations of a subject."""
    place, chosen = Path(directory).absolute(), list[Callable[[Lake], str]]()
    if catalog is not None:
        properties = {"type": "rest", "uri": catalog}
        conf = {"type": "rest", "uri": catalog, "rest.client.max-retries": "1"}
        chosen = [situation for situation in SITUATIONS if situation is answer_of_the_catalog_lost]
    else:
        uri, warehouse = f"sqlite:///{place}/catalog.db", f"file://{place}/warehouse"
        properties = {"type": "sql", "uri": uri, "warehouse": warehouse}
        jdbc = {"uri": f"jdbc:sqlite:{place}/catalog.db", "jdbc.schema-version": "V1"}
        conf = {"type": "jdbc", "warehouse": warehouse, **jdbc}
        chosen = [situation for situation in SITUATIONS if situation is not answer_of_the_catalog_lost]
    lake = Lake(SUBJECTS[subject](properties, conf))
    sys.stdout.write(json.dumps({item.__name__: outcome(item, lake) for item in chosen}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
