"""Between Dagster and tables: what a step asks for, the table of an asset, and what Dagster records of it.

Nothing here changes a table.
"""
