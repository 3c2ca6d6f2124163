"""Decides which snapshots an undo takes back, and what a branch has changed. No engine is imported."""
