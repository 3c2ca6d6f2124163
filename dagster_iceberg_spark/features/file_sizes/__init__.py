"""Warns of writes that leave many small files. The summary of the snapshot has their sizes: no file is read."""
