"""The catalog, without a JVM: its description, and the state of a table as one fresh look sees it.

`look.py` reads a table's state, `files.py` its manifests. `aws_credentials.py` finds and renews credentials of AWS.
`damage.py` repairs what a lost commit has left in a table's history. `leftovers.py` lists what a failed write has left
in its directory. `failures.py` recognizes the failures of pyiceberg and its clients.
"""
