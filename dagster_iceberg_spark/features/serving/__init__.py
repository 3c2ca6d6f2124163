"""Serves the tables of a catalog as of one point, by the Iceberg REST protocol. Nothing is written."""
