"""Decides how staged rows reach their target, and whether their audits pass. Nothing here moves a branch."""
