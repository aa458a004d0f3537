"""Run the commands and the Python of a page of the documentation, and compare what they print.

Fenced blocks by their language:

- `console`: a line `$ COMMAND` is run by bash; the lines up to the next one are what it prints. A command that ends
  with `# status N` must end with this status, all others with 0.
- `python`: run in one namespace for the page. A `text` block that follows is what it prints.
- any language with `title="FILE"`: the block is written to this file.

Lines `...` stand for any lines, and ` ...` inside a line for its rest. Seconds are compared as `N s`.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[2]
#: Wall times, the only thing that may differ from run to run.
SECONDS = re.compile(r"\b\d[\d,]*(\.\d+)? ?s\b")
STATUS = re.compile(r"# status (\d+)$")
TITLE = re.compile(r'title="([^"]+)"')
#: Seconds after which a command is taken as hanging.
TIMEOUT = 900


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the rest of its info line, its text, and its first line in the page (from 0)."""

    language: str
    info: str
    text: str
    line: int

    @property
    def title(self) -> str | None:
        """The file that the block shows, if any."""
        found = TITLE.search(self.info)
        return found[1] if found else None


@dataclass(frozen=True)
class Step:
    """A command or a piece of Python, what it should print, and the lines of the page that say so."""

    code: str
    python: bool
    expected: str
    first: int
    last: int
    status: int = 0


def blocks(text: str) -> list[Block]:
    """Return the fenced blocks of a page in Markdown."""
    fences = [token for token in MarkdownIt().parse(text) if token.type == "fence" and token.map]
    made = []
    for token in fences:
        language, _, info = token.info.strip().partition(" ")
        made.append(Block(language, info, token.content, (token.map or [0])[0] + 1))
    return made


def steps(text: str) -> Iterator[Step | Block]:
    """Yield what a page does, in order: steps to run, and blocks that are files."""
    found = blocks(text)
    for number, block in enumerate(found):
        if block.title:
            yield block
        elif block.language == "python":
            after = found[number + 1] if number + 1 < len(found) else None
            size = len(block.text.splitlines())
            follows = after is not None and after.language == "text" and after.line <= block.line + size + 4
            shown = after.text if after and follows else ""
            first = after.line if after and follows else -1
            yield Step(block.text, True, shown, first, first + len(shown.splitlines()))
        elif block.language == "console":
            yield from _commands(block)


def _commands(block: Block) -> Iterator[Step]:
    lines = block.text.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("$ ")]
    assert starts[:1] == [0], f"line {block.line}: a console block begins with `$ `"
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        code, after = [lines[start][2:]], start + 1
        while code[-1].endswith("\\"):
            code.append(lines[after])
            after += 1
        status = STATUS.search(code[-1])
        shown = "\n".join(lines[after:end])
        yield Step("\n".join(code), False, shown, block.line + after, block.line + end, int(status[1]) if status else 0)


def matches(expected: str, printed: str) -> bool:
    """Return whether a program printed what a page shows."""
    wanted = [SECONDS.sub("N s", line.rstrip()) for line in expected.strip("\n").splitlines()]
    lines = [SECONDS.sub("N s", line.rstrip()) for line in printed.strip("\n").splitlines()]
    pattern = ""
    for line in wanted:
        rest, cut, _ = line.partition(" ...")
        pattern += "(?:.*\n)*?" if line.strip() == "..." else re.escape(rest) + (".*" if cut else "") + "\n"
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in lines)) is not None


def environment(cache: Path) -> dict[str, str]:
    """Return the environment of a page's commands: this Python's programs first, a cache of its own, no colours."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    kept = {name: value for name, value in os.environ.items() if name not in ("TILEWRIGHT_NO_CACHE", "FORCE_COLOR")}
    return {
        **kept,
        "PATH": path,
        "TILEWRIGHT_CACHE_DIR": str(cache),
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "LC_ALL": "C.UTF-8",
    }


def run(page: Path, folder: Path, update: bool = False) -> list[str]:
    """Run a page in `folder`, beside a copy of the examples. Return a text for each difference.

    With `update`, the page is written anew with what was printed.
    """
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    text = page.read_text(encoding="utf-8")
    lines, moved = text.splitlines(), 0
    namespace: dict[str, Any] = {"__name__": "__page__"}
    wrong = []
    with chdir(folder):
        for step in steps(text):
            if isinstance(step, Block):
                assert step.title
                Path(step.title).parent.mkdir(parents=True, exist_ok=True)
                Path(step.title).write_text(step.text, encoding="utf-8")
                continue
            printed, status = _python(step, namespace) if step.python else _shell(step, folder)
            if status != step.status:
                wrong.append(f"{page.name}: status {status}, not {step.status}, of {step.code}\n{printed}")
                break
            if not matches(step.expected, printed):
                wrong.append(f"{page.name}: {step.code}\nprints\n{printed}\ninstead of\n{step.expected}")
                if update and step.first >= 0:
                    new = [line.rstrip() for line in printed.strip("\n").splitlines()]
                    lines[step.first + moved : step.last + moved] = new
                    moved += len(new) - (step.last - step.first)
    if update:
        page.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
    return wrong


def _shell(step: Step, folder: Path) -> tuple[str, int]:
    done = subprocess.run(
        ["bash", "-c", step.code],
        env=environment(folder / ".cache"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    return done.stdout, done.returncode


def _python(step: Step, namespace: dict[str, Any]) -> tuple[str, int]:
    out = io.StringIO()
    with redirect_stdout(out):
        exec(compile(step.code, "page", "exec"), namespace)
    return out.getvalue(), 0


def main() -> None:
    """`python -m tests.documents.pages PAGE...` writes what the commands of pages print into the pages."""
    import tempfile

    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as folder:
            for text in run(Path(name).resolve(), Path(folder), update=True):
                print(text, end="\n\n")


if __name__ == "__main__":
    main()
