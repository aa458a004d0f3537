"""The package's own source as the tests of its structure see it: who imports whom, and how long functions are."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2] / "src"
SOURCE = ROOT / "tilewright"
FILES = sorted(SOURCE.rglob("*.py"))


def module_of(path: Path) -> str:
    """The dotted name of a file."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in FILES}


@dataclass(frozen=True)
class Import:
    """One import: the importing module, what it imports, and whether for types only."""

    importer: str
    imported: str
    types_only: bool


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(path: Path) -> Iterator[Import]:
    """Every import of a module of the package, wherever it stands; `from a import b` is of a.b where that is one."""
    module = module_of(path)
    types = {id(inner) for block in ast.walk(tree(path)) if _for_types(block) for inner in ast.walk(block)}
    for node in ast.walk(tree(path)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = module if path.name == "__init__.py" else module.rpartition(".")[0]
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            names = [f"{base}.{alias.name}" if f"{base}.{alias.name}" in MODULES else base for alias in node.names]
        for name in names:
            if name in MODULES and name != module:
                yield Import(module, name, id(node) in types)


def _for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def cycles() -> list[tuple[str, ...]]:
    """Modules that import each other, directly or through others: each strongly connected component of more than one.

    An import of a package's module runs the package first, but that is Python's doing, and counts as none.
    """
    return _components(_edges(types=False))


def circles() -> list[tuple[str, ...]]:
    """Cycles as well of imports for types only, and of modules that a file names and imports by `import_module`."""
    edges = _edges(types=True)
    for path in FILES:
        module = module_of(path)
        if any(isinstance(node, ast.Name | ast.Attribute) and _loads(node) for node in ast.walk(tree(path))):
            strings = {node.value for node in ast.walk(tree(path)) if isinstance(node, ast.Constant)}
            edges[module] |= {name for name in MODULES if name in strings} - {module}
    return _components(edges)


def _loads(node: ast.Name | ast.Attribute) -> bool:
    return (node.id if isinstance(node, ast.Name) else node.attr) == "import_module"


def _edges(types: bool) -> dict[str, set[str]]:
    """Modules that each module imports, with those that it needs for types only."""
    edges: dict[str, set[str]] = {module: set() for module in MODULES}
    for path in FILES:
        for found in imports(path):
            if types or not found.types_only:
                edges[found.importer].add(found.imported)
    return edges


def _components(edges: dict[str, set[str]]) -> list[tuple[str, ...]]:
    """Tarjan's strongly connected components of more than one member."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[tuple[str, ...]] = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in sorted(edges[module]):
            if other not in index:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            at = stack.index(module)
            if len(stack) - at > 1:
                found.append(tuple(sorted(stack[at:])))
            del stack[at:]

    for module in sorted(edges):
        if module not in index:
            visit(module)
    return found


def unsaid_errors(path: Path) -> list[str]:
    """Public functions of a file that raise an error in their own body, and whose docstring does not say `Raises`."""
    found: list[str] = []
    for node in _public(tree(path)):
        raised = {_error(inner) for inner in _own(node) if isinstance(inner, ast.Raise) and inner.exc} - INTERNAL
        if any(name[:1].isupper() for name in raised) and "aises" not in (ast.get_docstring(node) or ""):
            found.append(f"{node.name} (line {node.lineno}) raises {', '.join(sorted(raised))}")
    return found


#: Raised for other code, not for a user.
INTERNAL = {"AssertionError", "AttributeError", "NotImplementedError", "StopIteration"}


def _public(scope: ast.Module | ast.ClassDef) -> Iterator[ast.FunctionDef]:
    """Functions of a scope and of its classes whose names do not begin with an underscore."""
    for node in scope.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            if isinstance(node, ast.FunctionDef):
                yield node
            else:
                yield from _public(node)


def _own(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """The statements of a function without those of functions and classes inside it."""
    left: list[ast.AST] = list(function.body)
    while left:
        node = left.pop()
        if not isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Lambda):
            yield node
            left.extend(ast.iter_child_nodes(node))


def _error(node: ast.Raise) -> str:
    """The class that a raise statement names."""
    named = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
    return ast.unparse(named).split(".")[-1] if named else ""
