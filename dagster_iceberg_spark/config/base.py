"""What every configuration has in common: no unknown fields, and no secret in what is shown of it."""

import difflib
import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import dagster as dg
from pydantic import BaseModel, ConfigDict

from dagster_iceberg_spark.catalog.description import HIDDEN, holds_secret
from dagster_iceberg_spark.errors import ConfigurationError

_USER_SECRET: Final = re.compile(r"(://[^:/?#]*):.*@")
_QUERY_SECRET: Final = re.compile(r"((?:secret|password|token|credential)\w*=)[^&]*", re.IGNORECASE)


_warned: set[str] = set()
_logger = logging.getLogger(__name__)


class Configuration(dg.Config):
    """Base of the package's configuration classes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def __init__(self, **data: Any) -> None:
        """Say once of each field that Dagster's UI shows what stands in it; EnvVar is shown by its name."""
        super().__init__(**data)
        for field in self._literal_secrets():
            if field not in _warned:
                _warned.add(field)
                _logger.warning("A secret stands in %s, where Dagster's UI shows it: use dagster.EnvVar.", field)

    def _literal_secrets(self) -> Iterator[str]:
        for name, value in self:
            items = value.items() if isinstance(value, Mapping) else ((None, value),)
            for key, item in items:
                if _is_literal_secret(key or name.replace("_", "-"), item):
                    yield f"`{type(self).__name__}.{name}`" + (f" ({key!r})" if key else "")

    def __repr__(self) -> str:
        """Return the configuration without what may be secret."""
        shown = (f"{name}={_shown(name, value)!r}" for name, value in self if name != "kind")
        return f"{type(self).__name__}({', '.join(shown)})"

    __str__ = __repr__


def scheme_of(uri: str) -> str:
    """Return the URI's scheme in small letters; of a path, nothing."""
    return urlsplit(uri).scheme.lower()


def without_password(uri: str) -> str:
    """Return the URI with what may be a password hidden, be it well-formed or not."""
    return _QUERY_SECRET.sub(rf"\1{HIDDEN}", _USER_SECRET.sub(rf"\1:{HIDDEN}@", uri))


def refuse_unknown_fields(model: type[BaseModel], given: Iterable[str]) -> None:
    """Refuse keywords that the model has no field for: Dagster's own classes ignore them.

    Raises:
        ConfigurationError: Names the nearest field.
    """
    for name in given:
        if name not in model.model_fields:
            nearest = difflib.get_close_matches(name, model.model_fields, n=1)
            raise ConfigurationError.refusing(
                "configure",
                model.__name__,
                expected=f"one of the fields {', '.join(model.model_fields)}",
                found=repr(name),
                hint=f"did you mean `{nearest[0]}`?" if nearest else None,
            )


def _shown(name: str, value: object) -> object:
    if isinstance(value, str):
        return HIDDEN if value and holds_secret(name.replace("_", "-")) else without_password(value)
    if isinstance(value, Mapping):
        return {key: _shown(key, item) for key, item in value.items()}
    return value


def _is_literal_secret(name: str, value: object) -> bool:
    """Say whether a secret stands here as it is: not as an EnvVar, nor as what Dagster has put in an EnvVar's place."""
    if not isinstance(value, str) or isinstance(value, dg.EnvVar) or not value or value in os.environ.values():
        return False
    return holds_secret(name) or without_password(value) != value
