"""A filter over a NULL partition raises `TypeError` while a scan plans its files.

`ResidualVisitor` decides which part of a filter a file's partition leaves to evaluate. pyiceberg 0.12.0 compares the
partition's value with the filter's literal by `<`, `<=`, `>` or `>=`, also where the value is NULL. The comparison
should be false, as it is for rows. https://github.com/apache/iceberg-python/issues/3498, and the pull request
https://github.com/apache/iceberg-python/pull/3817
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

from pyiceberg.expressions.visitors import ResidualVisitor


def install() -> None:
    """Make such comparisons false. A second call does nothing."""
    for name in ("less_than", "less_than_or_equal", "greater_than", "greater_than_or_equal"):
        method = getattr(ResidualVisitor, f"visit_{name}")
        if not hasattr(method, "__wrapped__"):
            setattr(ResidualVisitor, f"visit_{name}", _false_of_null(method))


def _false_of_null(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def visit(self: Any, term: Any, literal: Any) -> Any:
        return self.visit_false() if term.eval(self.struct) is None else method(self, term, literal)

    return visit
