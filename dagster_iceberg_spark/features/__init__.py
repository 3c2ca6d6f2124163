"""Capabilities around the core, one folder for each.

The core does not import them: `registry.py` lists them, and `assets/observers.py` calls them.
"""
