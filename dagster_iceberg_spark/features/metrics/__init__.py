"""Metrics of writes and reads, as OpenTelemetry instruments."""
