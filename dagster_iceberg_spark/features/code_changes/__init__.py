"""Answers what a change of the code does to tables: by its queries, and by running it again on the inputs of old runs.

Tables stay as they are; replays write to branches of their own.
"""
