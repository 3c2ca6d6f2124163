"""Reads without a JVM, over pyiceberg and Arrow."""
