"""Turns an OutputContext into a write request, and a commit into the metadata that Dagster shows."""
