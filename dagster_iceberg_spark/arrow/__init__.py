"""Reads and writes without a JVM, through pyiceberg and Arrow.

`reader.py` loads an input as its type, `scan.py` plans the scan. `outputs.py` accepts what an asset returns instead of
a Spark DataFrame, and writes it to a file for Spark. `write/` is Arrow as an engine of the commit protocol.
"""
