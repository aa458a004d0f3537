"""Measure how plainly the code is written: `python -m tests.structure.prose [REV ..] [--sample SEED]`.

A column for each revision and one for the work tree. Definitions, over all of src/tilewright:

- *parallel*: assignments of a tuple to a tuple, `a, b = x, y`, in % of all statements `=`. Unpacking does not count;
- *tokens a line*: names, operators, numbers and strings, docstrings left out, on lines that have at least one of them;
- *comments*: lines that are only a comment, and lines of docstrings, in % of all lines;
- *conditional expressions*: `x if y else z` on 1,000 lines;
- *vague names*: uses of a variable, parameter, attribute, function or class called by one of VAGUE, in any case, with
  any underscores;
- *vague words*: the same words in docstrings and comments, where some are plain English;
- *words of docs*: of docs/**/*.md and README.md, with the pages that are made by scripts.

`--sample SEED` prints SHARES sentences in a random order, for a reader who has not seen the code.
"""

from __future__ import annotations

import ast
import io
import random
import re
import subprocess
import sys
import tarfile
import tempfile
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]
VAGUE = ("found", "own", "one", "known", "made", "other", "each")
VAGUE_NAME = re.compile(rf"_*({'|'.join(VAGUE)})_*", re.IGNORECASE)
SHARES = {"docstring": 45, "comment": 20, "message": 12, "docs": 23}
CODE = {tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
#: A sentence ends at a stop before a capital letter; "e.g. X" and "file.py" do not end one.
END = re.compile(r"(?<=[.!?:])\s+(?=[A-Z`'\"(])")


def files(root: Path) -> list[Path]:
    return sorted((root / "src" / "tilewright").rglob("*.py"))


def pages(root: Path) -> list[Path]:
    return [root / "README.md", *sorted((root / "docs").rglob("*.md"))]


def measure(root: Path) -> dict[str, float]:
    """Every measure of the tree at `root`."""
    counts: Counter[str] = Counter()
    for path in files(root):
        text = path.read_text(encoding="utf-8")
        counts["lines"] += text.count("\n")
        _count_nodes(ast.parse(text), counts)
        _count_tokens(text, counts)
    words = sum(len(page.read_text(encoding="utf-8").split()) for page in pages(root))
    return {
        "lines": counts["lines"],
        "parallel assignments, %": 100 * counts["parallel"] / counts["assignments"],
        "tokens a line": (counts["tokens"] - counts["docstrings"]) / (counts["code lines"] - counts["docstring lines"]),
        "comment lines, %": 100 * counts["comment lines"] / counts["lines"],
        "docstring lines, %": 100 * counts["docstring lines"] / counts["lines"],
        "conditional expressions on 1,000 lines": 1000 * counts["conditional"] / counts["lines"],
        "vague names": counts["vague names"],
        "vague words": counts["vague words"],
        "words of docs": words,
    }


def _count_nodes(module: ast.Module, counts: Counter[str]) -> None:
    for node in ast.walk(module):
        if isinstance(node, ast.Assign):
            counts["assignments"] += 1
            counts["parallel"] += isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple)
        elif isinstance(node, ast.IfExp):
            counts["conditional"] += 1
        name = name_of(node)
        counts["vague names"] += name is not None and bool(VAGUE_NAME.fullmatch(name))
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node):
            expression = node.body[0]
            assert expression.end_lineno is not None
            counts["docstrings"] += 1
            counts["docstring lines"] += expression.end_lineno - expression.lineno + 1
            counts["vague words"] += _vague_words(ast.get_docstring(node) or "")


def name_of(node: ast.AST) -> str | None:
    """The identifier that a node of the syntax tree uses or binds; None where it has no name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.arg | ast.keyword):
        return node.arg
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return node.name
    return None


def _count_tokens(text: str, counts: Counter[str]) -> None:
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in CODE:
            counts["tokens"] += 1
            lines.update(range(token.start[0], token.end[0] + 1))
        elif token.type == tokenize.COMMENT:
            counts["comment lines"] += not token.line[: token.start[1]].strip()
            counts["vague words"] += _vague_words(token.string)
    counts["code lines"] += len(lines)


def _vague_words(text: str) -> int:
    return sum(word in VAGUE for word in re.findall(r"[a-z]+", text.lower()))


def sentences(root: Path) -> dict[str, list[str]]:
    """Every sentence of each kind of SHARES, with the file that it stands in."""
    collected: dict[str, list[str]] = {kind: [] for kind in SHARES}
    for path in files(root):
        text = path.read_text(encoding="utf-8")
        where = path.relative_to(root / "src" / "tilewright")
        for kind, paragraph in (*_of_nodes(ast.parse(text)), *_comments(text)):
            collected[kind] += [f"[{where}] {sentence}" for sentence in _split(paragraph)]
    for page in pages(root):
        for paragraph in _prose(page.read_text(encoding="utf-8")):
            collected["docs"] += [f"[{page.relative_to(root)}] {sentence}" for sentence in _split(paragraph)]
    return collected


def _of_nodes(module: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(module):
        if isinstance(node, DOCUMENTED):
            for paragraph in (ast.get_docstring(node) or "").split("\n\n"):
                yield "docstring", paragraph
        elif isinstance(node, ast.Call) and (name_of(node.func) or "").endswith("Error"):
            for argument in node.args:
                if isinstance(argument, ast.Constant | ast.JoinedStr):
                    yield "message", ast.unparse(argument).strip("f'\"")


def _comments(text: str) -> Iterator[tuple[str, str]]:
    """Blocks of comment lines, and comments that stand behind code."""
    block: list[str] = []
    for line in [*text.splitlines(), ""]:
        stripped = line.strip()
        if stripped.startswith("#"):
            block.append(stripped.lstrip("#: "))
            continue
        if block:
            yield "comment", " ".join(block)
        block = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and token.line[: token.start[1]].strip():
            yield "comment", token.string.lstrip("# ")


def _prose(page: str) -> Iterator[str]:
    """Paragraphs and list items of a page, without code, tables, headings and HTML."""
    page = re.sub(r"^(```.*?^```|<!--.*?-->)", "", page, flags=re.DOTALL | re.MULTILINE)
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", page):
        if not re.match(r"\s*(#|\||<|    )", paragraph):
            yield paragraph


def _split(paragraph: str) -> list[str]:
    """The sentences of a paragraph that have at least four words."""
    return [sentence for sentence in END.split(" ".join(paragraph.split())) if len(sentence.split()) >= 4]


def sample(root: Path, seed: int) -> list[str]:
    chooser = random.Random(seed)
    collected = sentences(root)
    chosen = [(kind, text) for kind, count in SHARES.items() for text in chooser.sample(collected[kind], count)]
    chooser.shuffle(chosen)
    return [f"{number:3} {kind:<10}{text}" for number, (kind, text) in enumerate(chosen, start=1)]


def of_revision(revision: str) -> dict[str, float]:
    """The measures of a commit."""
    with tempfile.TemporaryDirectory() as folder:
        packed = subprocess.run(
            ["git", "archive", revision, "src", "docs", "README.md"], cwd=HERE, capture_output=True, check=True
        )
        with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
            archive.extractall(folder, filter="data")
        return measure(Path(folder))


def main(arguments: list[str]) -> None:
    if "--sample" in arguments:
        seed = int(arguments[arguments.index("--sample") + 1], 0)
        print(f"seed {seed}\n" + "\n".join(sample(HERE, seed)))
        return
    columns = {revision[:12]: of_revision(revision) for revision in arguments} | {"now": measure(HERE)}
    print(f"{'measure':<42}" + "".join(f"{name:>13}" for name in columns))
    for name in columns["now"]:
        print(
            f"{name:<42}"
            + "".join(f"{column[name]:>13,.{'%' in name or ' a ' in name:d}f}" for column in columns.values())
        )


if __name__ == "__main__":
    main(sys.argv[1:])
