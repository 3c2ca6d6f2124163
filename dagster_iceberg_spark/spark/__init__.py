"""All effects on tables by an engine, through Spark's public API, for classic sessions and Spark Connect alike.

`write/engine.py` is Spark as an engine of the commit protocol: it prepares tables (`tables.py`) and writes DataFrames
(`write/writer.py`, `write/merge.py`). `sql.py` (statements) and `expressions.py` are the only writers of SQL text,
`session/` opens sessions, `failures.py` recognizes the failures of Spark. `versions/` has what differs between versions
of Spark.
"""
