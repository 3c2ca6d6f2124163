"""Runs the main job of the core once for each feature, as if the folder of the feature did not exist.

Run as a script, because it imports the package anew for each. It prints the features that were hidden.
"""

import importlib
import sys
import tempfile
from pathlib import Path
from typing import Any

import dagster as dg

import dagster_iceberg_spark

PACKAGE = Path(dagster_iceberg_spark.__file__).parent
DAYS = dg.DailyPartitionsDefinition("2024-03-01", end_date="2024-03-03")
METADATA = {"partition_expr": "day", "iceberg/audits": {"filled": {"not_null": ["v"]}}}


def without(feature: str, directory: Path) -> Path:
    """Return a directory with the package, but without a feature."""
    features = directory / PACKAGE.name / "features"
    features.mkdir(parents=True)
    for place, into in ((PACKAGE, features.parent), (PACKAGE / "features", features)):
        for path in place.iterdir():
            if path.name not in ("features", feature, "__pycache__"):
                (into / path.name).symlink_to(path)
    return directory


def run(directory: Path) -> list[int]:
    """Write two days and read them in a downstream asset. Return the values that it has seen."""
    core = importlib.import_module("dagster_iceberg_spark.assets.table_io_manager")
    resource = importlib.import_module("dagster_iceberg_spark.resource")
    catalogs = importlib.import_module("dagster_iceberg_spark.config.sql_catalog")
    importlib.import_module("dagster_iceberg_spark.cli.app")
    catalog = catalogs.SqlCatalog(uri=f"sqlite:///{directory}/catalog.db", warehouse=str(directory))
    spark = resource.IcebergSparkResource(catalog=catalog)
    seen: list[int] = []

    @dg.asset(partitions_def=DAYS, metadata=METADATA, io_manager_key="iceberg")
    def days(context: dg.AssetExecutionContext) -> Any:
        text = f"select date'{context.partition_key}' as day, {context.partition_key[-1]} as v"
        return spark.spark_session.sql(text)

    @dg.asset(deps=[])
    def total(days: Any) -> None:
        seen.extend(row.v for row in days.collect())

    resources = {"iceberg": core.TableIOManager(spark=spark)}
    with dg.instance_for_test() as instance:
        for key in DAYS.get_partition_keys():
            assert dg.materialize([days], partition_key=key, resources=resources, instance=instance).success
        assert dg.materialize([total, days], selection=[total], resources=resources, instance=instance).success
    return sorted(seen)


def main() -> None:
    """Hide each feature in turn."""
    names = sorted(path.name for path in (PACKAGE / "features").iterdir() if (path / "__init__.py").exists())
    for name in names:
        for module in [each for each in sys.modules if each.split(".")[0] == PACKAGE.name]:
            del sys.modules[module]
        with tempfile.TemporaryDirectory() as directory:
            sys.path.insert(0, str(without(name, Path(directory, "package"))))
            registry = importlib.import_module("dagster_iceberg_spark.registry")
            assert name not in [feature.name for feature in registry.features()]
            assert run(Path(directory)) == [1, 2]
            assert not any(f".features.{name}" in module for module in sys.modules)
            sys.path.pop(0)
        print(name, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
