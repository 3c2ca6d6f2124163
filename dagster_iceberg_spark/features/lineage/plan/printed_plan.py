"""The analyzed plan of a DataFrame, in the text that Spark prints (`QueryPlan.treeString`).

Spark Connect has no other form of it. Each line is an operator with its arguments. A line is three characters deeper
than its parent, and the plans of subqueries are six characters deeper than the operator whose expressions use them.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

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


def bracketed(text: str) -> tuple[str, str]:
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

    Texts in expressions may have brackets. What stands between two lists is then enough to tell them apart.

    Raises:
        NotationError: There is something else.
    """
    try:
        parts = [bracketed(part)[0] for part in split_list(text)]
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
