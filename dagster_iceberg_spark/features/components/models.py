"""The configuration of the package as models of YAML, which `dg docs` shows and `dg check yaml` checks."""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, Final, TypeVar, get_args, get_origin

import dagster as dg
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.fields import FieldInfo

from dagster_iceberg_spark.config.configuration import Configuration
from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.table.identifier import nearest_of

_ValueT = TypeVar("_ValueT")
_VARIABLE: Final = re.compile(r"\{\{\s*env\.(\w+)\s*\}\}")
_KIND: Final = "kind"


class ConfigurationModel(dg.Model):
    """The fields of a class of configuration, or of a choice of several.

    It accepts everything, because Dagster reports what is wrong in a nested model for the model as a whole, with all
    values. `given_values` reports the line and the key instead.
    """

    model_config = ConfigDict(extra="allow")
    kinds: ClassVar[tuple[str, ...]] = ()
    """The names of the classes of a choice."""


@cache
def model_of(*classes: type[BaseModel], leave_out: tuple[str, ...] = ()) -> type[ConfigurationModel]:
    """Return a model with the fields of a class of configuration, or of several, and their descriptions."""
    fields: dict[str, dict[type[BaseModel], FieldInfo]] = {}
    for kind in classes:
        for name, field in kind.model_fields.items():
            if name not in leave_out and (name != _KIND or len(classes) > 1):
                fields.setdefault(name, {})[kind] = field
    given: dict[str, Any] = {
        name: (_type_of(of_classes.values()), Field(None, description=_description(of_classes, len(classes))))
        for name, of_classes in fields.items()
    }
    model = create_model("".join(kind.__name__ for kind in classes), __base__=ConfigurationModel, **given)
    if len(classes) > 1:
        model.kinds = tuple(kind.model_fields[_KIND].default for kind in classes)
    return model


def _description(of_classes: Mapping[type[BaseModel], FieldInfo], number: int) -> str:
    """Return a description that names the kinds which have the field, if not all have the same."""
    by_text: dict[str, list[str]] = {}
    for kind, field in of_classes.items():
        name = f"`{kind.model_fields[_KIND].default}`" if _KIND in kind.model_fields else ""
        by_text.setdefault(field.description or "", []).append(name)
    is_same = len(by_text) == 1 and len(of_classes) == number
    return " ".join(text if is_same else f"{', '.join(names)}: {text}" for text, names in by_text.items())


def _type_of(fields: Iterable[FieldInfo]) -> Any:
    """Return the model of a nested configuration, or Any."""
    annotations = (field.annotation for field in fields)
    plain = [get_args(item)[0] if get_origin(item) is Annotated else item for item in annotations]
    nested = [kind for item in plain for kind in (get_args(item) or (item,)) if _is_configuration(kind)]
    return model_of(*dict.fromkeys(nested)) | Any if nested else Any


def _is_configuration(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Configuration)


def described(text: str) -> dg.Resolver:
    """Return the resolver of a field with a description."""
    resolver: dg.Resolver = dg.Resolver.default(description=text)
    return resolver


def configuration(resolve: Callable[[dg.ResolutionContext, Any], Any], model: Any, text: str) -> dg.Resolver:
    """Return the resolver of a field that has the fields of a configuration, with its description."""
    return dg.Resolver(resolve, model_field_type=model, inject_before_resolve=False, description=text)


def given_values(context: dg.ResolutionContext, value: Any) -> Any:
    """Return what YAML gives for a configuration, with resolved templates.

    `{{ env.NAME }}` becomes an EnvVar, so that Dagster's UI shows the name and not the value.
    """
    if isinstance(value, ConfigurationModel):
        _check_keys(context, value)
        names = sorted(value.model_fields_set)
        return {name: given_values(context.at_path(name), getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {name: given_values(context.at_path(name), item) for name, item in value.items()}
    if isinstance(value, list):
        return [given_values(context.at_path(place), item) for place, item in enumerate(value)]
    variable = _VARIABLE.fullmatch(value) if isinstance(value, str) else None
    return dg.EnvVar(variable[1]) if variable is not None else context.resolve_value(value)


def _check_keys(context: dg.ResolutionContext, model: ConfigurationModel) -> None:
    known = sorted(type(model).model_fields)
    for name in model.model_extra or ():
        expected = f"one of the keys {', '.join(known)}"
        raise refusal(context.at_path(name), expected, "another key", nearest_of(name, known))
    kinds, kind = model.kinds, getattr(model, _KIND, None)
    if kinds and kind not in kinds:
        found = "none" if kind is None else "another kind"
        near = nearest_of(kind, kinds) if isinstance(kind, str) else None
        raise refusal(context.at_path(_KIND), f"one of the kinds {', '.join(kinds)}", found, near)


def configure(context: dg.ResolutionContext, model: ConfigurationModel, make: Callable[[], _ValueT]) -> _ValueT:
    """Return what a function returns for the values of a model."""
    try:
        return make()
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)[0]
        node: Any = model
        is_missing = False
        for part in found["loc"]:
            if part in getattr(node, "kinds", ()):  # pydantic names the class of a choice as well
                continue
            is_missing = isinstance(node, ConfigurationModel) and part not in node.model_fields_set
            context, node = context.at_path(part), getattr(node, str(part), None)
        raise refusal(context, "a value that fits", "none" if is_missing else found["msg"]) from None


def refusal(context: dg.ResolutionContext, expected: str, found: str, nearest: str | None = None) -> ConfigurationError:
    """Return the error for the value that a context resolves, with its key, file and line."""
    path, tree, place = list(context.path), context.source_position_tree, "YAML"
    if tree is not None:
        position, _ = tree.lookup_closest_and_path(path, trace=None)
        place = f"line {position.start.line} of {position.filename}"
    hint = None if nearest is None else f"did you mean `{nearest}`?"
    key = ".".join(map(str, path))
    return ConfigurationError.refusing("use", f"`{key}` in {place}", expected=expected, found=found, hint=hint)
