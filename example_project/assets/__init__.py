"""The example's assets, by subject."""
