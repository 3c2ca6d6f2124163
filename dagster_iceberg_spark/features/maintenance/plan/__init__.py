"""Decisions, as pure functions of frozen values."""
