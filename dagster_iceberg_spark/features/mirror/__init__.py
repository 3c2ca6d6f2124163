"""Decides what a DuckLake must change to show an Iceberg table.

The Iceberg table stays the truth, and is never changed.
"""
