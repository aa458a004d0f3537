"""A stranger's walk: README, demo, first tutorial, own model, word for word in a fresh copy with an empty home.

    python bench/walk.py [LOG.md]

It copies the files that git knows into a new folder, takes the commands from README.md and from
docs/tutorials/own-network.md, runs them with no cache and no environment but PATH, HOME and pip's settings, and writes
a log with the wall and CPU seconds of each. Exit status 1 if a command fails, or if an output differs from the page.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.documents import pages

ROOT = Path(__file__).resolve().parents[1]
FIRST = "own-network"
#: Variables that a stranger's computer may have as well: where programs are, and where packages come from.
KEPT = re.compile(r"(?i)PATH|LANG|PIP_.*|SSL_CERT.*|.*_PROXY")
COLUMNS = "100"


def copied(into: Path) -> Path:
    """Copy the files that git knows into a new folder."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in filter(None, listed.decode().split("\0")):
        (into / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, into / name)
    return into


def from_readme() -> list[str]:
    """Return the first command of the README's first section, and that of the tutorial's extra."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    demo = re.search(r"^    (make demo)\b", text, re.M)
    index = (ROOT / "docs" / "tutorials" / "index.md").read_text(encoding="utf-8")
    activate, extra = (
        re.search(r"`(\. \.venv/bin/activate)`", index),
        re.search(r"`(pip install -e '\.\[onnx\]')`", index),
    )
    if not (demo and activate and extra):
        raise SystemExit("README.md or docs/tutorials/index.md no longer has the commands of the walk")
    return [demo[1], f"{activate[1]} && {extra[1]}"]


class Walk:
    """Runs commands in a folder, and keeps a log."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.lines, self.failed, self.wall = folder, list[str](), False, 0.0
        home = folder.parent / "home"
        home.mkdir()
        kept = {name: value for name, value in os.environ.items() if KEPT.fullmatch(name)}
        self.environment = {**kept, "HOME": str(home), "COLUMNS": COLUMNS, "NO_COLOR": "1"}

    def run(self, command: str, expected: str | None = None) -> None:
        """Run a command. With `expected`, compare what it prints."""
        start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        same = expected is None or pages.matches(expected, done.stdout)
        self.wall += wall
        self.failed |= bool(done.returncode) or not same
        verdict = f"status {done.returncode}" + (
            "" if expected is None else ", as the page" if same else ", NOT as the page"
        )
        said = f"{wall:.1f} s wall, {cpu:.1f} s CPU, {verdict}"
        print(f"{said}: {command.splitlines()[0]}", flush=True)
        self.lines += [f"## {said}", "", "```console", f"$ {command}", done.stdout.rstrip(), "```", ""]


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="tilewright-walk-") as name:
        walk = Walk(copied(Path(name, "tilewright")))
        for command in from_readme():
            walk.run(command)
        walk.environment["PATH"] = f"{walk.folder / '.venv' / 'bin'}{os.pathsep}{walk.environment['PATH']}"
        text = (walk.folder / "docs" / "tutorials" / f"{FIRST}.md").read_text(encoding="utf-8")
        for step in pages.steps(text):
            if isinstance(step, pages.Step) and step.python:
                (walk.folder / "step.py").write_text(step.code, encoding="utf-8")
                walk.run("python step.py", step.expected)
            elif isinstance(step, pages.Step):
                walk.run(step.code, step.expected)
    print(f"{walk.wall / 60:.1f} minutes in all, {'FAILED' if walk.failed else 'all as the pages say'}")
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text("\n".join(["# A stranger's walk", "", *walk.lines]), encoding="utf-8")
    return int(walk.failed)


if __name__ == "__main__":
    sys.exit(main())
