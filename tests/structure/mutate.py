"""Break code on purpose, one place at a time, and count how often the tests notice it.

`python -m tests.structure.mutate FILE.. --tests PATH.. [--seed 0] [--count 100] [--workers 1] [--warm]`

A mutant changes an integer or a flag, swaps an operator or a comparison, negates a condition, or drops a statement. The
mutants are drawn from all places of the files, the same ones for the same seed. For each, the tests run in a copy of
the work tree, up to the first failure, and at most three times as long as without a mutant (a mutant that takes longer
counts as killed). The cache folder of a mutant is empty, so that no loop that was compiled from other source is used;
`--warm` gives it that of the unchanged source instead, which is right for files that no compiled loop depends on.

Printed are the survivors, each with its line before and after. The exit status is 1 if less than 90 % were killed.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: What an operator becomes, by the text between its operands.
OPERATORS = {
    **{"+": "-", "-": "+", "*": "+", "//": "*", "/": "*", "%": "//", "<<": ">>", ">>": "<<", "&": "|", "|": "&"},
    **{"^": "|", "**": "*", "@": "+", "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="},
    **{"in": "not in", "not in": "in", "is": "is not", "is not": "is", "and": "or", "or": "and"},
}
#: Statements that are dropped. A return becomes one of None.
DROPPED = (ast.Expr, ast.Assign, ast.AugAssign, ast.Raise, ast.Return, ast.Delete, ast.Continue, ast.Break)


@dataclass(frozen=True)
class Mutant:
    """A part of a file, from `start` to `end` in bytes, and the text in its place."""

    path: Path
    start: int
    end: int
    text: str

    def source(self) -> bytes:
        before = (ROOT / self.path).read_bytes()
        return before[: self.start] + self.text.encode() + before[self.end :]

    def __str__(self) -> str:
        before = (ROOT / self.path).read_bytes()
        line = before.count(b"\n", 0, self.start)
        old, new = before.decode().splitlines()[line], self.source().decode().splitlines()[line]
        return f"{self.path}:{line + 1}\n  - {old.strip()}\n  + {new.strip()}"


class Places:
    """The places of a file at which it can be changed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.bytes = (ROOT / path).read_bytes()
        self.lines = [0]
        for line in self.bytes.splitlines(keepends=True):
            self.lines.append(self.lines[-1] + len(line))

    def mutants(self) -> Iterator[Mutant]:
        yield from self._inside(ast.parse(self.bytes))

    def _inside(self, node: ast.AST) -> Iterator[Mutant]:
        """Yield mutants of a node and of all inside it, but for annotations, decorators, imports and docstrings."""
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list"):
                continue
            for inner in value if isinstance(value, list) else [value]:
                if isinstance(inner, ast.AST) and not isinstance(inner, ast.Import | ast.ImportFrom | ast.JoinedStr):
                    if isinstance(inner, ast.Expr) and isinstance(inner.value, ast.Constant):
                        continue  # a docstring
                    yield from self._of(inner)
                    yield from self._inside(inner)

    def _of(self, node: ast.AST) -> Iterator[Mutant]:
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            changed = not node.value if isinstance(node.value, bool) else node.value + 1
            yield self._mutant(node, str(changed))
        elif isinstance(node, ast.BinOp):
            yield from self._operator(node.left, node.right)
        elif isinstance(node, ast.BoolOp):
            yield from self._operator(node.values[0], node.values[1])
        elif isinstance(node, ast.Compare):
            yield from self._operator(node.left, node.comparators[0])
        elif isinstance(node, DROPPED):
            yield self._mutant(node, "pass")
        if isinstance(node, ast.If | ast.While | ast.IfExp):
            condition = self.bytes[self._at(node.test) : self._end(node.test)].decode()
            yield self._mutant(node.test, f"(not ({condition}))")

    def _operator(self, left: ast.expr, right: ast.expr) -> Iterator[Mutant]:
        """Swap the operator between two operands, which may have parentheses around them and lie on two lines."""
        between = self.bytes[self._end(left) : self._at(right)].decode()
        operator = between.strip("() \n")
        if operator in OPERATORS:
            start = self._end(left) + between.index(operator)
            yield Mutant(self.path, start, start + len(operator), OPERATORS[operator])

    def _mutant(self, node: ast.expr | ast.stmt, text: str) -> Mutant:
        return Mutant(self.path, self._at(node), self._end(node), text)

    def _at(self, node: ast.expr | ast.stmt) -> int:
        return self.lines[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self.lines[node.end_lineno - 1] + node.end_col_offset


class Trial:
    """Copies of the work tree in which tests are run."""

    def __init__(self, folder: Path, tests: list[str], warm: bool) -> None:
        self.folder = folder
        self.tests = tests
        self.warm = warm
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        self.files = [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]
        self.shared = os.environ.get("TILEWRIGHT_SHARED", str(ROOT.parent / "shared"))
        self._copy("unchanged")
        (folder / "unchanged" / "cache").mkdir()
        started = time.monotonic()
        status = self._pytest("unchanged", None)
        self.limit = 3 * (time.monotonic() - started)
        if status:
            sys.exit(f"the tests fail without a mutant: {' '.join(tests)}")
        print(f"the tests pass in {self.limit / 3:.1f} s without a mutant", flush=True)

    def outcome(self, number: int, mutant: Mutant) -> str:
        """Say whether the tests notice a mutant: killed, timed out, or survived."""
        name = f"mutant{number}"
        self._copy(name)
        if self.warm:
            shutil.copytree(self.folder / "unchanged" / "cache", self.folder / name / "cache")
        (self.folder / name / mutant.path).write_bytes(mutant.source())
        try:
            return "killed" if self._pytest(name, self.limit) else "survived"
        except subprocess.TimeoutExpired:
            return "timed out"
        finally:
            shutil.rmtree(self.folder / name)

    def _copy(self, name: str) -> None:
        for file in self.files:
            (self.folder / name / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / file, self.folder / name / file)

    def _pytest(self, name: str, limit: float | None) -> int:
        folder = self.folder / name
        environment = {
            **os.environ,
            "PYTHONPATH": str(folder / "src"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "TILEWRIGHT_CACHE_DIR": str(folder / "cache"),
            "TILEWRIGHT_SHARED": self.shared,
        }
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", *self.tests]
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return process.wait(limit)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)  # with the processes that the tests began
            process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path, help="files to change")
    parser.add_argument("--tests", nargs="+", required=True, help="arguments of pytest")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--warm", action="store_true", help="loops compiled from the unchanged source may be used")
    arguments = parser.parse_args()
    paths = [path.resolve().relative_to(ROOT) for path in arguments.files]
    mutants = [mutant for path in paths for mutant in Places(path).mutants() if _valid(mutant)]
    chosen = random.Random(arguments.seed).sample(mutants, min(arguments.count, len(mutants)))
    print(f"{len(chosen)} of {len(mutants)} mutants, seed {arguments.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(arguments.workers) as pool:
        trial = Trial(Path(folder), arguments.tests, arguments.warm)
        outcomes = []
        for mutant, outcome in zip(chosen, pool.map(trial.outcome, range(len(chosen)), chosen), strict=True):
            outcomes.append(outcome)
            if outcome != "killed":
                print(f"{outcome}: {mutant}", flush=True)
    survived = outcomes.count("survived")
    print(f"{len(outcomes) - survived} of {len(outcomes)} killed, {outcomes.count('timed out')} of them timed out")
    sys.exit(survived * 10 > len(outcomes))


def _valid(mutant: Mutant) -> bool:
    """Whether a mutant is Python, and another program than before."""
    try:
        return ast.dump(ast.parse(mutant.source())) != ast.dump(ast.parse((ROOT / mutant.path).read_bytes()))
    except SyntaxError:
        return False


if __name__ == "__main__":
    main()
