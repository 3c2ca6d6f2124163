"""What a user configures: one file for each kind of catalog, store and login.

The description of each field is the text that Dagster's UI shows. `describe()` of a catalog returns what Spark and
pyiceberg need.
"""
