"""Decides which values of columns a Dagster partition stands for, and the partition spec of a table."""
