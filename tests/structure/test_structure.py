"""Rules about the source itself: size, and who may import whom."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.structure.source import FILES, SOURCE, circles, cycles, imports, module_of, tree, unsaid_errors

#: Lines of a file, of a function, and of a compiled loop (a factory counts as its loop).
FILE, FUNCTION, LOOP = 500, 100, 160
COMPILED = {"compiled", "part", "called"}

#: Each room may import the ones named here, and itself. Everything may import the modules in EVERYWHERE.
MAY_IMPORT = {
    "graph": set[str](),
    "model": {"graph"},
    "quantize": {"graph", "model", "report"},
    "schedule": {"graph", "sim"},
    "program": {"graph", "sim"},
    "sim": set[str](),
    "hdl": {"sim"},
    "energy": {"sim"},
    "report": {"energy", "graph", "model", "program", "sim"},
    "native": set[str](),
    "targets": {"graph", "schedule", "program", "sim", "report", "hdl", "native"},
    "template": {"graph", "schedule", "program", "run", "sim", "targets", "contract"},
    "contract": {"coverage", "debug", "graph", "program", "report", "run", "sim", "targets", "whatif"},
    "coverage": {"graph", "program", "report", "run", "targets"},
    "schedules": {"graph", "program", "run", "targets"},
    "run": {"graph", "program", "report", "sim", "targets"},
    "whatif": {"program", "report", "run", "sim", "targets"},
    "conform": {"graph", "hdl", "program", "sim", "targets"},
    "debug": {"graph", "program", "sim", "targets"},
    "explore": {"energy", "graph", "model", "program", "report", "run", "sim", "targets", "whatif"},
}
EVERYWHERE = {"array", "errors", "expressions", "fields", "files", "install", "tools"}
#: What targets share: everyone may import it.
CONTRACT = {"base", "gateware", "given", "launched", "rams", "stream", "users"}
#: For the type of a result alone.
TYPES = {("targets", "debug")}
#: A target's file with the commands and options that it alone has: it may import the command line.
COMMANDS = "cli"


def room(module: str) -> str:
    """The folder of a module, or the module where it lies beside the folders; cli and the package itself see all."""
    return module.split(".")[1] if "." in module else ""


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_file_imports_only_downwards(path: Path) -> None:
    for found in imports(path):
        here, there = room(found.importer), room(found.imported)
        target = found.imported.split(".")[2:3]
        if there == "targets" and target and target[0] not in CONTRACT:
            own = found.importer.split(".")[2:3]
            assert here == "targets" and own in (target, []), (
                f"{found.imported}: only the target itself imports a target"
            )
        if here in MAY_IMPORT and there not in (here, *EVERYWHERE):
            allowed = there in MAY_IMPORT[here] or (found.types_only and (here, there) in TYPES)
            allowed |= there == "cli" and here == "targets" and path.stem == COMMANDS
            assert allowed, f"{found.importer} must not import {found.imported}"


def test_no_modules_import_each_other() -> None:
    """Circles have the imports of cycles, and also those for types only and those inside functions."""
    assert cycles() == []
    assert circles() == []


def functions(path: Path) -> Iterator[tuple[str, int, int]]:
    """Name, lines and limit of each function. A loop is compiled by a decorator, or as an argument of `native`."""
    calls = (n for n in ast.walk(tree(path)) if isinstance(n, ast.Call) and _names(n.func) == {"native"})
    given = {name for call in calls for argument in call.args for name in _names(argument)}
    factories = [n for n in ast.walk(tree(path)) if isinstance(n, ast.FunctionDef) and n.name in given]
    given |= {n.name for factory in factories for n in ast.walk(factory) if isinstance(n, ast.FunctionDef)}
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef) and node.end_lineno is not None:
            inner = [node, *(n for n in ast.walk(node) if isinstance(n, ast.FunctionDef))]
            loops = node.name in given or any(
                _names(decorator) & COMPILED for each in inner for decorator in each.decorator_list
            )
            yield node.name, node.end_lineno - node.lineno + 1, LOOP if loops else FUNCTION


def _names(node: ast.expr) -> set[str]:
    return {
        n.id if isinstance(n, ast.Name) else n.attr for n in ast.walk(node) if isinstance(n, ast.Name | ast.Attribute)
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_and_functions_are_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= FILE
    long = [f"{name} has {lines} lines" for name, lines, limit in functions(path) if lines > limit]
    assert not long, f"{module_of(path)}: {', '.join(long)}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_docstrings_name_the_errors_that_functions_raise(path: Path) -> None:
    assert not unsaid_errors(path)


def test_a_test_imports_no_test_file() -> None:
    """What tests share lies in helper modules."""
    for path in sorted((SOURCE.parents[1] / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("tests."):
                names = [node.module, *(alias.name for alias in node.names)]
                shared = [name for name in names if name.split(".")[-1].startswith("test_")]
                assert not shared, f"{path.name} imports {shared[0]}"
