"""Flights out of New York in 2013 as Iceberg tables: an example project to copy from."""

import warnings

import dagster as dg

# Dagster calls backfill policies beta and partitioned checks a preview, and says so each time that this is loaded.
warnings.filterwarnings("ignore", category=dg.BetaWarning)
warnings.filterwarnings("ignore", category=dg.PreviewWarning)
