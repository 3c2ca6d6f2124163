"""Decides what a change of the code does to columns and rows. No engine is imported."""
