"""Definitions without code: components that Dagster builds from YAML and SQL files."""
