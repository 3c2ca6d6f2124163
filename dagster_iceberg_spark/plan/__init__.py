"""Decisions, as pure functions of frozen values, without Spark and Dagster.

Metadata keys: `options.py` (outputs), `read_options.py` (inputs). A write: `write.py`, with `partition_spec.py`,
`schema_evolution.py`, `overwrite_filter.py` (which rows and files a replace covers), `merging.py`, `scd2.py`,
`table_owner.py`. A retry: `adoption.py`. A read: `read.py`, `row_filter.py`, `incremental.py`.
"""
