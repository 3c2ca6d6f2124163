"""Tables that others keep in a catalog, as assets in YAML.

docs/components.md: IcebergTablesComponent
"""

import asyncio
import datetime as dt
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster.components.core.component_tree import ComponentTreeException
from dagster.components.testing import DefsFolderSandbox, create_defs_folder_sandbox
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.transforms import parse_transform

from dagster_iceberg_spark import IcebergLakeComponent, IcebergTablesComponent
from dagster_iceberg_spark.errors import CatalogUnavailableError

AT = dt.datetime(2024, 3, 5, 7, 30, tzinfo=dt.timezone.utc)
ROWS = pa.table(
    {
        "at": pa.array([AT, AT + dt.timedelta(days=40)], pa.timestamp("us", "UTC")),
        "day": pa.array([AT.date(), AT.date()]),
        "region": ["b", "a"],
        "id": [1, 2],
    }
)


class Lake:
    """A catalog of a directory, and the YAML that describes it."""

    def __init__(self, directory: Path) -> None:
        self.uri, self.warehouse = f"sqlite:///{directory}/catalog.db", str(directory / "wh")
        self.catalog = SqlCatalog("lake", uri=self.uri, warehouse=self.warehouse)
        self.spark = {"catalog": {"kind": "sql", "name": "lake", "uri": self.uri, "warehouse": self.warehouse}}

    def add(self, name: str, *fields: tuple[str, str], rows: pa.Table = ROWS, **properties: str) -> None:
        namespace = name.rpartition(".")[0]
        self.catalog.create_namespace_if_not_exists(namespace)
        table = self.catalog.create_table(name, rows.schema, properties=properties)
        with table.update_spec() as update:
            for column, transform in fields:
                update.add_field(column, parse_transform(transform), f"{column}_{transform[:5]}")
        if rows.num_rows:
            table.append(rows)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


class Project:
    """A project with the component in the folder `raw`, and the lake in the folder `lake`."""

    def __init__(self, sandbox: DefsFolderSandbox, lake: Lake, attributes: Mapping[str, Any]) -> None:
        body = {"type": "dagster_iceberg_spark.IcebergLakeComponent", "attributes": {"spark": lake.spark}}
        sandbox.scaffold_component(IcebergLakeComponent, "lake", defs_yaml_contents=body)
        body = {
            "type": "dagster_iceberg_spark.IcebergTablesComponent",
            "attributes": {"spark": "{{ context.load_component('lake').spark }}", **attributes},
        }
        self.sandbox = sandbox
        self.path = sandbox.scaffold_component(IcebergTablesComponent, "raw", defs_yaml_contents=body)

    def refresh(self) -> None:
        with self.sandbox.build_component_tree() as tree:
            component = tree.load_component(self.path)
            assert isinstance(component, IcebergTablesComponent)
            asyncio.run(component.refresh_state(self.sandbox.project_root))

    def definitions(self) -> dg.Definitions:
        with self.sandbox.build_all_defs() as definitions:
            return definitions

    def specs(self) -> dict[str, dg.AssetSpec]:
        return {spec.key.to_user_string(): spec for spec in self.definitions().resolve_all_asset_specs()}


def discovered(lake: Lake, **attributes: Any) -> dict[str, dg.AssetSpec]:
    with create_defs_folder_sandbox() as sandbox:
        project = Project(sandbox, lake, attributes)
        project.refresh()
        return project.specs()


def test_a_table_is_an_asset_with_its_columns_and_its_place(lake: Lake) -> None:
    lake.add("raw.sensors", ("at", "day"), comment="See [x](http://y).")
    spec = discovered(lake, key_prefix="lake", group_name="raw")["lake/raw/sensors"]
    assert (spec.group_name, spec.kinds, spec.description) == ("raw", {"iceberg"}, r"See \[x\](http\://y).")
    assert [(column.name, column.type) for column in spec.metadata["dagster/column_schema"].columns] == [
        ("at", "timestamptz"),
        ("day", "date"),
        ("region", "string"),
        ("id", "long"),
    ]
    assert spec.metadata["dagster/uri"] == lake.catalog.load_table("raw.sensors").location()
    assert spec.metadata["dagster/table_name"] == "lake.raw.sensors"
    assert (spec.partitions_def, spec.metadata["partition_expr"]) == (dg.DailyPartitionsDefinition("2024-03-05"), "at")


@pytest.mark.full
@pytest.mark.parametrize(
    ("fields", "partitions", "column"),
    [
        ([("at", "day")], dg.DailyPartitionsDefinition("2024-03-05"), "at"),
        ([("at", "hour")], dg.HourlyPartitionsDefinition("2024-03-05-07:00"), "at"),
        ([("at", "month"), ("id", "bucket[4]")], dg.MonthlyPartitionsDefinition("2024-03-01"), "at"),
        ([("at", "year")], dg.TimeWindowPartitionsDefinition("2024", "%Y", cron_schedule="0 0 1 1 *"), "at"),
        ([("day", "identity"), ("region", "identity")], dg.DailyPartitionsDefinition("2024-03-05"), "day"),
        ([("region", "identity")], dg.StaticPartitionsDefinition(["a", "b"]), "region"),
        ([("id", "bucket[4]")], None, None),
        ([("at", "day"), ("day", "identity")], None, None),
    ],
    ids=str,
)
def test_partitions_are_those_of_the_spec(
    lake: Lake, fields: list[tuple[str, str]], partitions: dg.PartitionsDefinition | None, column: str | None
) -> None:
    lake.add("raw.sensors", *fields)
    spec = discovered(lake)["raw/sensors"]
    assert (spec.partitions_def, spec.metadata.get("partition_expr")) == (partitions, column)


@pytest.mark.full
def test_an_empty_table_has_no_partitions_yet(lake: Lake) -> None:
    lake.add("raw.sensors", ("at", "day"), rows=ROWS.slice(0, 0))
    assert discovered(lake)["raw/sensors"].partitions_def is None


@pytest.mark.full
def test_files_of_an_older_spec_leave_the_partitions_open(lake: Lake) -> None:
    lake.add("raw.sensors")
    table = lake.catalog.load_table("raw.sensors")
    with table.update_spec() as update:
        update.add_field("at", parse_transform("day"), "at_day")
    table.append(ROWS)
    assert discovered(lake)["raw/sensors"].partitions_def is None


@pytest.mark.full
def test_patterns_select_tables(lake: Lake) -> None:
    for name in ("raw.orders_eu", "raw.orders_tmp", "raw.customers", "shop.orders_us", "other.orders"):
        lake.add(name, rows=ROWS.slice(0, 0))
    lake.add("raw.orders_own", **{"dagster.asset_key": "orders_own"})
    lake.add("raw.dagster_expired_snapshots")
    chosen = {"namespaces": ["raw", "sh*"], "tables": ["orders_*"], "exclude": ["*.*_tmp"]}
    assert set(discovered(lake, **chosen)) == {"raw/orders_eu", "shop/orders_us"}
    assert set(discovered(lake, **chosen, include_owned=True)) == {"raw/orders_eu", "raw/orders_own", "shop/orders_us"}
    assert len(discovered(lake)) == 5


@pytest.mark.full
def test_a_catalog_that_is_down_leaves_the_last_state(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lake.add("raw.sensors")
    with create_defs_folder_sandbox() as sandbox:
        project = Project(sandbox, lake, {})
        assert project.specs() == {}, "nobody has looked yet"
        project.refresh()
        assert set(project.specs()) == {"raw/sensors"}
        down = CatalogUnavailableError("no answer")

        def fails(*_: Any, **__: Any) -> None:
            raise down

        monkeypatch.setattr("dagster_iceberg_spark.features.components.table_assets.tables_of", fails)
        with pytest.raises(CatalogUnavailableError):
            project.refresh()
        assert set(project.specs()) == {"raw/sensors"}
        monkeypatch.setenv("DAGSTER_IS_DEV_CLI", "1")
        assert set(project.specs()) == {"raw/sensors"}
        assert "The tables are those of the last state: no answer" in caplog.text
        monkeypatch.undo()
        lake.add("raw.new")
        monkeypatch.setenv("DAGSTER_IS_DEV_CLI", "1")
        assert set(project.specs()) == {"raw/new", "raw/sensors"}, "`dg dev` looks by itself"


def test_a_sensor_watches_the_tables(lake: Lake) -> None:
    lake.add("raw.sensors", ("at", "day"))
    with create_defs_folder_sandbox() as sandbox:
        project = Project(sandbox, lake, {"watch": True})
        project.refresh()
        definitions = project.definitions()
    sensor = definitions.resolve_sensor_def("raw_tables")
    with dg.DagsterInstance.ephemeral() as instance:
        first = sensor(dg.build_sensor_context(instance, definitions=definitions))
        assert isinstance(first, dg.SensorResult)
        lake.catalog.load_table("raw.sensors").append(ROWS.slice(0, 1))
        second = sensor(dg.build_sensor_context(instance, cursor=first.cursor, definitions=definitions))
    assert isinstance(second, dg.SensorResult)
    assert [event.partition for event in second.asset_events] == ["2024-03-05"]


def test_the_catalog_may_be_its_own(lake: Lake) -> None:
    lake.add("raw.sensors")
    assert set(discovered(lake, spark=lake.spark)) == {"raw/sensors"}


@pytest.mark.full
def test_what_is_no_resource_is_refused(lake: Lake) -> None:
    with create_defs_folder_sandbox() as sandbox:
        project = Project(sandbox, lake, {"spark": "{{ 1 + 1 }}"})
        with pytest.raises(ComponentTreeException) as caught:
            project.definitions()
    message = str(caught.value.__cause__)
    assert re.search(r"`attributes.spark` in line \d+ of .*defs.yaml: expected the fields of", message)
