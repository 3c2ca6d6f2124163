"""Copies rows of an Iceberg table to Parquet files of a DuckLake. DuckDB reads the table, and writes the files."""

import base64
import secrets
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.types import DoubleType, FloatType

from dagster_iceberg_spark.errors import (
    CatalogUnavailableError,
    CommitConflictError,
    ConfigurationError,
    IcebergSparkError,
    InvestigationError,
)
from dagster_iceberg_spark.features.mirror.creation import LakeOptions, duckdb_with
from dagster_iceberg_spark.features.mirror.ducklake_columns import field_ids, statistics_paths
from dagster_iceberg_spark.features.mirror.ducklake_commit import directory_of
from dagster_iceberg_spark.features.mirror.options import Codec, Mirror
from dagster_iceberg_spark.features.mirror.plan import (
    ColumnStatistics,
    FileChange,
    MirrorFile,
    plan_copy,
    quoted_name,
    scan_query,
    text_literal,
)
from dagster_iceberg_spark.features.mirror.source import Source
from dagster_iceberg_spark.features.mirror.table_mirror import DuckLake

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_CODECS: Final[Mapping[Codec, str]] = {"snappy": "snappy", "zstd": "zstd", "gzip": "gzip", "none": "uncompressed"}
_FILE_SIZE_BYTES: Final = 512 * 1024 * 1024
_KEY_BYTES: Final = 16
"""The length of DuckLake's own keys."""
_LOCAL_SCHEMES: Final = ("", "file")
_FILENAME: Final = "filename"
"""DuckDB's name for the path of the file that has a row."""
_PARTITION_PREFIX: Final = "p-"


@dataclass(frozen=True, slots=True)
class Copier:
    """Copies the rows of one Iceberg table."""

    lake: DuckLake
    options: LakeOptions
    source: Source
    mirror: Mirror

    @contextmanager
    def change(
        self, gone: Sequence[DataFile] | None, new: Sequence[DataFile], known_paths: Iterable[str]
    ) -> Iterator[FileChange]:
        """Copy what has changed, and yield the change of the DuckLake's files. If the block fails, delete the copies.

        Args:
            gone: The files that only the mirrored snapshot has, or None if they are unknown.
            new: The files that only the current snapshot has.
            known_paths: The files that the DuckLake table has.
        """
        plan = plan_copy(
            None if gone is None else [self.source.source_file(file) for file in gone],
            [self.source.source_file(file) for file in new],
        )
        rows = {file.file_path: file.record_count for file in new}
        groups = {
            partition: _Group(paths, sum(rows[path] for path in paths)) for partition, paths in plan.appended.items()
        }
        if plan.rewritten is None or plan.rewritten:
            groups |= self._whole_partitions(plan.rewritten, new if gone is None else self.source.live_files())
        ended = frozenset(
            path for path in known_paths if plan.rewritten is None or _partition_in(path) in plan.rewritten
        )
        copies: list[MirrorFile] = []
        try:
            if groups:
                self._copy_all(groups, copies)
        except BaseException:
            self._delete(copies)
            raise
        try:
            yield FileChange(ended=ended, added=tuple(copies))
        except CommitConflictError:
            self._delete(copies)
            raise
        except IcebergSparkError as error:
            names = ", ".join(file.path for file in copies)
            raise type(error)(f"{error} Unless the DuckLake shows them, these files are unused: {names}.") from error

    def _delete(self, copies: Iterable[MirrorFile]) -> None:
        for file in copies:
            with suppress(OSError):
                self.source.table.io.delete(file.path)

    def _whole_partitions(self, partitions: frozenset[str] | None, live: Iterable[DataFile]) -> "dict[str, _Group]":
        """Return all live files of these partitions, or of the whole table."""
        groups: dict[str, _Group] = {}
        for file in live:
            partition = self.source.partition_of(file)
            if partitions is None or partition in partitions:
                groups[partition] = groups.get(partition, _Group()).with_file(file)
        return {partition: group for partition, group in groups.items() if group.paths}

    def _copy_all(self, groups: "Mapping[str, _Group]", copies: list[MirrorFile]) -> None:
        """Copy groups of files. Copies are added to the list as they are written."""
        if any(field.name.lower() == _FILENAME for field in self.source.schema.fields):
            raise ConfigurationError.refusing(
                "copy",
                str(self.source.identifier),
                expected=f"no column {_FILENAME!r}, which is DuckDB's name for the path of a row's file",
                found="one",
                hint='rename the column, or use the mode "view" or "register".',
            )
        with duckdb_with("avro", "iceberg", "httpfs") as connection:
            for secret in self._secrets():
                connection.execute(secret)
            for partition, group in groups.items():
                written = self._copy(connection, f"{_PARTITION_PREFIX}{partition}", group)
                copies += [file for file in written if file.rows]
                found = sum(file.rows for file in written)
                if not group.rows - group.deleted <= found <= group.rows:
                    raise InvestigationError.refusing(
                        "copy",
                        str(self.source.identifier),
                        expected=f"{group.rows - group.deleted} to {group.rows} rows in the files of a partition",
                        found=f"{found} by DuckDB",
                        hint='use the mode "view" or "register".',
                    )

    def _secrets(self) -> list[str]:
        """Return the statements with which DuckDB gets the credentials of the store."""
        places = (self.source.table.location(), self.options.data_path)
        schemes = {urlsplit(place).scheme for place in places} - set(_LOCAL_SCHEMES)
        if schemes - set(S3_SCHEMES):
            raise ConfigurationError.refusing(
                "copy",
                str(self.source.identifier),
                expected="files on this machine or on S3",
                found=f"a URI of {', '.join(sorted(schemes))}",
                hint='use the mode "view" or "register", for which this package reads no data.',
            )
        return [s3_secret(self.source.table.io.properties)] if schemes else []

    def _copy(self, connection: "DuckDBPyConnection", directory: str, group: "_Group") -> list[MirrorFile]:
        import duckdb

        target = self._directory(directory)
        key = base64.b64encode(secrets.token_bytes(_KEY_BYTES)).decode() if self.options.is_encrypted else None
        paths = ", ".join(map(text_literal, group.paths))
        columns = ", ".join(quoted_name(field.name) for field in self.source.schema.fields)
        options = {
            "FORMAT": "parquet",
            "COMPRESSION": _CODECS[self.mirror.compression],
            "FILE_SIZE_BYTES": str(_FILE_SIZE_BYTES),
            "FILENAME_PATTERN": text_literal(f"{uuid.uuid4()}_{{i}}"),
            "OVERWRITE_OR_IGNORE": "true",
            "RETURN_STATS": "true",
            "FIELD_IDS": field_ids(self.source.schema.fields),
            **({} if key is None else {"ENCRYPTION_CONFIG": f"{{footer_key_value: from_base64('{key}')}}"}),
        }
        scan = scan_query(self.source.table.metadata_location, columns)
        statement = (
            f"COPY ({scan} WHERE {_FILENAME} IN ({paths})) TO {text_literal(target)} "
            f"({', '.join(f'{name} {value}' for name, value in options.items())})"
        )
        try:
            written = connection.execute(statement).fetchall()
        except duckdb.Error as error:
            found = " ".join(str(error).replace(key or "\0", "").split())
            raise CatalogUnavailableError.refusing(
                "copy",
                str(self.source.identifier),
                expected=f"DuckDB to read its files and to write files in {target}",
                found=self.lake.redact(self.source.catalog.redact(found)),
            ) from None
        return [self._describe(row, key) for row in written]

    def _directory(self, name: str) -> str:
        """Return where the copies of a partition go."""
        (schema,), table = self.mirror.table.namespace, self.mirror.table.name
        target = f"{self.options.data_path.rstrip('/')}/{directory_of(schema)}{directory_of(table)}{name}"
        if urlsplit(target).scheme in _LOCAL_SCHEMES:
            Path(target.removeprefix("file://")).mkdir(parents=True, exist_ok=True)
        return target

    def _describe(self, written: Sequence[Any], key: str | None) -> MirrorFile:
        """Return a file that DuckDB has written, by a row of its statistics."""
        path, rows, size, footer, by_column, *_ = written
        statistics = [
            ColumnStatistics(
                column_id=field.field_id,
                size_bytes=int(found["column_size_bytes"]),
                values=int(found["num_values"]),
                nulls=int(found["null_count"]),
                lower=found.get("min"),
                upper=found.get("max"),
                has_nan=found.get("has_nan") != "false"
                if isinstance(field.field_type, DoubleType | FloatType)
                else None,
            )
            for name, field in statistics_paths(self.source.schema.fields)
            if (found := by_column.get(name)) is not None
        ]
        return MirrorFile(
            path=path,
            rows=int(rows),
            size_bytes=int(size),
            statistics=tuple(statistics),
            footer_bytes=int(footer),
            encryption_key=key,
        )


@dataclass(frozen=True, slots=True)
class _Group:
    """Data files that are copied together: their paths, their rows, and how many rows delete files name at most."""

    paths: tuple[str, ...] = ()
    rows: int = 0
    deleted: int = 0

    def with_file(self, file: DataFile) -> "_Group":
        """Return the group with a file. An equality delete may name any row."""
        if file.content == DataFileContent.DATA:
            return _Group((*self.paths, file.file_path), self.rows + file.record_count, self.deleted)
        is_bounded = file.content == DataFileContent.POSITION_DELETES
        return _Group(self.paths, self.rows, self.deleted + (file.record_count if is_bounded else _ANY_NUMBER))


_ANY_NUMBER: Final = 2**62


def _partition_in(path: str) -> str:
    """Return the text that identifies the partition of a copy, by its directory."""
    return path.rsplit("/", 2)[-2].removeprefix(_PARTITION_PREFIX)


S3_SCHEMES: Final = ("s3", "s3a", "s3n")


def s3_secret(properties: Mapping[str, Any]) -> str:
    """Return the statement that gives DuckDB the credentials of S3.

    Args:
        properties: The properties of pyiceberg's file IO. Without keys among them, DuckDB uses none.
    """
    given = {
        "KEY_ID": properties.get("s3.access-key-id"),
        "SECRET": properties.get("s3.secret-access-key"),
        "SESSION_TOKEN": properties.get("s3.session-token"),
        "REGION": properties.get("s3.region") or properties.get("client.region"),
    }
    endpoint = properties.get("s3.endpoint")
    if endpoint:
        parts = urlsplit(str(endpoint))
        is_virtual = str(properties.get("s3.force-virtual-addressing", "")).lower() == "true"
        given["ENDPOINT"] = parts.netloc
        given["URL_STYLE"] = "vhost" if is_virtual else "path"
        given["USE_SSL"] = "false" if parts.scheme == "http" else "true"
    settings = ", ".join(f"{name} {text_literal(str(value))}" for name, value in given.items() if value)
    return f"CREATE SECRET (TYPE s3{', ' if settings else ''}{settings})"
