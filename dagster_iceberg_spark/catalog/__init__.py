"""The catalog, without a JVM: its description, and the state of a table as one fresh look sees it.

`look.py` reads a table's state, `files.py` its manifests. `publication.py` decides which commits of metadata move a
branch, and `transaction.py` makes them. `damage.py` repairs what a lost commit has left. `failures.py` recognizes the
failures of pyiceberg and its clients. No row is written here.

Each function that asks the catalog raises `CatalogUnavailableError` if the catalog or the store does not respond.
"""
