"""All effects on tables by an engine, through Spark's public API, for classic sessions and Spark Connect alike.

`commit.py` runs one materialization: it looks, resumes, plans, prepares (`tables.py`) and writes (`writer.py`,
`merge.py`). `outcome.py` finds out what became of a commit. `sql.py` (statements) and `expressions.py` are the only
writers of SQL text, `session.py` opens sessions, `failures.py` recognizes the failures of Spark. `versions/` has what
differs between versions of Spark, `local_server.py` starts the server that processes of a machine share.
"""
