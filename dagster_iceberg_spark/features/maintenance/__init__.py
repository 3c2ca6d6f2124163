"""Maintenance of tables: their health, what others still need, and the jobs that keep them small."""
