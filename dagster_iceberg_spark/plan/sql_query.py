"""A query in SQL, and the names of tables in it. The text stays as it was written: names are replaced in place."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sqlglot
from sqlglot import expressions as syntax
from sqlglot.errors import SqlglotError

from dagster_iceberg_spark.table.identifier import quote_part
from dagster_iceberg_spark.table.notation import NotationError

_DIALECT = "spark"


@dataclass(frozen=True, slots=True)
class TableName:
    """The name of a table in a query, by its parts, and where it begins and ends in the text.

    Args:
        needs_alias: Whether the query may refer to the table by the last part of its name, as it gives it no alias.
    """

    parts: tuple[str, ...]
    start: int
    end: int
    needs_alias: bool = True


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
                alias = f" AS {quote_part(table.parts[-1])}" if table.needs_alias else ""
                pieces += [between(self.text[begun : table.start]), name, between(alias)]
                begun = table.end
        return "".join([*pieces, between(self.text[begun:])])


def parse_query(text: str) -> SqlQuery:
    """Return a query in Spark's dialect. Common table expressions are not among its tables.

    Raises:
        NotationError: The text is not one query.
    """
    try:
        statements = [statement for statement in sqlglot.parse(text, dialect=_DIALECT) if statement is not None]
    except SqlglotError as error:
        raise NotationError("a query in Spark SQL", str(error).splitlines()[0]) from error
    if len(statements) != 1 or not isinstance(statements[0], syntax.Query):
        kinds = ", ".join(type(statement).__name__.upper() for statement in statements)
        raise NotationError("one SELECT", kinds or "an empty file")
    found = [name for table in statements[0].find_all(syntax.Table) if (name := _name_of(table)) is not None]
    return SqlQuery(text, tuple(sorted(found, key=lambda name: name.start)))


def _name_of(table: syntax.Table) -> TableName | None:
    """Return the name, or None for a function or a common table expression."""
    parts = table.parts
    if not all(isinstance(part, syntax.Identifier) and "start" in part.meta for part in parts):
        return None
    names = tuple(part.name for part in parts)
    if len(names) == 1 and _is_defined_above(table, names[0]):
        return None
    needs_alias = not table.alias and not table.args.get("sample")  # Spark takes no alias before a sample
    return TableName(names, parts[0].meta["start"], parts[-1].meta["end"] + 1, needs_alias)


def _is_defined_above(table: syntax.Table, name: str) -> bool:
    """Return whether a common table expression around a table has its name, and is visible there.

    A common table expression sees those before it, but not itself.
    """
    inside: Any = table
    while (parent := inside.parent) is not None:
        clause = parent.args.get("with_") or parent.args.get("with")
        for definition in clause.expressions if isinstance(clause, syntax.With) else ():
            if definition is inside or _contains(definition, table):
                break
            if definition.alias.lower() == name.lower():
                return True
        inside = parent
    return False


def _contains(outer: Any, inner: Any) -> bool:
    node = inner
    while node is not None and node is not outer:
        node = node.parent
    return node is outer
