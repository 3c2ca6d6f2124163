"""Executes the plan of a write. Each write is one commit, whose outcome is determined before it is reported."""
