"""Decisions, as pure functions of frozen values, without Spark and Dagster.

Metadata keys: `options/`, and `read/read_options.py` for inputs. A write: `write/draft.py`, with `partitions/`,
`schema/` and `write/overwrite_filter.py` (which rows and files a replace covers). A retry: `write/adoption.py`. A read:
`read/read_plan.py`. What follows a staged write: `publication/`.
"""
