"""What all configurations share: they refuse unknown fields, and show no secrets of fields and URIs."""

import difflib
import logging
import os
import re
from collections.abc import Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias, get_args
from urllib.parse import SplitResult, parse_qsl, urlsplit

import dagster as dg
from pydantic import BaseModel, BeforeValidator, ConfigDict, create_model

from dagster_iceberg_spark.catalog.description import HIDDEN, holds_secret
from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.plan.options.metadata_key import property_text

HIDES_INPUT: Final = ConfigDict(hide_input_in_errors=True)
"""Pydantic's errors show the input, which may be a secret in a wrong place."""

_PLACES_OF_SECRETS: Final = ("authentication", "credentials", "uri", "store")
_warned: set[str] = set()
_logger = logging.getLogger(__name__)


class Configuration(dg.Config):
    """Base class of the package's configuration."""

    model_config = ConfigDict(extra="forbid", frozen=True, **HIDES_INPUT)

    def __init__(self, **data: Any) -> None:
        """Warn of a literal secret, once for each field: Dagster's UI shows it, but only the name of an EnvVar."""
        require_fields(type(self), data)
        super().__init__(**data)
        for field in self._literal_secrets():
            if field not in _warned:
                _warned.add(field)
                _logger.warning("%s holds a literal secret, which Dagster's UI shows: use dagster.EnvVar.", field)

    def _literal_secrets(self) -> Iterator[str]:
        for name, value in self:
            items = value.items() if isinstance(value, Mapping) else ((None, value),)
            for key, item in items:
                if _is_literal_secret(key or name.replace("_", "-"), item):
                    yield f"`{type(self).__name__}.{name}`" + (f" ({key!r})" if key else "")

    def __repr__(self) -> str:
        """Return the configuration without secrets."""
        return without_secrets(self)

    __str__ = __repr__


def without_secrets(model: BaseModel) -> str:
    """Return the configuration as a user writes it, without secrets."""
    shown = (f"{name}={_shown(name, value)!r}" for name, value in model if name != "kind")
    return f"{type(model).__name__}({', '.join(shown)})"


def require_fields(model: type[BaseModel], data: Mapping[str, Any]) -> None:
    """Refuse unknown fields, and text for a field that takes one of several classes, without showing a value."""
    refused = partial(ConfigurationError.refusing, "configure", model.__name__)
    for name, value in data.items():
        if name not in model.model_fields:
            raise refused(
                expected=f"one of the fields {', '.join(model.model_fields)}",
                found=repr(name),
                hint=_place_of(name, model),
            )
        kinds = [kind.__name__ for kind in _configurations(model, name)]
        if len(kinds) > 1 and not isinstance(value, (Mapping, BaseModel)):
            raise refused(expected=f"`{name}` to be one of {', '.join(kinds)}", found=type(value).__name__)


def given(properties: Mapping[str, str | None]) -> dict[str, str]:
    """Return the properties that have a value."""
    return {key: value for key, value in properties.items() if value}


def selection(document: Any) -> Any:
    """Return a document with Dagster's form of each selected class: a mapping whose only key is the kind."""
    if not isinstance(document, dict):
        return document
    fields = {name: selection(value) for name, value in document.items() if name != "kind"}
    return {document["kind"]: fields} if "kind" in document else fields


def unset_variables(value: object, path: str = "") -> Iterator[str]:
    """Yield the environment variables that a configuration names but that are not set, each with its field."""
    if isinstance(value, dg.EnvVar):
        if value.env_var_name not in os.environ:
            yield f"{value.env_var_name} of `{path}`"
    elif isinstance(value, BaseModel | Mapping):
        for name, item in value.items() if isinstance(value, Mapping) else value:
            yield from unset_variables(item, f"{path}.{name}" if path else str(name))


def _place_of(name: str, model: type[BaseModel]) -> str | None:
    """Return a hint: where the value of an unknown field goes."""
    places = [
        f"`{field}={kind.__name__}({name}=...)`"
        for field in reversed(model.model_fields)
        for kind in _configurations(model, field)
        if name in kind.model_fields
    ] or [f"`{nearest}`" for nearest in difflib.get_close_matches(name, model.model_fields, n=1)]
    if places:
        return f"did you mean {' or '.join(places)}?"
    secrets = [f"`{field}`" for field in _PLACES_OF_SECRETS if field in model.model_fields]
    return f"set it in {secrets[0]}, with EnvVar." if secrets and holds_secret(name) else None


def _configurations(model: type[BaseModel], field: str) -> list[type[Configuration]]:
    annotation = model.model_fields[field].annotation
    kinds = get_args(annotation) or (annotation,)
    return [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Configuration)]


def _shown(name: str, value: object) -> object:
    if isinstance(value, str):
        return HIDDEN if value and holds_secret(name.replace("_", "-")) else without_password(value)
    if isinstance(value, Mapping):
        return {key: _shown(key, item) for key, item in value.items()}
    return value


def _is_literal_secret(name: str, value: object) -> bool:
    """Return whether a value is a secret, neither an EnvVar nor the value that Dagster has read from one."""
    if not isinstance(value, str) or isinstance(value, dg.EnvVar) or not value or value in os.environ.values():
        return False
    return holds_secret(name) or without_password(value) != value


_NUMBERS: Final = (bool, int, float)
"""Not their subclasses: an EnvVar may be one."""


def _texts(value: Any) -> Any:
    """Return a mapping with texts in place of numbers and truth values, which YAML has for `4` and `true`."""
    if not isinstance(value, Mapping):
        return value
    return {name: property_text(item) if type(item) in _NUMBERS else item for name, item in value.items()}


Properties: TypeAlias = Annotated[dict[str, str], BeforeValidator(_texts)]
"""Properties of Spark, Iceberg or a catalog. All of their values are texts."""


class ConfiguredOnce:
    """A resource that Dagster copies without deriving the schema of its class again.

    Dagster makes a resource anew at each of three steps of its initialization, for itself and for each resource that it
    is nested in. Each time, it derives the schema of everything that could have been configured: 40 ms for a choice of
    catalogs, stores and logins.
    """

    def _with_updated_values(self, values: Mapping[str, Any] | None) -> Any:
        """Return a copy with other values, as Dagster's method of this name does (1.13)."""
        resource: Any = self
        state, known = resource._state__internal__, resource._convert_to_config_dictionary()  # noqa: SLF001
        nested = {name: value for name, value in (values or {}).items() if name in state.nested_resources}
        changed = {
            name: value for name, value in (values or {}).items() if name not in nested and known.get(name) != value
        }
        fields = {name: getattr(self, name) for name in type(resource).model_fields}
        fields |= dict(_fields_of(resource.__class__, tuple(changed))(**changed)) if changed else {}
        copy = type(resource).model_construct(resource.model_fields_set, **fields | nested)
        copy._state__internal__ = state._replace(  # noqa: SLF001
            nested_resources={**state.nested_resources, **nested},
            nested_partial_resources={
                name: value for name, value in state.nested_partial_resources.items() if name not in nested
            },
        )
        return copy


class _Fields(dg.Config):
    model_config = HIDES_INPUT


@cache
def _fields_of(resource: Any, names: tuple[str, ...]) -> type[_Fields]:
    """Return a model of some fields of a resource, such as those that environment variables have changed."""
    found = {name: resource.model_fields[name] for name in names}
    fields: dict[str, Any] = {name: (field.annotation, field) for name, field in found.items()}
    return create_model(resource.__name__, __base__=_Fields, **fields)


_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_USER_SECRET: Final = re.compile(r"(://[^:@]*):.*@")
_NO_PORT: Final = re.compile(r"(://[^:/?#@\[\]]*):(?!\d{0,5}(?:[/?#,]|$))[^@]*$")
"""If the user forgets the host, the password stands in the place of the port."""
_MISSPELT_LOGIN: Final = re.compile(r"^((?:[A-Za-z][A-Za-z0-9+.-]*:?/{1,3})?).*:.*@")
"""A login in a text that lacks the `://` of a URI."""
_QUERY_SECRET: Final = re.compile(r"((?:secret|password|passwd|pwd|token|credential)\w*=)[^&]*", re.IGNORECASE)


def scheme_of(uri: str) -> str:
    """Return the URI's scheme in lower case; empty for a path."""
    match = _SCHEME.match(uri)
    return match[1].lower() if match else ""


def parts_of(uri: str) -> SplitResult | None:
    """Return the URI's parts; None if its host or port cannot be read, as with a password not percent-encoded."""
    try:
        parts = urlsplit(uri)
        has_port = parts.port is None or parts.port >= 0
    except ValueError:
        return None
    return parts if has_port else None


def holds_login(uri: str) -> bool:
    """Return whether a text is a URI with a password in it."""
    if "://" not in uri:
        return False
    parts = parts_of(uri)
    if parts is None:
        return "@" in uri
    return parts.password is not None or any(holds_secret(name) for name, _ in parse_qsl(parts.query))


def without_password(uri: str) -> str:
    """Return the URI, well-formed or not, with a placeholder for everything that may be a password."""
    hidden = _NO_PORT.sub(rf"\1:{HIDDEN}", _USER_SECRET.sub(rf"\1:{HIDDEN}@", uri))
    if "://" not in hidden:
        hidden = _MISSPELT_LOGIN.sub(rf"\1{HIDDEN}@", hidden)
    return _QUERY_SECRET.sub(rf"\1{HIDDEN}", hidden)


def host_of(uri: str) -> tuple[str, int]:
    """Return the host and port of an HTTP URI."""
    parts = parts_of(uri)
    if parts is None:
        found = repr(without_password(uri))
        raise ConfigurationError.refusing("reach", "the service", expected="a URI with host and port", found=found)
    return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


def as_uri(warehouse: str) -> str:
    """Return the warehouse as a URI: a path becomes an absolute `file://` URI."""
    return warehouse if scheme_of(warehouse) else f"file://{Path(warehouse).absolute()}"
