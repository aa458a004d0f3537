"""Print figures of the size and shape of the source: `python -m tests.structure.figures [REV ..] [--lists]`.

A column for each revision (a copy of it is measured in a process of its own) and one for the work tree. Definitions:

- *lines* of all files; *statements* are nodes of `ast.stmt`; *tokens* are names, operators, numbers and strings of
  `tokenize` by Python 3.11, where an f-string is one string: no comments, no ends of lines, no indentation;
- *files called*: with a function that is called in RUN, whose loops are compiled already. Class bodies, lambdas and
  comprehensions are no named functions. It is -1 where the run fails;
- *circles*: components of modules that import each other. Imports for types only and inside functions count, and the
  names of modules in files that call `import_module`;
- *complexity* is radon's (extra `dev`) of functions and methods with what is inside them, -1 without radon;
- *parameters* without `self` and `cls`; UPSTREAM names the functions whose signatures are another project's;
- *nested*: for, while, if (an `elif` is as deep as its `if`), with, try and match;
- *constants* of gemmini/timing: names that are assigned at the top of two files or more, but for `__all__`.

`--lists` prints what is counted in the work tree. A last table has the lines of tests for a line of each room.
"""

from __future__ import annotations

import ast
import io
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.structure.source import FILES, ROOT, SOURCE, circles, tree

RUN = ["run", "examples/digits/digits.tflite", "-t", "vta", "--json", "--no-cache"]
TOKENS = {tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING}
BLOCKS = (ast.For, ast.While, ast.If, ast.With, ast.Try, ast.Match)
#: Signatures of gemmini.h and of VTA's runtime.
UPSTREAM = {"gemmini_loop_ws", "gemmini_extended3_config_ex", "load_buffer_2d"}
#: What issue 47 found at 92,458 lines (commit 55a748a3), and what it asks for.
ISSUE = {
    "lines": ("92,458", "82,000"),
    "statements": ("59,460", "52,734"),
    "tokens": ("786,806", "697,800"),
    "median lines of a file": ("147", "200"),
    "template/onemac without tests": ("758", "450"),
    "files called": ("94..97", "65"),
    "circles": ("5", "0"),
    "functions with complexity above 20": ("36", "15"),
    "functions above 60 lines": ("18", "8"),
    "functions with more than 7 parameters": ("41", "15"),
    "  of them not upstream's": ("", ""),
    "functions nested deeper than 4": ("14", "0"),
    "class names twice inside a target": ("29", "0"),
    "constants in two files of gemmini/timing": ("110", "0"),
}
#: Prints the files of the package in which a named function is called. The flag leaves out bodies of classes.
CALLED = """
import contextlib, inspect, io, json, sys, threading
files = set()
def called(frame, event, argument):
    code = frame.f_code
    if event == "call" and code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<"):
        files.add(code.co_filename)
sys.setprofile(called)
threading.setprofile(called)
from tilewright.cli import main
with contextlib.redirect_stdout(io.StringIO()):
    status = main(sys.argv[1:])
sys.setprofile(None)
print(json.dumps([status, sorted(files)]))
"""

Found = dict[str, list[str] | int]


def measure() -> Found:
    """Every figure of the source beside this file: a number, or the list of what is counted."""
    lengths = [_lines(path) for path in FILES]
    template = [path for path in FILES if "onemac" in path.parts and not path.name.startswith("test_")]
    functions = list(_functions())
    wide = [f"{name}: {count}" for name, node in functions if (count := _parameters(node)) > 7]
    return {
        "lines": sum(lengths),
        "statements": sum(isinstance(node, ast.stmt) for path in FILES for node in ast.walk(tree(path))),
        "tokens": sum(_tokens(path) for path in FILES),
        "median lines of a file": round(statistics.median(lengths)),
        "template/onemac without tests": sum(_lines(path) for path in template),
        "files called": _called(),
        "circles": [", ".join(circle) for circle in circles()],
        "functions with complexity above 20": _complex(),
        "functions above 60 lines": [f"{name}: {count}" for name, node in functions if (count := _length(node)) > 60],
        "functions with more than 7 parameters": wide,
        "  of them not upstream's": [line for line in wide if line.split(":")[0].split()[-1] not in UPSTREAM],
        "functions nested deeper than 4": [
            f"{name}: {count}" for name, node in functions if (count := _depth(node)) > 4
        ],
        "class names twice inside a target": _twice(),
        "constants in two files of gemmini/timing": _constants(),
    }


def _lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def _tokens(path: Path) -> int:
    with path.open(encoding="utf-8") as file:
        return sum(token.type in TOKENS for token in tokenize.generate_tokens(file.readline))


def _functions() -> Iterator[tuple[str, ast.FunctionDef]]:
    for path in FILES:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef):
                yield f"{path.relative_to(SOURCE)} {node.name}", node


def _length(function: ast.FunctionDef) -> int:
    assert function.end_lineno is not None
    return function.end_lineno - function.lineno + 1


def _parameters(function: ast.FunctionDef) -> int:
    given = function.args
    return sum(name.arg not in ("self", "cls") for name in given.posonlyargs + given.args + given.kwonlyargs)


def _depth(node: ast.AST, depth: int = 0) -> int:
    """How many blocks lie inside each other, functions and classes inside left out."""
    deepest = depth
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.FunctionDef | ast.ClassDef | ast.Lambda):
            continue
        is_elif = isinstance(node, ast.If) and isinstance(inner, ast.If) and node.orelse == [inner]
        deeper = isinstance(inner, BLOCKS) and not is_elif
        deepest = max(deepest, _depth(inner, depth + deeper))
    return deepest


def _complex() -> list[str] | int:
    try:
        from radon.complexity import cc_visit_ast
    except ImportError:
        return -1
    found: list[str] = []
    for path in FILES:
        for block in cc_visit_ast(tree(path)):  # classes, and methods and functions each by itself
            if block.letter != "C" and block.complexity > 20:
                found.append(f"{path.relative_to(SOURCE)} {block.name}: {block.complexity}")
    return found


def _twice() -> list[str]:
    files: dict[tuple[str, str], list[str]] = defaultdict(list)
    for path in FILES:
        inside = path.relative_to(SOURCE)
        if inside.parts[0] == "targets" and len(inside.parts) > 2:
            for node in ast.walk(tree(path)):
                if isinstance(node, ast.ClassDef):
                    files[inside.parts[1], node.name].append(str(inside))
    return [f"{target} {name}: {', '.join(paths)}" for (target, name), paths in files.items() if len(paths) > 1]


def _constants() -> list[str]:
    files: dict[str, set[str]] = defaultdict(set)
    for path in (SOURCE / "targets" / "gemmini" / "timing").rglob("*.py"):
        for statement in tree(path).body:
            if isinstance(statement, ast.Assign | ast.AnnAssign):
                for node in ast.walk(statement):
                    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                        files[node.id].add(path.name)
    files.pop("__all__", None)
    return [f"{name}: {', '.join(sorted(paths))}" for name, paths in files.items() if len(paths) > 1]


def _called() -> list[str] | int:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE.parent)}
    for _ in range(2):  # the first compiles loops
        command = [sys.executable, "-c", CALLED, *RUN]
        done = subprocess.run(command, cwd=ROOT.parent, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            print(done.stderr, file=sys.stderr)
            return -1
    status, files = json.loads(done.stdout)
    inside = [str(Path(name).relative_to(SOURCE)) for name in files if Path(name).is_relative_to(SOURCE)]
    return -1 if status else inside


def _tests() -> dict[str, tuple[int, int]]:
    """Lines of the source and of the tests of each room; a target is one room."""
    rooms: dict[str, tuple[int, int]] = {}
    tests = ROOT.parent / "tests"
    for folder in sorted({_room(path.relative_to(SOURCE)) for path in FILES} - {Path()}):
        source = sum(_lines(path) for path in (SOURCE / folder).rglob("*.py"))
        tested = sum(_lines(path) for path in (tests / folder).rglob("*.py"))
        rooms[str(folder)] = (source, tested)
    return rooms


def _room(path: Path) -> Path:
    depth = 2 if path.parts[0] == "targets" else 1
    return Path(*path.parts[:-1][:depth])


def of_revision(revision: str) -> dict[str, Any]:
    """The figures of a commit: its source and examples, measured by this file."""
    with tempfile.TemporaryDirectory() as folder:
        packed = subprocess.run(
            ["git", "archive", revision, "src", "examples", "tests"], capture_output=True, check=True
        )
        with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
            archive.extractall(folder, filter="data")
        scripts = Path(folder) / "tests" / "structure"
        for path in (Path(__file__), Path(__file__).with_name("source.py")):
            (scripts / path.name).write_bytes(path.read_bytes())
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        command = [sys.executable, "-m", "tests.structure.figures", "--json"]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def main() -> None:
    arguments = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    here: dict[str, Any] = {"figures": measure(), "tests": _tests()}
    if "--json" in sys.argv:
        print(json.dumps(here))
        return
    columns = {revision[:12]: of_revision(revision) for revision in arguments} | {"now": here}
    print(f"{'figure':<42}{'issue 47':>10}{'asked':>9}" + "".join(f"{name:>13}" for name in columns))
    for name, (today, asked) in ISSUE.items():
        values = [column["figures"][name] for column in columns.values()]
        counts = [value if isinstance(value, int) else len(value) for value in values]
        print(f"{name:<42}{today:>10}{asked:>9}" + "".join(f"{count:>13,}" for count in counts))
    print("\nlines of source, of tests, and tests for a line")
    for room, (source, tests) in here["tests"].items():
        print(f"{room:<42}{source:>10,}{tests:>9,}{tests / source:>13.2f}")
    if "--lists" in sys.argv:
        for name, value in here["figures"].items():
            if isinstance(value, list):
                print("\n  ".join([f"\n{name}:", *value]))


if __name__ == "__main__":
    main()
