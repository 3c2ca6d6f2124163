"""Decides what a contract demands: columns, audits and the age of rows. No engine is imported.

The rules of the standard: Open Data Contract Standard 3, "Schema", "Data Quality" and "Service-Level Agreement".
"""

import datetime as dt
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dagster_iceberg_spark.table.schema import is_type_name
from dagster_iceberg_spark.table.sql_text import quote, text_literal

TypeDocument = str | Mapping[str, Any]
"""A type in the JSON form of the Iceberg spec (appendix C)."""

_LOGICAL_TYPES: Final = {
    "boolean": "boolean",
    "date": "date",
    "integer": "long",
    "number": "double",
    "string": "string",
    "timestamp": "timestamptz",
}
_PHYSICAL_TYPES: Final = {
    "bigint": "long",
    "integer": "int",
    "real": "float",
    "text": "string",
    "timestamp_ltz": "timestamptz",
    "timestamp_ntz": "timestamp",
}
"""Names of SQL, with those of Iceberg."""
_TEXT: Final = re.compile(r"(var)?char(\(\d+\))?")
_OPERATORS: Final = {
    "mustBe": "=",
    "mustNotBe": "<>",
    "mustBeGreaterThan": ">",
    "mustBeGreaterOrEqualTo": ">=",
    "mustBeLessThan": "<",
    "mustBeLessOrEqualTo": "<=",
}
_LIMITS: Final[Mapping[str, Callable[[str, Any], str]]] = {
    "minimum": lambda column, value: f"{column} >= {_literal(value)}",
    "maximum": lambda column, value: f"{column} <= {_literal(value)}",
    "exclusiveMinimum": lambda column, value: f"{column} > {_literal(value)}",
    "exclusiveMaximum": lambda column, value: f"{column} < {_literal(value)}",
    "minLength": lambda column, value: f"length({column}) >= {_literal(value)}",
    "maxLength": lambda column, value: f"length({column}) <= {_literal(value)}",
    "minItems": lambda column, value: f"size({column}) >= {_literal(value)}",
    "maxItems": lambda column, value: f"size({column}) <= {_literal(value)}",
    "multipleOf": lambda column, value: f"{column} % {_literal(value)} = 0",
    "pattern": lambda column, value: f"{column} RLIKE {text_literal(str(value))}",
}
"""Conditions of values by the name of their option in `logicalTypeOptions`."""
_UNITS: Final = {
    **dict.fromkeys(("d", "day", "days"), "days"),
    **dict.fromkeys(("h", "hr", "hour", "hours"), "hours"),
    **dict.fromkeys(("m", "min", "minute", "minutes"), "minutes"),
}
_AGES: Final = ("freshness", "latency", "ly")
"""Properties of a service level that bound the age of rows; `ly` is the standard's abbreviation."""
_ENDS: Final = ("low", "high")
_SEVERITIES: Final = {"warning": "warn", "warn": "warn", "info": "warn"}


class UnheldError(ValueError):
    """A demand that cannot be held, in words."""


@dataclass(frozen=True, slots=True)
class ContractColumn:
    """A column of a contract.

    Args:
        type: The type in the JSON form of the Iceberg spec.
        is_key: Whether it is part of the primary key.
    """

    name: str
    type: TypeDocument
    is_required: bool = False
    is_key: bool = False
    description: str | None = None


@dataclass(frozen=True, slots=True)
class Contract:
    """What a contract demands of one table.

    Args:
        names: The names by which other assets require it: the contract's id and name, and those of the table.
        version: The version of the contract.
        audits: The audits, as `iceberg/audits` has them.
        fresh: The greatest age of the newest rows, such as `30 hours`, or None.
        unheld: What the contract demands and the package cannot hold, in words.
    """

    names: tuple[str, ...]
    version: str
    columns: tuple[ContractColumn, ...]
    description: str | None = None
    audits: Mapping[str, Any] = field(default_factory=dict)
    fresh: str | None = None
    unheld: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The name and the version."""
        return f"{self.names[0]} {self.version}"


def type_of(column: Mapping[str, Any]) -> TypeDocument:
    """Return the type of a property.

    Raises:
        UnheldError: There is none, or the package does not know it.
    """
    logical = column.get("logicalType")
    kind = _primitive_type(column, logical)
    if kind is not None:
        return kind
    match logical:
        case "object":
            inner = [{"name": _name_of(item), "type": type_of(item), "required": False} for item in _parts(column)]
            return {"type": "struct", "fields": inner}
        case "array" | "vector":
            items = column.get("items") or ({"logicalType": "number"} if logical == "vector" else {})
            return {"type": "list", "element": type_of(items), "element-required": False}
        case "map" if column.get("map"):
            key, value = (type_of(column["map"].get(part) or {}) for part in ("key", "value"))
            return {"type": "map", "key": key, "value": value, "value-required": False}
    expected = f"one of the logicalTypes {', '.join(_LOGICAL_TYPES)}, array, map, object, or a type of Iceberg"
    raise UnheldError(f"{column.get('physicalType') or logical or 'no type'!r}, where {expected} is expected")


def _primitive_type(column: Mapping[str, Any], logical: Any) -> str | None:
    """Return a type by its physical name, else by the logical one, or None if neither is known."""
    physical = str(column.get("physicalType") or "").strip().lower()
    if is_type_name(physical):
        return physical
    if _TEXT.fullmatch(physical):
        return "string"
    if logical == "timestamp" and (column.get("logicalTypeOptions") or {}).get("timezone") is False:
        return "timestamp"
    return _PHYSICAL_TYPES.get(physical) or _LOGICAL_TYPES.get(str(logical))


def _name_of(column: Mapping[str, Any]) -> str:
    name = column.get("name")
    if not name:
        raise UnheldError("a property without a name")
    return str(name)


def _parts(column: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return column.get("properties") or ()


def audits_of_column(name: str, column: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the audits of a property by name: of its options, its values and its quality rules.

    Raises:
        UnheldError: One of them cannot be held. The others are yielded before.
    """
    quoted, word = quote(name), _word(name)
    unheld = list[str]()
    if column.get("unique"):
        yield f"{word}_unique", {"unique": [name]}
    for option, value in (column.get("logicalTypeOptions") or {}).items():
        if option in _LIMITS:
            yield f"{word}_{option}", f"{quoted} IS NULL OR {_LIMITS[option](quoted, value)}"
        elif option != "timezone":
            unheld.append(f"the option {option}")
    values = [item.get("value") for item in column.get("enum") or ()]
    if None in values:
        unheld.append("an entry of enum without a value")
    elif values:
        yield f"{word}_enum", f"{quoted} IS NULL OR {quoted} IN ({_listed(values)})"
    for feature in ("relationships", "encryptedName"):
        if column.get(feature):
            unheld.append(feature)
    yield from audits_of_rules(word, [name], column.get("quality") or (), unheld)


def audits_of_rules(
    word: str, columns: Sequence[str], rules: Sequence[Mapping[str, Any]], unheld: list[str]
) -> Iterator[tuple[str, Any]]:
    """Yield the audits of quality rules of these columns, or of the table without columns.

    Raises:
        UnheldError: One of them cannot be held, or `unheld` has others. What can be held is yielded before.
    """
    for number, rule in enumerate(rules, start=1):
        try:
            name, audit = _audit(columns, rule)
        except UnheldError as error:
            unheld.append(f"the quality rule {rule.get('name') or number}: {error}")
            continue
        severity = _SEVERITIES.get(str(rule.get("severity") or "").lower(), "error")
        yield f"{word}_{_word(rule.get('name') or name)}", {**audit, "severity": severity}
    if unheld:
        raise UnheldError("; ".join(unheld))


def _audit(columns: Sequence[str], rule: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    metric = rule.get("metric") or rule.get("rule")
    kind = rule.get("type") or "library"
    if kind != "library" or metric is None:
        raise UnheldError(f"its type is {kind}")
    arguments = rule.get("arguments") or {}
    compared = columns or arguments.get("properties") or []
    is_none = rule.get("mustBe") == 0
    if metric == "nullValues" and is_none and compared:
        return metric, {"not_null": list(compared)}
    if metric == "duplicateValues" and is_none and compared:
        return metric, {"unique": list(compared)}
    measure = _measure(str(metric), compared, arguments)
    if rule.get("unit") == "percent":
        measure = f"coalesce(100.0 * {measure} / nullif(count(*), 0), 0)"
    signs = ((sign, rule[name]) for name, sign in _OPERATORS.items() if rule.get(name) is not None)
    comparisons = [f"{measure} {sign} {_literal(bound)}" for sign, bound in signs]
    for name, negation in (("mustBeBetween", ""), ("mustNotBeBetween", "NOT ")):
        if rule.get(name) is not None:
            if len(rule[name]) != len(_ENDS):
                raise UnheldError(f"{name} has {len(rule[name])} bounds")
            low, high = map(_literal, rule[name])
            comparisons.append(f"{measure} {negation}BETWEEN {low} AND {high}")
    if not comparisons:
        raise UnheldError("it has no bound, such as mustBe")
    return str(metric), {"condition": " AND ".join(comparisons)}


def _measure(metric: str, columns: Sequence[str], arguments: Mapping[str, Any]) -> str:
    column = quote(columns[0]) if len(columns) == 1 else None
    listed = ", ".join(map(quote, columns))
    match metric:
        case "rowCount":
            return "count(*)"
        case "duplicateValues" if columns:
            return f"(count(*) - count(DISTINCT {listed}))"
        case "nullValues" if column:
            return f"count_if({column} IS NULL)"
        case "missingValues" if column:
            values = [item for item in arguments.get("missingValues") or () if item is not None]
            return f"count_if({column} IS NULL{f' OR {column} IN ({_listed(values)})' if values else ''})"
        case "invalidValues" if column and (arguments.get("validValues") or arguments.get("pattern")):
            valid = arguments.get("validValues")
            test = f"IN ({_listed(valid)})" if valid else f"RLIKE {text_literal(str(arguments['pattern']))}"
            return f"count_if(NOT ({column} {test}))"
    raise UnheldError(f"the metric {metric} is unknown here")


def age_of(properties: Sequence[Mapping[str, Any]]) -> tuple[str | None, list[str]]:
    """Return the greatest age of rows among service levels, and what else they demand, in words."""
    age, unheld = None, list[str]()
    for item in properties:
        name, value = str(item.get("property")), item.get("value")
        unit = _UNITS.get(str(item.get("unit") or "d").lower())
        if name in _AGES and unit is not None and isinstance(value, int | float) and age is None:
            age = f"{int(dt.timedelta(**{unit: value}).total_seconds() // 60)} minutes"
        else:
            unheld.append(f"the service level {name}")
    return age, unheld


def _listed(values: Any) -> str:
    return ", ".join(map(_literal, values))


def _literal(value: Any) -> str:
    """Return a value of YAML as a literal of SQL."""
    if isinstance(value, bool):
        return str(value).upper()
    return str(value) if isinstance(value, int | float) else text_literal(str(value))


def _word(name: str) -> str:
    """Return a name as a part of the name of an audit."""
    return re.sub(r"\W+", "_", name, flags=re.ASCII)
