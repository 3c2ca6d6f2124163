"""Decides which asset checks a table has, and whether they pass. A check reads tables and never changes one."""
