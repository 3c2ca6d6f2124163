"""Outputs: from Dagster's OutputContext to a write request, and from the commit to metadata and the data version.

`write_request.py` resolves what an output asks for, `definition.py` what its definition wants of the table,
`earlier_attempts.py` which commits of this materialization may exist already. `metadata.py` reports the commit.
"""
