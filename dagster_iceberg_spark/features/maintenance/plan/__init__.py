"""Decides which actions are due, and which snapshots stay. No engine is imported."""
