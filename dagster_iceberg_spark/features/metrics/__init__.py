"""Decides what is counted and measured of writes and reads, as OpenTelemetry instruments.

A write never waits for an export.
"""
