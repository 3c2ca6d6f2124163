"""Measures the house: its size, how deep its imports go, and whether the core knows the features.

Run it with `python scripts/measure_house.py` from the top of a checkout, where the package is installed.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import grimp

PACKAGE = "dagster_iceberg_spark"
SLICES = {"__init__", "options", "config", "plan", "checks", "commands", "observer", "spark"}
"""The names of the parts of a feature, which stand in many of them."""
OUTSIDE = tuple(f"{PACKAGE}.{name}" for name in ("features", "io_manager", "pipes", "testing", "__main__"))


def lines(directory: str) -> tuple[int, int]:
    """Return the number of Python files and of their lines."""
    files = list(Path(directory).rglob("*.py"))
    return len(files), sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)


def functions() -> Iterator[ast.FunctionDef]:
    """Yield the functions of the package."""
    for path in Path(PACKAGE).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                yield node


def chain(graph: grimp.ImportGraph) -> list[str]:
    """Return the longest chain of modules that are imported while another one is. Imports in functions do not count."""
    below: dict[str, set[str]] = {}
    for module in graph.modules:
        path = Path(*module.split("."))
        tree = ast.parse((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text("utf-8"))
        names = {
            f"{node.module}.{alias.name}" if f"{node.module}.{alias.name}" in graph.modules else str(node.module)
            for node in tree.body
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        below[module] = {name for name in names if name in graph.modules}
    longest: dict[str, list[str]] = {}
    for module in TopologicalSorter(below).static_order():
        longest[module] = [module, *max((longest[each] for each in below[module]), key=len, default=[])]
    return max(longest.values(), key=len)


def arrows(graph: grimp.ImportGraph) -> list[str]:
    """Return the imports of features by the core."""
    core = [module for module in graph.modules if not module.startswith(OUTSIDE)]
    return [
        f"{module} -> {imported}"
        for module in sorted(core)
        for imported in sorted(graph.find_modules_directly_imported_by(module))
        if imported.startswith(f"{PACKAGE}.features.")
    ]


def main() -> None:
    """Print one line for each number."""
    graph = grimp.build_graph(PACKAGE)
    files, size = lines(PACKAGE)
    found = list(functions())
    participles = [node.name for node in found if re.fullmatch(r"_?[a-z]+ed", node.name)]
    stems = Counter(path.stem for path in Path(PACKAGE).rglob("*.py") if path.stem not in SLICES)
    single = [module for module in graph.modules if len(graph.find_modules_that_directly_import(module)) == 1]
    long = [node for node in found if (node.end_lineno or node.lineno) - node.lineno >= 50]  # noqa: PLR2004
    rows = {
        "files of the package": files,
        "lines of the package": size,
        "lines of the tests": lines("tests")[1],
        "depth of imports": len(chain(graph)),
        "modules with one importer": len(single),
        "arrows from the core to features": len(arrows(graph)),
        "imports of io_manager.py": len(graph.find_modules_directly_imported_by(f"{PACKAGE}.io_manager")),
        "lines of io_manager.py": len(Path(PACKAGE, "io_manager.py").read_text(encoding="utf-8").splitlines()),
        "file names in several rooms": len([name for name, number in stems.items() if number > 1]),
        "functions named by a participle": f"{len(participles) / len(found):.1%} of {len(found)}",
        "functions of 50 lines and more": len(long),
    }
    for name, value in rows.items():
        print(f"{name:<36} {value:>16}")
    for arrow in arrows(graph):
        print(arrow)


if __name__ == "__main__":
    main()
