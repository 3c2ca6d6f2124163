"""The package's exports, and what importing it must not load."""

import subprocess
import sys

import pytest

import dagster_iceberg_spark
from dagster_iceberg_spark import errors

PROBE = """
import sys
def refuse_java(event, args):
    if event == "subprocess.Popen" and any(word in str(args[:2]) for word in ("java", "spark")):
        sys.exit(f"started {args[:2]}")
sys.addaudithook(refuse_java)
import dagster_iceberg_spark as package
import dagster as dg
@dg.asset(io_manager_key="iceberg", metadata=package.metadata_for_table(partition_by=["day(at)"]))
def events(): ...
spark = package.IcebergSparkResource(catalog=package.SqlCatalog(uri="sqlite:///c.db", warehouse="lake"))
manager = package.IcebergPySparkIOManager(spark=spark)
dg.Definitions(assets=[events], resources={"iceberg": manager}, asset_checks=package.build_table_checks([events]))
print(sorted({name.split(".")[0] for name in sys.modules} & set(sys.argv[1:])))
"""
NEEDED_LATER = (
    *("pyspark", "py4j", "pandas", "polars", "duckdb", "pyarrow"),
    *("pyiceberg", "sqlalchemy", "boto3", "requests", "sqlglot", "tenacity"),
)


def test_the_command_line_shows_its_help_without_dagster() -> None:
    code = "import sys, dagster_iceberg_spark.cli.app; print('dagster' in sys.modules)"
    probe = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert probe.stdout.strip() == "False", probe.stderr


def test_the_public_names_are_sorted_and_importable() -> None:
    names = dagster_iceberg_spark.__all__
    assert names == sorted(set(names))
    assert all(getattr(dagster_iceberg_spark, name).__module__.startswith("dagster_iceberg_spark") for name in names)


def test_every_error_is_public() -> None:
    public = {name for name in vars(errors) if name.endswith("Error")}
    assert public <= set(dagster_iceberg_spark.__all__)


@pytest.mark.parametrize(
    "name", ["IcebergPySparkIOManager", "IcebergSparkResource", "SqlCatalog", "metadata_for_table"]
)
def test_the_main_classes_are_documented_with_an_example(name: str) -> None:
    assert ">>> " in (getattr(dagster_iceberg_spark, name).__doc__ or "")


def test_loading_definitions_imports_only_what_it_needs_and_starts_no_java() -> None:
    probe = subprocess.run(
        [sys.executable, "-c", PROBE, *NEEDED_LATER], capture_output=True, text=True, timeout=60, check=False
    )
    assert (probe.returncode, probe.stdout.strip()) == (0, "[]"), probe.stderr
