"""Reads without a JVM, through pyiceberg and Arrow; and assets that return Arrow data.

`reader.py` loads an input as its type, `scan.py` plans the scan, `expressions.py` turns predicates into pyiceberg's.
`outputs.py` accepts what an asset returns instead of a Spark DataFrame, and writes it to a file for Spark.
"""
