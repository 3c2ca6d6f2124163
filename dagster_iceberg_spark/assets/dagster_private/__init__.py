"""The calls of Dagster that are not part of its public API. Each has a test that fails when Dagster changes it."""
