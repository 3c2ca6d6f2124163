"""Answers questions about rows: what they were made of, what was made of them, and by which run."""
