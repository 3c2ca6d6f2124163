"""A query in SQL, and the names of tables in it. The text stays as it was written: names are replaced in place."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import sqlglot
from sqlglot import expressions as syntax
from sqlglot.errors import SqlglotError

from dagster_iceberg_spark.table.identifier import NotationError, quote_part

_DIALECT: Final = "spark"
_REFERENCE: Final = "ref "
"""Begins the name of a table that stands for `ref('key')`."""
_FILE_FORMATS: Final = frozenset(("avro", "binaryfile", "csv", "json", "orc", "parquet", "text", "xml"))
"""The formats of files, which may stand in place of a namespace: ``parquet.`/path` `` (Spark, "Run SQL on files")."""
_PARTS_OF_FILES: Final = 2


def reference(key: str) -> str:
    """Return the name of a table that stands for `ref('key')`."""
    return quote_part(f"{_REFERENCE}{key}")


@dataclass(frozen=True, slots=True)
class TableName:
    """The name of a table in a query, by its parts, and where it begins and ends in the text.

    Args:
        needs_alias: Whether the query may refer to the table by the last part of its name, as it gives it no alias.
        is_versioned: Whether the query selects a version of the table, or a time.
    """

    parts: tuple[str, ...]
    start: int
    end: int
    needs_alias: bool = True
    is_versioned: bool = False

    @property
    def reference(self) -> str | None:
        """The key in `ref('key')`, or None for the plain name of a table."""
        name = self.parts[0]
        return name.removeprefix(_REFERENCE) if len(self.parts) == 1 and name.startswith(_REFERENCE) else None

    @property
    def last_part(self) -> str:
        """The last part of the name or the key, by which the query may refer to the table."""
        return self.parts[-1] if self.reference is None else self.reference.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class SqlQuery:
    """A query, and the names of the tables that it reads, in the order of the text."""

    text: str
    tables: tuple[TableName, ...]

    def with_names(self, name_of: Callable[[tuple[str, ...]], str | None], between: Callable[[str], str]) -> str:
        """Return the text with other names for some tables, which keep their old names as aliases.

        Args:
            name_of: Returns the new name of a table, or None to keep it.
            between: Returns what stands for the text between new names.
        """
        pieces, begun = [], 0
        for table in self.tables:
            name = name_of(table.parts)
            if name is not None:
                alias = f" AS {quote_part(table.last_part)}" if table.needs_alias else ""
                pieces += [between(self.text[begun : table.start]), name, between(alias)]
                begun = table.end
        return "".join([*pieces, between(self.text[begun:])])


def parse_query(text: str) -> SqlQuery:
    """Return a query in Spark's dialect. Common table expressions are not among its tables.

    Raises:
        NotationError: The text is not one query.
    """
    try:
        parsed = [statement for statement in sqlglot.parse(text, dialect=_DIALECT) if statement is not None]
    except SqlglotError as error:
        raise NotationError("a query in Spark SQL", str(error).splitlines()[0]) from error
    statements = [statement for statement in parsed if not isinstance(statement, syntax.Semicolon)]  # or a comment
    if len(statements) != 1 or not isinstance(statements[0], syntax.Query):
        kinds = ", ".join(type(statement).__name__.upper() for statement in statements)
        raise NotationError("one SELECT", kinds or "an empty file")
    found = [name for table in statements[0].find_all(syntax.Table) if (name := _name_of(table)) is not None]
    return SqlQuery(text, tuple(sorted(found, key=lambda name: name.start)))


def _name_of(table: syntax.Table) -> TableName | None:
    """Return the name, or None for a function, files, a common table expression or the alias in a hint."""
    parts = table.parts
    if not all(isinstance(part, syntax.Identifier) and "start" in part.meta for part in parts):
        return None
    names = tuple(part.name for part in parts)
    if table.find_ancestor(syntax.Hint) is not None or (len(names) == 1 and _is_defined_above(table, names[0])):
        return None
    if len(names) == _PARTS_OF_FILES and names[0].lower() in _FILE_FORMATS and not names[1].isidentifier():
        return None
    needs_alias = not table.alias and not table.args.get("sample")  # Spark takes no alias before a sample
    is_versioned = table.args.get("version") is not None
    return TableName(names, parts[0].meta["start"], parts[-1].meta["end"] + 1, needs_alias, is_versioned)


def _is_defined_above(table: syntax.Table, name: str) -> bool:
    """Return whether a common table expression around a table has its name, and is visible there.

    A common table expression sees those before it and, only if it is recursive, itself.
    """
    inside: Any = table
    while (parent := inside.parent) is not None:
        clause = parent.args.get("with_") or parent.args.get("with")
        for definition in clause.expressions if isinstance(clause, syntax.With) else ():
            is_around = definition is inside or _contains(definition, table)
            if definition.alias.lower() == name.lower() and (clause.recursive or not is_around):
                return True
            if is_around:
                break
        inside = parent
    return False


def _contains(outer: Any, inner: Any) -> bool:
    node = inner
    while node is not None and node is not outer:
        node = node.parent
    return node is outer
