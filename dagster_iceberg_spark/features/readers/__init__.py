"""Decides which features of tables the engines can read that an asset names. It changes no row and no plan."""
