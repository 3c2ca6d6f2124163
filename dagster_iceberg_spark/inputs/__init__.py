"""Inputs: from Dagster's InputContext to a read request, and from there to rows of the annotated type.

`read_request.py` resolves what an input asks for, `loading.py` loads it. `changes.py` finds what is new in a table,
`read_position.py` how far the asset has read it. `read_log.py` records what was read.
"""
