"""Capabilities around the core, one folder for each. The core does not know them."""
