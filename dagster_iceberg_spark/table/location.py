"""Locations of tables and files, as paths or URIs."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

_PATHS: Final = ("write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path")
"""The properties with directories of a table besides its location (Iceberg, "Table properties"; the last are old)."""


def places_of(location: str, properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return the directories that a table may write to: its location, and those that its properties name."""
    return (location, *(properties[key] for key in _PATHS if properties.get(key)))


def directory_place(location: str) -> str:
    """Return a directory without its scheme, which may be written in several ways, with a slash at its end.

    One directory contains another if its place is the beginning of the other's.
    """
    parts = urlsplit(location)
    path = f"{parts.netloc}{parts.path}" if parts.scheme else location
    return f"{path.rstrip('/')}/"
