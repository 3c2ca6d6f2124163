"""The description of a catalog, for Spark and for pyiceberg."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import quote, quote_plus, urlsplit

from pydantic import ValidationError

from dagster_iceberg_spark.errors import ConfigurationError

DEFAULT_REGION: Final = "us-east-1"
"""The region for a service other than Amazon's if none is configured. Such a service needs some region."""


@dataclass(frozen=True, slots=True)
class AwsKeys:
    """The keys that sign requests. Those that expire have a session token."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(repr=False, default=None)


@dataclass(frozen=True, slots=True)
class AwsIdentity:
    """The configured identity. boto3 finds what is None."""

    keys: AwsKeys | None = field(repr=False, default=None)
    profile: str | None = None
    role_arn: str | None = None
    external_id: str | None = None
    role_session_name: str | None = None

    @property
    def fixed_keys(self) -> AwsKeys | None:
        """The configured keys, if they sign directly, without a role."""
        return None if self.role_arn else self.keys


HDFS_SCHEMES: Final = ("hdfs", "viewfs")
HDFS_FILE_IO: Final = "dagster_iceberg_spark.catalog.clients.hadoop.HdfsFileIO"
"""The class of pyiceberg's file IO for these schemes."""
METASTORE_PORT: Final = 9083
"""The default port of a Hive Metastore."""
HIVE_CATALOG: Final = "dagster_iceberg_spark.catalog.clients.hive.HiveCatalog"
HADOOP_CATALOG: Final = "dagster_iceberg_spark.catalog.clients.hadoop.HadoopCatalog"
"""The classes of pyiceberg's catalogs for a metastore and for a directory."""
HIDDEN: Final = "********"
SENSITIVE_NAMES: Final = (
    "(?i)secret|password|token|credential|authorization|cookie|connection[.-]?string"
    "|(access|account|api|private|cryption)[.-]?key|[.-]sas[.-]"
)
"""Parts of the names of properties that hold secrets: Spark's default, and Iceberg's names."""

_MINIMUM_SECRET_LENGTH: Final = 3


@dataclass(frozen=True, slots=True)
class EngineProperties:
    """The properties of one part of a configuration, such as the store, for each engine.

    Spark's are those below `spark.sql.catalog.<name>`. Messages must not show the secrets and the `hidden` texts. The
    system properties of Spark's JVM include secrets. The packages are Maven coordinates.
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
        """The texts that messages must not show."""
        return tuple(dict.fromkeys((*self.spark_secrets.values(), *self.pyiceberg_secrets.values(), *self.hidden)))


def join(parts: Iterable[EngineProperties]) -> EngineProperties:
    """Return the properties of all parts."""
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


@dataclass(frozen=True)  # without slots, because `identity` is cached
class CatalogDescription:
    """The properties that both engines need to open one catalog.

    The name is that in Spark, and the key of the rows in a SQL catalog. Kind and endpoint are for messages, without
    secrets. Only `spark_properties` may reach a command line; the properties of pyiceberg and of the JVM include
    secrets. One of the hosts must accept a connection; a local catalog has none. The warehouse is None if the catalog's
    server decides where new tables go.
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
    has_transactions: bool = False
    """Whether a REST server commits several tables at one instant, as configured."""
    source: Literal["configuration", "session"] = "configuration"
    """A catalog that a Spark session describes needs no properties in Spark."""

    @cached_property
    def identity(self) -> tuple[object, ...]:
        """Two descriptions with equal identities describe the same catalog."""
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
        """Whether the catalog is on this machine."""
        is_on_disk = urlsplit(self.warehouse or "").scheme in ("", "file")
        return self.host is None and is_on_disk and not self.needs_region

    @property
    def is_gone(self) -> bool:
        """Whether the catalog was a SQLite file that has been deleted, for example with an ephemeral instance."""
        return str(self.pyiceberg_properties.get("uri")).startswith("sqlite:") and not Path(self.endpoint).exists()

    @property
    def needs_region(self) -> bool:
        """Whether requests go to AWS or to a service with the same protocol."""
        return self.aws is not None or self.spark_properties.get("io-impl", "").endswith(".S3FileIO")

    @property
    def is_signed(self) -> bool:
        """Whether requests to the catalog itself have AWS signatures."""
        return self.is_glue or self.spark_properties.get("rest.auth.type") == "sigv4"

    @property
    def is_glue(self) -> bool:
        """Whether the catalog is Glue, through its own API."""
        return self.spark_properties.get("type") == "glue"

    @property
    def is_rest(self) -> bool:
        """Whether the catalog speaks Iceberg's REST protocol."""
        return self.spark_properties.get("type") == "rest"

    @property
    def is_hive(self) -> bool:
        """Whether the catalog is a Hive Metastore."""
        return self.spark_properties.get("type") == "hive"

    @property
    def has_flat_namespaces(self) -> bool:
        """Whether a namespace has a single level, as a database of Hive does."""
        return self.is_hive or self.is_glue

    def __str__(self) -> str:
        """Return the catalog's kind and address."""
        return f"{self.kind} {self.name!r} at {self.endpoint}"

    def redact(self, text: str) -> str:
        """Return the text without the catalog's secrets."""
        spellings = {item for secret in self.secrets for item in spellings_of(secret)}
        return hide_secrets(text, (item for item in spellings if len(item) >= _MINIMUM_SECRET_LENGTH))


def spellings_of(secret: str) -> set[str]:
    """Return a secret as it is, and as it stands in URIs."""
    return {secret, quote(secret, safe=""), quote_plus(secret)}


def hide_secrets(text: str, spellings: Iterable[str]) -> str:
    """Return the text without the spellings of secrets, of which one may contain another."""
    for spelling in sorted(spellings, key=len, reverse=True):
        text = text.replace(spelling, HIDDEN)
    return text


def holds_secret(name: str) -> bool:
    """Return whether a property of this name holds a secret."""
    return re.search(SENSITIVE_NAMES, name) is not None


def split_secrets(properties: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the properties whose names are those of no secret, and the others."""
    secrets = {name: value for name, value in properties.items() if holds_secret(name)}
    return {name: value for name, value in properties.items() if name not in secrets}, secrets


_NAMED_PLACES: Final = 3
_MAXIMUM_LINE: Final = 400


def first_line(error: BaseException) -> str:
    """Return the first line of the error's message, or its class if it has no message, without parsed values."""
    if isinstance(error, ValidationError):
        details = error.errors(include_url=False, include_context=False, include_input=False)
        named = ("".join(f"{part}." for part in item["loc"])[:-1] + f": {item['msg']}" for item in details)
        return f"{error.title}: {'; '.join(item.removeprefix(': ') for item in list(named)[:_NAMED_PLACES])}"
    return next(iter(str(error).splitlines()), "")[:_MAXIMUM_LINE] or type(error).__name__
