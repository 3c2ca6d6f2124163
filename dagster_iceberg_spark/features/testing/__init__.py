"""Decides how users test their own assets: lakes for a test, faults, and tests of SQL models. It changes no table."""

from typing import Final

SUFFIXES: Final = (".test.yml", ".test.yaml")
"""Of the files with the tests of SQL models."""
