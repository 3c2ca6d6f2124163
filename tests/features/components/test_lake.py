"""The resource and the IO manager in YAML.

docs/components.md: IcebergLakeComponent; Errors
"""

import datetime as dt
import re
from typing import Any

import dagster as dg
import pytest
from dagster.components.core.component_tree import ComponentTreeException
from dagster.components.testing import create_defs_folder_sandbox

from dagster_iceberg_spark import (
    DuckLakeMirror,
    IcebergLakeComponent,
    IcebergPySparkIOManager,
    IcebergTablesComponent,
    MaintenancePolicy,
    SparkSqlComponent,
)
from dagster_iceberg_spark.features.components.lake import IO_MANAGER_MODEL, SPARK_MODEL
from dagster_iceberg_spark.features.maintenance import job
from dagster_iceberg_spark.features.maintenance.job import build_location_maintenance

CATALOG = {"kind": "rest", "uri": "http://catalog:8181", "warehouse": "lake"}


def resources_of(spark: dict[str, Any], **attributes: Any) -> dict[str, Any]:
    with create_defs_folder_sandbox() as sandbox:
        body = {"type": "dagster_iceberg_spark.IcebergLakeComponent", "attributes": {"spark": spark, **attributes}}
        path = sandbox.scaffold_component(component_cls=IcebergLakeComponent, defs_yaml_contents=body)
        with sandbox.load_component_and_build_defs(defs_path=path) as (_, definitions):
            return dict(definitions.resources or {})


def test_the_fields_are_those_of_the_resources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "se-cr-et")
    monkeypatch.setenv("ATTEMPTS", "3")
    login = {"kind": "bearer", "token": "{{ env.TOKEN }}"}
    spark = {
        "catalog": {**CATALOG, "authentication": login},
        "spark_config": {"spark.master": "local[2]", "spark.ui.enabled": False, "spark.task.cpus": 2},
    }
    mirror = {"kind": "ducklake", "catalog": "sqlite:///m.ducklake", "mode": "register"}
    resources = resources_of(spark, io_manager={"namespace": "nyc", "commit_attempts": 4, "mirror": mirror})
    io_manager = resources["iceberg"]
    assert isinstance(io_manager, IcebergPySparkIOManager)
    assert isinstance(io_manager.mirror, DuckLakeMirror)
    assert (io_manager.namespace, io_manager.commit_attempts, io_manager.mirror.mode) == ("nyc", 4, "register")
    assert resources["spark"].catalog.authentication.token == dg.EnvVar("TOKEN")
    assert "se-cr-et" not in str(resources)
    config = {"spark.master": "local[2]", "spark.ui.enabled": "false", "spark.task.cpus": "2"}
    assert resources["spark"].spark_config == config


def test_without_attributes_the_catalog_is_embedded() -> None:
    assert resources_of({}, spark_key="session", io_manager_key="io_manager").keys() == {"session", "io_manager"}


@pytest.mark.parametrize(
    ("spark", "io_manager", "message"),
    [
        ({"catalog": {**CATALOG, "warehous": "x"}}, {}, "`attributes.spark.catalog.warehous` in line 7 of"),
        ({"catalog": {"kind": "sqll"}}, {}, "expected one of the kinds embedded, sql, .* Hint: did you mean `sql`"),
        ({"catalog": {"uri": "s"}}, {}, "`attributes.spark.catalog.kind` in line .* found none"),
        ({"catalog": {"kind": "sql", "warehouse": "w"}}, {}, "`attributes.spark.catalog.uri` in line .* found none"),
        ({"catalog": {**CATALOG, "store": {"kind": "s3", "endpoin": 1}}}, {}, "did you mean `endpoint`"),
        ({}, {"commit_attempts": 0}, "`attributes.io_manager.commit_attempts` in line 3 .* greater than or equal to 1"),
        ({}, {"write_dispositio": "replace"}, "did you mean `write_disposition`"),
    ],
)
def test_a_wrong_key_is_refused_with_its_line_and_without_values(
    spark: dict[str, Any], io_manager: dict[str, Any], message: str
) -> None:
    spark = {"remote": "sc://host:1/;token=se-cr-et", **spark}
    with pytest.raises(ComponentTreeException) as raised:
        resources_of(spark, io_manager=io_manager)
    *_, own = str(raised.value.__cause__).strip().splitlines()  # before it, Dagster shows the lines of the file
    assert re.search(message, own)
    assert "se-cr-et" not in own


def test_the_lake_is_maintained(monkeypatch: pytest.MonkeyPatch) -> None:
    maintenance = {"schedule": "0 4 * * *", "timezone": "Europe/Berlin", "policy": {"older_than": "30 days"}}
    given = dict[str, Any]()

    def build(key: str, **options: Any) -> dg.Definitions:
        given.update(options, key=key)
        return dg.Definitions()

    monkeypatch.setattr(job, "build_location_maintenance", build)
    resources_of({}, maintenance=maintenance)
    assert (given["key"], given["schedule"], given["timezone"]) == ("iceberg", "0 4 * * *", "Europe/Berlin")
    assert given["policy"] == MaintenancePolicy(older_than=dt.timedelta(days=30))
    with pytest.raises(ComponentTreeException) as raised:
        resources_of({}, maintenance={"policy": {"older_then": "30 days"}})
    assert re.search(r"`attributes.maintenance.policy` in line \d+ of", str(raised.value.__cause__))


@pytest.mark.parametrize("model", [SPARK_MODEL, IO_MANAGER_MODEL])
def test_every_field_has_a_description(model: Any) -> None:
    described, waiting = set[str](), [model.model_json_schema()]
    while waiting:
        node = waiting.pop()
        for name, field in node.get("properties", {}).items():
            assert field.get("description"), name
            described.add(name)
        waiting += list(node.get("$defs", {}).values())
    assert len(described) > 5


@pytest.mark.parametrize("component", [IcebergLakeComponent, IcebergTablesComponent, SparkSqlComponent])
def test_every_attribute_has_a_description(component: Any) -> None:
    assert all(field.description for field in component.get_model_cls().model_fields.values())


def test_tables_whose_keys_look_alike_are_all_maintained(monkeypatch: pytest.MonkeyPatch) -> None:
    @dg.asset(key=["a", "b"], io_manager_key="iceberg")
    def one() -> None: ...

    @dg.asset(key="a__b", io_manager_key="iceberg")
    def other() -> None: ...

    monkeypatch.setattr("dagster_iceberg_spark.features.maintenance.job.location_assets", lambda _: [one, other])
    job = build_location_maintenance(
        "iceberg", policy=MaintenancePolicy(), schedule="0 3 * * *", timezone="UTC", name="maintain"
    )
    resources = {"iceberg": IcebergPySparkIOManager(), "io_manager": dg.mem_io_manager}
    definitions = dg.Definitions.merge(dg.Definitions(assets=[one, other], resources=resources), job)
    with dg.DagsterInstance.ephemeral() as instance:
        result = definitions.resolve_job_def("maintain").execute_in_process(
            instance=instance, op_selection=["find_tables"]
        )
    assert result.output_for_node("find_tables") == {"a__b": "a__b", "a__b_": "a__b_"}
