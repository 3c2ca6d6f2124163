"""Locations of tables and files, as paths or URIs."""

from urllib.parse import urlsplit


def directory_place(location: str) -> str:
    """Return a directory without its scheme, which may be written in several ways, with a slash at its end.

    One directory contains another if its place is the beginning of the other's.
    """
    parts = urlsplit(location)
    path = f"{parts.netloc}{parts.path}" if parts.scheme else location
    return f"{path.rstrip('/')}/"
