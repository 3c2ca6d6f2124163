"""Checks that a catalog and a session work, before an asset uses them."""
