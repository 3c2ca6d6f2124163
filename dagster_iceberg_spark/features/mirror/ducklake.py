"""Where a DuckLake is."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias

from dagster_iceberg_spark.catalog.description import redacted

DatabaseKind: TypeAlias = Literal["sqlite", "duckdb", "postgresql"]
FORMAT_VERSION: Final = "1.0"
"""The version of the DuckLake specification that the package reads and writes."""


@dataclass(frozen=True, slots=True)
class DuckLake:
    """A DuckLake: the database of its metadata, and the directory of its own files.

    Args:
        kind: The kind of the database.
        address: The path of the file, or the URI of the PostgreSQL database, which may hold a password.
        shown: The address without a password, for messages.
        data_path: The directory or the URI of its own files, or None if the DuckLake must exist.
        is_encrypted: Whether its own files are encrypted, if it does not exist yet.
        secrets: Texts that no message shows, in all of their spellings.
    """

    kind: DatabaseKind
    address: str = field(repr=False)
    shown: str
    data_path: str | None
    is_encrypted: bool = False
    secrets: tuple[str, ...] = field(repr=False, default=())

    def __str__(self) -> str:
        return f"DuckLake at {self.shown}"

    @property
    def may_exist(self) -> bool:
        """Whether its database exists. That of PostgreSQL must."""
        return self.kind == "postgresql" or Path(self.address).exists()

    def redact(self, text: str) -> str:
        """Return the text without the secrets of the DuckLake."""
        return redacted(text, self.secrets)
