"""Decides which code locations and catalogs a command is about. The commands of features stand in their folders."""
