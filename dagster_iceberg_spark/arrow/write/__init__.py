"""Writes without a JVM: Arrow as an engine of the commit protocol. What it cannot do, it refuses before any change."""
