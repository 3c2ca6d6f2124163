"""The check of a catalog and a session, step by step, before an asset needs them."""
