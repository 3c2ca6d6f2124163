"""Decides which snapshot, rows and columns an input reads, and what is new since the last read."""
