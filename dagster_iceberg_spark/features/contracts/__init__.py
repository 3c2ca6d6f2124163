"""Decides what a data contract demands of a table. The core checks it, by metadata keys that are derived from it."""
