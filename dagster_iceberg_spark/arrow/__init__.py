"""Reads without a JVM, through pyiceberg and Arrow."""
