"""The description of a catalog, and the current state of its tables without a JVM."""
