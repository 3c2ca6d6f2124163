"""Decides what a write changes: which rows it owns, which files it replaces, and whether an earlier attempt made it."""
