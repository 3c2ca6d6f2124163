"""Decides what is published, promoted or undone together. Only catalog/publication.py moves `main`."""
