"""Assets that read the asset `t` in each way that a store has to serve."""

from typing import Any

import dagster as dg
import pandas as pd
import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame


def readers_into(read: dict[str, list[int]]) -> tuple[Any, ...]:
    """Assets that put the ids that they read, sorted, under the names of what they read with."""

    @dg.asset
    def spark_frame(t: DataFrame) -> None:
        read["spark"] = sorted(row.id for row in t.collect())

    @dg.asset
    def arrow_table(t: pa.Table) -> None:
        read["pyarrow"] = sorted(t.column("id").to_pylist())

    @dg.asset
    def pandas_frame(t: pd.DataFrame) -> None:
        read["pandas"] = sorted(t["id"])

    @dg.asset
    def polars_frame(t: pl.DataFrame) -> None:
        read["polars"] = sorted(t["id"])

    return spark_frame, arrow_table, pandas_frame, polars_frame
