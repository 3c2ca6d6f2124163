"""Decides whether a catalog and a session can do what assets need. Everything that the check creates, it drops."""
