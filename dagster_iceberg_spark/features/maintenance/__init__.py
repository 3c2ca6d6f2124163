"""Decides what of a table is due and what others still need. Only Iceberg's own procedures delete files."""
