"""Rules about the source itself: size, and who may import whom."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src" / "tilewright"
FILES = sorted(SOURCE.rglob("*.py"))
LIMIT = 500

#: Each package may import the ones named here, and itself. Everything may import array, errors and files.
MAY_IMPORT = {
    "graph": set(),
    "model": {"graph"},
    "quantize": {"graph", "model", "report"},
    "program": {"graph", "sim"},
    "sim": set(),
    "report": {"graph", "program", "sim"},
    "targets": {"graph", "program", "sim", "report", "hdl", "host"},
    "template": {"graph", "program", "sim", "targets", "contract"},
}
#: What targets share: everyone may import it.
CONTRACT = {"base", "abilities", "given", "keys"}
#: `program.run(x)` is sugar for `run(program, x)`: imported when called, and for its result's type.
LATE = {("program", "run"), ("program", "report")}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_file_is_short_and_imports_only_downwards(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= LIMIT
    parts = path.relative_to(SOURCE).parts
    package = parts[0] if len(parts) > 1 else ""
    for node in ast.walk(ast.parse(text)):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            imported = name.split(".")
            if imported[0] != "tilewright" or len(imported) < 2 or imported[1] in ("array", "errors", "files"):
                continue
            if imported[1] == "targets" and len(imported) > 2 and imported[2] not in CONTRACT:
                assert package == "targets", f"{name}: only the target itself imports a target"
                assert parts[1] in (imported[2], "__init__.py"), f"{name}: no target imports another"
            if (package, imported[1]) in LATE:
                continue
            if package in MAY_IMPORT and imported[1] != package:
                assert imported[1] in MAY_IMPORT[package], f"{package} must not import {name}"
