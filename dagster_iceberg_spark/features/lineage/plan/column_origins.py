"""The origins of columns: which columns of tables the expressions of an operator refer to.

Operators come from the analyzed plan of a DataFrame, in the text that Spark prints (`QueryPlan.treeString`). Spark
Connect has no other form of it. Each line is an operator with its arguments. A line is three characters deeper than its
parent, and the plans of subqueries are six characters deeper than the operator whose expressions use them.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, TypeAlias

from dagster_iceberg_spark.table.identifier import NotationError

_MARK: Final = re.compile(r"((?:   |:  )*)(?::- |\+- )(?=[A-Z])")
_NAME: Final = re.compile(r"[A-Za-z0-9]+")
_STEP: Final = 3
_OPENING: Final = {"(": ")", "[": "]"}
SEPARATOR: Final = ", "
"""What stands between arguments, and between the items of a list."""
_LEFT_OUT: Final = re.compile(r"\.\.\. \d+ more (fields|characters)")
_BETWEEN_LISTS: Final = "], ["
_BRACKET: Final = re.compile(r"[\[\]()]|, ")


@dataclass(slots=True)
class Operator:
    """An operator of a plan.

    Args:
        name: The name, such as `Project`.
        arguments: What Spark prints after the name.
        subqueries: The plans of the subqueries in its expressions, in the order of the expressions.
        children: The operators whose rows it takes.
    """

    name: str
    arguments: str
    subqueries: "list[Operator]" = field(default_factory=list)
    children: "list[Operator]" = field(default_factory=list)


def parse_plan(text: str) -> Operator:
    """Return the operator at the top of a plan.

    Raises:
        NotationError: The text is not a tree of operators.
    """
    if _LEFT_OUT.search(text):
        raise NotationError("a plan with all fields", "one that leaves out some")
    above: list[tuple[int, Operator]] = []
    for depth, line in _lines(text):
        name = _NAME.match(line)
        if name is None:
            raise NotationError("the name of an operator", f"{line!r}")
        operator = Operator(name[0], line[name.end() :].strip(" "))
        while len(above) > 1 and above[-1][0] >= depth:
            above.pop()
        if above:
            parent_depth, parent = above[-1]
            if depth - parent_depth not in (1, 2):
                raise NotationError("an operator one or two levels below another", f"{line!r}")
            (parent.children if depth - parent_depth == 1 else parent.subqueries).append(operator)
        above.append((depth, operator))
    return above[0][1]


def _lines(text: str) -> list[tuple[int, str]]:
    """Return the depth and the text of each operator. Texts in expressions may have line breaks."""
    found: list[tuple[int, str]] = []
    for line in text.strip("\n").split("\n"):
        marked = _MARK.match(line)
        if not found:
            found.append((0, line))
        elif marked is None:
            depth, begun = found[-1]
            found[-1] = (depth, f"{begun}\n{line}")
        else:
            found.append((len(marked[1]) // _STEP + 1, line[marked.end() :]))
    return found


def split_list(text: str) -> list[str]:
    """Return the arguments of an operator, or the items of a list in it, without the commas between them.

    Raises:
        NotationError: The brackets are not balanced, because of a text in an expression.
    """
    items, begun, depth = [], 0, 0
    for position, change in _brackets(text):
        depth += change
        if depth == 0 and change == 0:
            items.append(text[begun:position])
            begun = position + len(SEPARATOR)
    return [*items, text[begun:]] if text else []


def split_brackets(text: str) -> tuple[str, str]:
    """Return what is in the brackets at the start of a text, and what follows them.

    Raises:
        NotationError: The text does not begin with brackets, or they are not balanced.
    """
    depth = 0
    for position, change in _brackets(text) if text[:1] in _OPENING else ():
        depth += change
        if depth == 0 and change < 0:
            return text[1:position], text[position + 1 :].removeprefix(SEPARATOR)
    raise NotationError("brackets", f"{text!r}")


def lists_in(text: str) -> list[str]:
    """Return the contents of lists in brackets, which are all that an operator has.

    Texts in expressions may have brackets. What stands between two lists is then enough to distinguish them.

    Raises:
        NotationError: There is something else.
    """
    try:
        parts = [split_brackets(part)[0] for part in split_list(text)]
    except NotationError:
        parts = text.removeprefix("[").removesuffix("]").split(_BETWEEN_LISTS)
    if f"[{_BETWEEN_LISTS.join(parts)}]" != text:
        raise NotationError("lists in brackets", f"{text!r}") from None
    return parts


def _brackets(text: str) -> Iterator[tuple[int, int]]:
    """Yield the place of each bracket and comma, and by how much it changes the depth."""
    closing: list[str] = []
    for match in _BRACKET.finditer(text):
        found = match[0]
        if found == SEPARATOR:
            yield match.start(), 0
        elif found in _OPENING:
            closing.append(_OPENING[found])
            yield match.start(), 1
        elif closing and closing.pop() == found:
            yield match.start(), -1
        else:
            raise NotationError("balanced brackets", f"{text!r}")
    if closing:
        raise NotationError("balanced brackets", f"{text!r}")


_ALIAS: Final = " AS "
_REFERENCE: Final = re.compile(r"#(\d+)L?")
_ATTRIBUTE: Final = re.compile(r"(.*)#(\d+)L?", re.DOTALL)
_OUTPUT_END: Final = re.compile(r"#(\d+)L?(\)?)(?:, |$)")
_OUTER_MARK: Final = "outer("
_HAS_BRACKET: Final = re.compile(r"[\[\]()]")
_OUTER: Final = re.compile(r"\bouter\(((?:[^()]|\([^()]*\))*)#(\d+)L?\)")
_LAMBDA: Final = re.compile(r"\blambda [^\s#]+#(\d+)")
_SUBQUERY: Final = re.compile(r"\b(scalar-subquery|lateral-subquery|exists|list)#\d+ (?=\[)")
_WINDOW: Final = re.compile(r"\b(windowspecdefinition)(?=\()")


@dataclass(frozen=True, slots=True, order=True)
class SourceColumn:
    """A column of a table. The table has the name that the plan gives it, with the catalog."""

    table: str
    column: str


@dataclass(frozen=True, slots=True)
class OuterColumn:
    """A column of the query around a subquery, by its expression id."""

    expression_id: int


Origins: TypeAlias = frozenset[SourceColumn | OuterColumn]
NO_ORIGINS: Final[Origins] = frozenset()


@dataclass(frozen=True, slots=True)
class Column:
    """A column of an operator.

    Args:
        origins: The columns that it is derived from, or None if they are not known.
        copied: The column of a table whose value it has, unchanged, or NULL. None if there is no such column.
        digest: A digest of its expression over columns of tables. It depends neither on names in between nor on ids.
    """

    expression_id: int
    name: str
    origins: Origins | None
    copied: SourceColumn | None = None
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of an operator.

    Args:
        columns: The columns, or some of them.
        deciding: The columns that decide which rows there are: those of filters, join and group keys, and orders.
        is_complete: Whether these are all columns.
        has_all_deciding: Whether these are all columns that decide which rows there are.
        tables: The tables that are read, as far as they are known.
        repeated: Those of them that are read more than once.
        digest: A digest of what decides which rows there are, as that of a column.
    """

    columns: tuple[Column, ...] = ()
    deciding: Origins = NO_ORIGINS
    is_complete: bool = True
    has_all_deciding: bool = True
    tables: frozenset[str] = frozenset()
    repeated: frozenset[str] = frozenset()
    digest: str = ""


UNKNOWN_ROWS: Final = Rows(is_complete=False, has_all_deciding=False)


@dataclass
class Evaluation:
    """The evaluation of an operator.

    Args:
        arguments: What Spark prints after the name of the operator.
        below: The rows of its children.
        subqueries: The rows of the subqueries in its expressions, in the order of the expressions.
    """

    arguments: str
    below: Sequence[Rows]
    subqueries: Sequence[Rows] = ()
    _used: int = 0
    _deciding: set[SourceColumn | OuterColumn] = field(default_factory=set)
    _has_all_deciding: bool = True

    @property
    def columns(self) -> list[Column]:
        """The columns of all children."""
        return [column for rows in self.below for column in rows.columns]

    @cached_property
    def is_complete(self) -> bool:
        """Whether all columns of all children are known."""
        return all(rows.is_complete for rows in self.below)

    @cached_property
    def _by_id(self) -> Mapping[int, Column]:
        return {column.expression_id: column for column in self.columns}

    def rows(self, columns: Iterable[Column], *, is_complete: bool = True) -> Rows:
        """Return the rows of the operator. What decides the rows of children and subqueries decides them too.

        Raises:
            NotationError: Not all subqueries were found in the expressions.
        """
        if self._used != len(self.subqueries):
            raise NotationError(f"{len(self.subqueries)} subqueries", f"{self._used}")
        inner = [*self.below, *map(self._inside, self.subqueries)]
        tables, repeated = frozenset[str](), frozenset[str]()
        for rows in inner:
            repeated |= rows.repeated | (tables & rows.tables)
            tables |= rows.tables
        return Rows(
            tuple(columns),
            frozenset(self._deciding).union(*(rows.deciding for rows in inner)),
            is_complete=is_complete,
            has_all_deciding=self._has_all_deciding and all(rows.has_all_deciding for rows in inner),
            tables=tables,
            repeated=repeated,
        )

    def decide(self, text: str) -> None:
        """Add the columns of an expression to those that decide which rows there are."""
        self.decide_by_origins(self.origins(text))

    def decide_by(self, columns: Iterable[Column]) -> None:
        """Add columns to those that decide which rows there are."""
        for column in columns:
            self.decide_by_origins(column.origins)

    def decide_by_origins(self, origins: Origins | None) -> None:
        """Add the origins of a value to the columns that decide which rows there are."""
        self._has_all_deciding &= origins is not None
        self._deciding |= origins or NO_ORIGINS

    def outputs(self, text: str) -> list[Column]:
        """Return the columns of a list of the children's attributes and of aliases.

        Each ends with an expression id: that of a child's column, whose name precedes it, or a new one after `AS`. The
        list is not split at commas, because names and texts in expressions may have commas and brackets.

        Raises:
            NotationError: The list has something else.
        """
        found, begun = [], 0
        for match in _OUTPUT_END.finditer(text):
            column = self._output(text[begun : match.start()], int(match[1]), is_closed=bool(match[2]))
            if column is not None:
                found.append(column)
                begun = match.end()
        if begun != len(text):
            raise NotationError("attributes and aliases", f"{text!r}")
        return found

    def _output(self, text: str, expression_id: int, *, is_closed: bool) -> Column | None:
        """Return a column of the list, or None if the expression continues. It ends if a bracket follows the id."""
        if is_closed:
            outer = text.removeprefix(_OUTER_MARK)
            is_outer = outer != text and not _HAS_BRACKET.search(outer)
            return Column(expression_id, outer, frozenset({OuterColumn(expression_id)})) if is_outer else None
        passed = self._by_id.get(expression_id)
        if passed is not None:
            return replace(passed, name=text) if _is_same(text, passed) else None
        if not self.is_complete:
            split_list(text)  # else a text could hide that the expression continues
        value, alias, name = text.rpartition(_ALIAS)
        if alias:
            return Column(expression_id, name, self.origins(value), self._copied_column(value), self.digest(value))
        is_whole = not self.is_complete and not _HAS_BRACKET.search(text)
        return Column(expression_id, text, None) if is_whole else None

    def digest(self, text: str) -> str:
        """Return the digest of an expression."""
        match = _ATTRIBUTE.fullmatch(text)
        column = None if match is None else self._by_id.get(int(match[2]))
        if match is not None and column is not None and _is_same(match[1], column):
            return column.digest
        queries = (part for rows in self.subqueries for part in (rows.digest, *(it.digest for it in rows.columns)))
        return digest_of(self.described(text), *queries)

    def described(self, text: str) -> str:
        """Return a text with the digests of the children's columns in place of their names and ids."""
        pieces, begun = [], 0
        for match in _REFERENCE.finditer(text):
            before, column = text[begun : match.start()], self._by_id.get(int(match[1]))
            if column is not None and _is_named(before, column):
                before = before[: len(before) - len(column.name)]
            pieces += [before, f"#{'' if column is None else column.digest}"]
            begun = match.end()
        return "".join([*pieces, text[begun:]])

    def _copied_column(self, text: str) -> SourceColumn | None:
        """Return the column of a table that an expression stands for, if it is the attribute of such a column."""
        match = _ATTRIBUTE.fullmatch(text)
        column = None if match is None else self._by_id.get(int(match[2]))
        return column.copied if match is not None and column is not None and _is_same(match[1], column) else None

    def origins(self, text: str) -> Origins | None:
        """Return the origins of the value of an expression, or None if one is not known.

        The keys of windows and the columns that correlate subqueries decide which rows are used, not the value.

        Raises:
            NotationError: The brackets of a window or a subquery are not balanced, or a subquery has no plan.
        """
        text, queries = _cut(text, _SUBQUERY)
        text, windows = _cut(text, _WINDOW)
        for _, keys in windows:
            self.decide(keys)
        return union(*(self._query(kind) for kind, _ in queries), self._references(text))

    def _query(self, kind: str) -> Origins | None:
        """Return the origins of the value of the next subquery."""
        rows = self.next_subquery()
        if kind == "exists":  # its rows matter, and its columns do not
            return rows.deciding if rows.has_all_deciding else None
        return union(*(column.origins for column in rows.columns)) if rows.is_complete else None

    def next_subquery(self) -> Rows:
        """Return the rows of the next subquery.

        Raises:
            NotationError: There are no more subqueries.
        """
        if self._used == len(self.subqueries):
            raise NotationError(f"{len(self.subqueries)} subqueries", "more")
        self._used += 1
        return self._inside(self.subqueries[self._used - 1])

    def _references(self, text: str) -> Origins | None:
        text, outer = _OUTER.sub("", text), {OuterColumn(int(found[2])) for found in _OUTER.finditer(text)}
        variables = set(_LAMBDA.findall(text))
        found: Origins = frozenset(outer)
        for match in _REFERENCE.finditer(text):
            column = self._by_id.get(int(match[1]))
            if column is None:  # a variable, the result of a Python function, or a text
                if self.is_complete or match[1] in variables:
                    continue
                return None
            if column.origins is None or not _is_named(text[: match.start()], column):
                return None
            found |= column.origins
        return found

    def _inside(self, rows: Rows) -> Rows:
        """Return the rows of a subquery, with the origins of what it refers to outside of it."""
        deciding = self._outside(rows.deciding)
        return replace(
            rows,
            columns=tuple(replace(column, origins=self._outside(column.origins)) for column in rows.columns),
            deciding=deciding or NO_ORIGINS,
            has_all_deciding=rows.has_all_deciding and deciding is not None,
        )

    def _outside(self, origins: Origins | None) -> Origins | None:
        return None if origins is None else union(*map(self._outer, origins))

    def _outer(self, origin: SourceColumn | OuterColumn) -> Origins | None:
        column = self._by_id.get(origin.expression_id) if isinstance(origin, OuterColumn) else None
        return frozenset({origin}) if column is None else column.origins


def _is_same(text: str, column: Column) -> bool:
    return text.lower() == column.name.lower()


def _is_named(text: str, column: Column) -> bool:
    """Return whether a text ends with the name of a column. A query may write the name in another case."""
    return text.lower().endswith(column.name.lower())


def _cut(text: str, pattern: re.Pattern[str]) -> tuple[str, list[tuple[str, str]]]:
    """Return a text without what matches and the brackets after it, and what was cut: its kind, and the brackets."""
    found = []
    while (match := pattern.search(text)) is not None:
        inside, rest = split_brackets(text[match.end() :])
        found.append((match[1], inside))
        text = f"{text[: match.start()]}{SEPARATOR}{rest}"
    return text, found


def attributes(text: str) -> list[Column]:
    """Return the columns of a list of attributes that an operator makes. Their origins are not known.

    Raises:
        NotationError: The list has something else.
    """
    found, begun = [], 0
    for match in _OUTPUT_END.finditer(text):
        found.append(Column(int(match[1]), text[begun : match.start()], None))
        begun = match.end()
    if begun != len(text):
        raise NotationError("attributes", f"{text!r}")
    return found


def union(*origins: Origins | None) -> Origins | None:
    """Return all origins, or None if some of them are not known."""
    known = [origin for origin in origins if origin is not None]
    return NO_ORIGINS.union(*known) if len(known) == len(origins) else None


def digest_of(*texts: str) -> str:
    """Return a digest of texts, in their order."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]
