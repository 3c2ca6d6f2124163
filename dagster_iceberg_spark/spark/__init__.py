"""All effects on tables by an engine, through Spark's public API, for classic sessions and Spark Connect alike.

`write/commit.py` runs one materialization: it looks, resumes, plans, prepares (`tables.py`) and writes
(`write/writer.py`, `write/merge.py`). `write/outcome.py` finds out what became of a commit. `sql.py` (statements) and
`expressions.py` are the only writers of SQL text, `session/` opens sessions, `failures.py` recognizes the failures of
Spark. `versions/` has what differs between versions of Spark.
"""
