"""A report with a plot that Dagster's UI shows. Its inputs are polars DataFrames: it starts no JVM."""

import base64
import io

import dagster as dg
import polars as pl
from matplotlib.figure import Figure


@dg.asset(
    description="Delays against wind by day, as a plot, and the airlines by delay. Look at its metadata.",
    group_name="delays",
    kinds={"polars", "matplotlib"},
    owners=["team:analytics"],
)
def delay_report(daily_delays: pl.DataFrame, monthly_carriers: pl.DataFrame) -> dg.MaterializeResult:  # type: ignore[type-arg]
    """Plot the available days and list the airlines."""
    days = (
        daily_delays.group_by("day")
        .agg(flights=pl.sum("flights"), late=pl.sum("late"), cancelled=pl.sum("cancelled"), wind=pl.max("max_wind"))
        .with_columns(late_percent=100 * pl.col("late") / pl.col("flights"))
        .sort("day")
    )
    worst = days.sort("late_percent", descending=True).head(5)
    airlines = (
        monthly_carriers.group_by("airline")
        .agg(flights=pl.sum("flights"), mean_delay=(pl.col("mean_delay") * pl.col("flights")).sum() / pl.sum("flights"))
        .sort("mean_delay", descending=True)
    )
    return dg.MaterializeResult(
        metadata={
            "plot": dg.MetadataValue.md(f"![Late flights and wind by day](data:image/png;base64,{plot(days)})"),
            "worst_days": markdown(worst.select("day", "flights", "late_percent", "cancelled", "wind")),
            "airlines": markdown(airlines),
            "days": len(days),
        }
    )


def plot(days: pl.DataFrame) -> str:
    """Draw late flights and wind by day.

    Args:
        days: A row for each day, with `day`, `late_percent` and `wind`.

    Returns:
        A PNG picture in base64.
    """
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    late = figure.subplots()
    late.bar(days["day"].to_list(), days["late_percent"].to_list(), color="#4f43dd", label="late flights")
    late.set_ylabel("more than 30 minutes late, %")
    late.tick_params(axis="x", rotation=30)
    wind = late.twinx()
    wind.plot(days["day"].to_list(), days["wind"].to_list(), color="#e8833a", marker=".", label="wind")
    wind.set_ylabel("fastest wind, mph")
    late.set_title("Flights out of New York: delays and wind")
    figure.legend(loc="outside lower center", ncols=2)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=100)
    return base64.b64encode(picture.getvalue()).decode()


def markdown(rows: pl.DataFrame) -> dg.MarkdownMetadataValue:
    """Return a DataFrame as a table that Dagster's UI shows.

    Args:
        rows: The rows, few of them.
    """
    with pl.Config(tbl_formatting="MARKDOWN", tbl_hide_dataframe_shape=True, tbl_hide_column_data_types=True) as config:
        config.set_tbl_rows(-1).set_float_precision(1).set_fmt_str_lengths(40)
        return dg.MetadataValue.md(str(rows))
