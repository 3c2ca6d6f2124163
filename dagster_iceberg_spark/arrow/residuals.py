"""Partitions of NULL, which pyiceberg 0.12 compares with a filter's constants when it plans the files of a scan.

It works out what of the filter a file's partition leaves to be evaluated, and raises a `TypeError` where that is NULL.
Here such a comparison is not true, for all of the process: a `DataScan` is run by the user.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

from pyiceberg.expressions.visitors import ResidualVisitor


def compare_null() -> None:
    """Let pyiceberg compare partitions of NULL; a second time nothing is done."""
    for name in ("less_than", "less_than_or_equal", "greater_than", "greater_than_or_equal"):
        method = getattr(ResidualVisitor, f"visit_{name}")
        if not hasattr(method, "__wrapped__"):
            setattr(ResidualVisitor, f"visit_{name}", _false_of_null(method))


def _false_of_null(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def visit(self: Any, term: Any, literal: Any) -> Any:
        return self.visit_false() if term.eval(self.struct) is None else method(self, term, literal)

    return visit
