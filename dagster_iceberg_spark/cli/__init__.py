"""The command line: `dagster-iceberg-spark`."""
