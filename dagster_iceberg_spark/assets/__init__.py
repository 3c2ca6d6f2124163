"""Between Dagster and tables: what a step asks for, the table of an asset, and what Dagster records of it.

Nothing here changes a table. What reads the metadata of an asset raises `MetadataKeyError` for a key or a value that is
invalid, and what reads a code location raises `ConfigurationError` if it has no IO manager of this package.
"""
