"""Decides what a SQL file means and which tables are known. No engine is imported."""
