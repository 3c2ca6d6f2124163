"""Turns an InputContext into a read request, loads the rows as the annotated type, and tracks incremental reads."""
