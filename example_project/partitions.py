"""How the tables are partitioned."""

import dagster as dg
from pyspark.sql import Column
from pyspark.sql import functions as sf

TIMEZONE = "America/New_York"
AIRPORTS = ["EWR", "JFK", "LGA"]

# A New York day has 24 hours, but 23 when the clocks go forward and 25 when they go back.
new_york_days = dg.DailyPartitionsDefinition("2013-01-01", end_date="2014-01-01", timezone=TIMEZONE)
new_york_months = dg.MonthlyPartitionsDefinition("2013-01-01", end_date="2014-01-01", timezone=TIMEZONE)
airport_days = dg.MultiPartitionsDefinition({"airport": dg.StaticPartitionsDefinition(AIRPORTS), "day": new_york_days})


def new_york_day(instant: str) -> Column:
    """Return the New York day of a column of instants.

    Args:
        instant: Name of a timestamp column. The session's time zone is UTC (resources.py), so no hour is ambiguous.
    """
    return sf.to_date(sf.convert_timezone(None, sf.lit(TIMEZONE), sf.col(instant)))
