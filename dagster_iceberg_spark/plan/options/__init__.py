"""Parses what users write into metadata. An unknown key or value is refused, with the nearest known one."""
