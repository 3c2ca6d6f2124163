"""A catalog described once, for Spark and for pyiceberg."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import quote, quote_plus, urlsplit

from dagster_iceberg_spark.catalog.aws import AwsIdentity
from dagster_iceberg_spark.errors import ConfigurationError

HDFS_SCHEMES: Final = ("hdfs", "viewfs")
HDFS_FILE_IO: Final = "dagster_iceberg_spark.catalog.hdfs.HdfsFileIO"
"""What opens these for pyiceberg."""
HIDDEN: Final = "********"
SENSITIVE_NAMES: Final = (
    "(?i)secret|password|token|credential|authorization|cookie|connection[.-]?string"
    "|(access|account|api|private|cryption)[.-]?key|[.-]sas[.-]"
)
"""What the names of properties that hold secrets contain: Spark's own default, and what Iceberg calls them."""

_MINIMUM_SECRET_LENGTH: Final = 3


@dataclass(frozen=True, slots=True)
class EngineProperties:
    """What one part of a configuration, such as the store, says to each engine.

    Args:
        spark: Properties below `spark.sql.catalog.<name>`, without secrets.
        spark_secrets: Properties likewise that hold secrets.
        pyiceberg: Properties for pyiceberg, without secrets; some are mappings themselves.
        pyiceberg_secrets: Properties likewise that hold secrets.
        hidden: Further texts that no message may show.
        system_properties: What Spark's JVM has to find among its system properties, secrets included.
        packages: Maven coordinates that Spark needs for this part.
        aws: Who signs requests to AWS, where the engines are to be told.
    """

    spark: Mapping[str, str] = field(default_factory=dict)
    spark_secrets: Mapping[str, str] = field(repr=False, default_factory=dict)
    pyiceberg: Mapping[str, Any] = field(repr=False, default_factory=dict)
    pyiceberg_secrets: Mapping[str, str] = field(repr=False, default_factory=dict)
    hidden: tuple[str, ...] = field(repr=False, default=())
    system_properties: Mapping[str, str] = field(repr=False, default_factory=dict)
    packages: tuple[str, ...] = ()
    aws: AwsIdentity | None = None

    @property
    def keys(self) -> frozenset[str]:
        """The names of all properties."""
        return frozenset().union(self.spark, self.spark_secrets, self.pyiceberg, self.pyiceberg_secrets)

    @property
    def secrets(self) -> tuple[str, ...]:
        """The texts that no message may show."""
        return tuple(dict.fromkeys((*self.spark_secrets.values(), *self.pyiceberg_secrets.values(), *self.hidden)))


def joined(parts: Iterable[EngineProperties]) -> EngineProperties:
    """Return what the parts say together.

    Raises:
        ConfigurationError: Two parts contradict each other, or are signed for by different identities.
    """
    known = tuple(parts)
    for first, second in combinations(known, 2):
        for key in first.spark.keys() & second.spark.keys():
            if first.spark[key] != second.spark[key]:
                raise ConfigurationError.refusing(
                    "use",
                    f"the property {key!r} of the catalog and its store",
                    expected="one value",
                    found=f"{first.spark[key]!r} and {second.spark[key]!r}",
                )
    return EngineProperties(
        spark={key: value for part in known for key, value in part.spark.items()},
        spark_secrets={key: value for part in known for key, value in part.spark_secrets.items()},
        pyiceberg={key: value for part in known for key, value in part.pyiceberg.items()},
        pyiceberg_secrets={key: value for part in known for key, value in part.pyiceberg_secrets.items()},
        hidden=tuple(text for part in known for text in part.hidden),
        system_properties={key: value for part in known for key, value in part.system_properties.items()},
        packages=tuple(dict.fromkeys(package for part in known for package in part.packages)),
        aws=_one_of([part.aws for part in known if part.aws is not None]),
    )


def _one_of(identities: Sequence[AwsIdentity]) -> AwsIdentity | None:
    if len(set(identities)) > 1:
        raise ConfigurationError.refusing(
            "use",
            "the AWS credentials",
            expected="one identity that signs for the catalog and for its store",
            found="two",
            hint="leave the store's `credentials` out: the catalog's sign for both.",
        )
    return next(iter(identities), None)


@dataclass(frozen=True)  # without slots: `identity` is kept
class CatalogDescription:
    """What both engines need to open one catalog.

    Args:
        name: The catalog's name in Spark, and the key of its rows in a SQL catalog.
        kind: What it is, for messages: "SQL catalog", "REST catalog".
        endpoint: Where it is, without secrets, for messages.
        spark_properties: Properties below `spark.sql.catalog.<name>`, without secrets.
        spark_secrets: Properties likewise that hold secrets; they never reach a command line.
        pyiceberg_properties: Properties for pyiceberg's `load_catalog`, secrets included.
        packages: Maven coordinates that Spark needs for this catalog, besides Iceberg's runtime.
        host: Host and port that must accept a connection; None for a local catalog.
        other_hosts: Further ones that answer for the same catalog: one of all is enough.
        warehouse: URI under which new tables are placed; None where the catalog's server decides.
        secrets: Texts that no message may show.
        system_properties: What Spark's JVM has to find among its system properties, secrets included.
        aws: Who signs requests to AWS, where the engines are to be told.
        source: Who knows the catalog: the resource's configuration, or a Spark session, which is not told anything.
    """

    name: str
    kind: str
    endpoint: str
    spark_properties: Mapping[str, str]
    spark_secrets: Mapping[str, str] = field(repr=False, default_factory=dict)
    pyiceberg_properties: Mapping[str, Any] = field(repr=False, default_factory=dict)
    packages: tuple[str, ...] = ()
    host: tuple[str, int] | None = None
    other_hosts: tuple[tuple[str, int], ...] = ()
    warehouse: str | None = None
    secrets: tuple[str, ...] = field(repr=False, default=())
    system_properties: Mapping[str, str] = field(repr=False, default_factory=dict)
    aws: AwsIdentity | None = None
    source: Literal["configuration", "session"] = "configuration"

    @cached_property
    def identity(self) -> tuple[object, ...]:
        """What makes two descriptions the same one."""
        return (
            self.name,
            tuple(sorted(self.spark_properties.items())),
            tuple(sorted(self.spark_secrets.items())),
            json.dumps(self.pyiceberg_properties, sort_keys=True),
            tuple(sorted(self.system_properties.items())),
            self.aws,
            self.source,
        )

    @property
    def is_local(self) -> bool:
        """Whether nothing but this machine answers."""
        is_on_disk = urlsplit(self.warehouse or "").scheme in ("", "file")
        return self.host is None and is_on_disk and not self.needs_region

    @property
    def is_gone(self) -> bool:
        """Whether it was a SQLite file that somebody has deleted, as an instance of one run deletes its own."""
        return str(self.pyiceberg_properties.get("uri")).startswith("sqlite:") and not Path(self.endpoint).exists()

    @property
    def needs_region(self) -> bool:
        """Whether AWS, or what speaks as it does, is asked."""
        return self.aws is not None or self.spark_properties.get("io-impl", "").endswith(".S3FileIO")

    @property
    def is_signed(self) -> bool:
        """Whether requests to the catalog itself are signed as AWS's are."""
        return self.is_glue or self.spark_properties.get("rest.auth.type") == "sigv4"

    @property
    def is_glue(self) -> bool:
        """Whether the catalog is Glue's, by its own API."""
        return self.spark_properties.get("type") == "glue"

    @property
    def is_hive(self) -> bool:
        """Whether the catalog is a Hive Metastore."""
        return self.spark_properties.get("type") == "hive"

    @property
    def has_flat_namespaces(self) -> bool:
        """Whether a namespace has one level, as a database of Hive's has."""
        return self.is_hive or self.is_glue

    def __str__(self) -> str:
        """Return the catalog's kind and place."""
        return f"{self.kind} {self.name!r} at {self.endpoint}"

    def redact(self, text: str) -> str:
        """Return the text without the catalog's secrets."""
        spellings = {spell(secret) for secret in self.secrets for spell in (str, _quoted, quote_plus)}
        for secret in sorted(spellings, key=len, reverse=True):
            if len(secret) >= _MINIMUM_SECRET_LENGTH:
                text = text.replace(secret, HIDDEN)
        return text


def holds_secret(name: str) -> bool:
    """Say whether a property of that name holds a secret."""
    return re.search(SENSITIVE_NAMES, name) is not None


def _quoted(secret: str) -> str:
    return quote(secret, safe="")
