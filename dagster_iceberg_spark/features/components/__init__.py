"""Decides which assets YAML and SQL files define.

Only Dagster builds them: no table is read while a code location loads.
"""
