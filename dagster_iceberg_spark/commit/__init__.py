"""The commit protocol: look, adopt or plan, write, determine the outcome, publish. Whatever engine writes the rows.

What an engine can do is `engine.py`'s protocol. Nothing here imports an engine.
"""
