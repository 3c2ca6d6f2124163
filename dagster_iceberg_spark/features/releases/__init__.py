"""Releases: assets that publish together what their run has staged in several tables."""
