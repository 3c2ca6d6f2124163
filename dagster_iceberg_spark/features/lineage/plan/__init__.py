"""Decides what columns and snapshots were derived from. No engine is imported."""
