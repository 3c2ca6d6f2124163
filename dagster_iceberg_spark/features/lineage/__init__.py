"""Answers what rows were derived from, what was derived from them, and by which run. Tables stay as they are."""
