"""Catalogs that pyiceberg lacks, or of which it lacks a part. Each is chosen by the configuration alone."""
