"""Defects of pyiceberg that this package works around: one file for each.

The docstring of a file names the defect, its upstream issue and the version that has it. The file's test fails once
pyiceberg is fixed; then the file can go. A function `install` changes pyiceberg for the whole process, because users
run a `DataScan` or a `Table` that they load themselves. Nothing is changed before a table is read.
"""
