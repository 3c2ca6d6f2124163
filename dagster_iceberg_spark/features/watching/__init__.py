"""Watches tables that other engines write."""
