"""Decides what is new in tables that others write. Sensors read metadata alone, and start no session."""
