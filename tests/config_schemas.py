"""Remembers the schemas of configurable resources, which Dagster derives from their classes anew for each resource.

The schema of the Spark resource, with all catalogs, stores and logins, takes 50 ms, and a run derives it six times:
half of the time of a small test.
"""

from collections.abc import Set as AbstractSet
from functools import cache
from typing import Any

from dagster._config.pythonic_config import config, resource

infer = config.infer_schema_from_config_class


@cache
def _schema(model: Any, description: str | None, omitted: frozenset[str]) -> Any:
    return infer(model, description, set(omitted))


def _schema_of(
    model_cls: Any, description: str | None = None, fields_to_omit: AbstractSet[str] | None = None, default: Any = None
) -> Any:
    if default is not None:
        return infer(model_cls, description, set(fields_to_omit or ()), default)
    return _schema(model_cls, description, frozenset(fields_to_omit or ()))


def remember() -> None:
    """Derive each schema once in the process."""
    for module in (config, resource):
        vars(module).update(infer_schema_from_config_class=_schema_of)
