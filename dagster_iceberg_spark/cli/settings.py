"""Builds a resource from the options of the command line, such as `--set authentication.kind=oauth2`."""

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from dagster_shared.check import CheckError
from pydantic import ValidationError

from dagster_iceberg_spark.config import configuration
from dagster_iceberg_spark.config.configuration import selected
from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.resource import IcebergSparkResource

_ENVIRONMENT: Final = "env:"
"""Prefix of the name of an environment variable, which keeps a secret out of the command line."""

_MAPPINGS: Final = ("properties", "headers", "configuration")
"""Fields that map names to values. The names may contain dots."""


def resource_of(
    *, catalog: Mapping[str, str], spark_config: Iterable[str], remote: str | None, jars: str
) -> IcebergSparkResource:
    """Return the resource that the options describe: fields of the catalog by dotted path, `key=value` for Spark."""
    try:
        return IcebergSparkResource(
            catalog=selected(_nested({path: _value(text) for path, text in catalog.items()})),
            spark_config=assignments(spark_config, flag="--spark-config"),
            remote=remote,
            jars=jars,
        )
    except (ValidationError, CheckError, TypeError) as error:
        raise ConfigurationError.refusing(
            "use", "the catalog of the options", expected="fields that fit together", found=_reasons(error)
        ) from None


@contextmanager
def literal_secrets_allowed() -> Iterator[None]:
    """Suppress the warning about literal secrets: no UI shows the options of a command line."""
    logger = logging.getLogger(configuration.__name__)
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def assignments(texts: Iterable[str], *, flag: str) -> dict[str, str]:
    """Return the values of texts such as `name=value` by name."""
    pairs = [text.partition("=") for text in texts]
    for name, sign, _ in pairs:
        if not sign or not name:
            raise ConfigurationError.refusing("use", flag, expected="name=value", found=repr(name))
    return {name: value for name, _, value in pairs}


def _nested(values: Mapping[str, str]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for path, value in values.items():
        *parents, name = _parts(path)
        inner = document
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[name] = value
    return document


def _parts(path: str) -> list[str]:
    """Return the fields of a dotted path. What follows a mapping is one name."""
    fields = path.split(".")
    for position, field in enumerate(fields[:-1], start=1):
        if field in _MAPPINGS:
            return [*fields[:position], ".".join(fields[position:])]
    return fields


def _value(text: str) -> str:
    if not text.startswith(_ENVIRONMENT):
        return text
    name = text.removeprefix(_ENVIRONMENT)
    if name not in os.environ:
        raise ConfigurationError.refusing("use", f"`{text}`", expected=f"an environment variable {name}", found="none")
    return os.environ[name]


def _reasons(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg'].rstrip('.')}" for item in error.errors())
    return "a `store` or an `authentication` without its `kind`"
