"""Turns plans of reads into DataFrames, and what assets return into DataFrames. No table is changed."""
