"""Texts that Python users also see must not spell options as the command line does.

`errors.option` chooses between the two spellings. A text may quote a whole command, which begins with `tilewright`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "tilewright"
FLAG = re.compile(r"(?<![\w-])(?:--[a-z][a-z-]*|-[a-z](?![\w-]))")
COMMAND = re.compile(r"\btilewright [a-z-]+[^;,]*$")
#: Options of other tools that Tilewright's command line has too: (file, option).
OTHERS = {("doctor.py", "--version")}


def own_flags() -> set[str]:
    """The options that the files of the command line declare, and those of single targets."""
    paths = [*(SOURCE / "cli").rglob("*.py"), *SOURCE.rglob("cli.py")]
    texts = [text for path in paths for text, _ in literals(ast.parse(path.read_text()))]
    return {flag for text in texts for part in text.split("/") for flag in FLAG.findall(part) if part.strip() == flag}


def literals(tree: ast.AST) -> Iterator[tuple[str, bool]]:
    """Yield the text of each string that is no docstring, and whether it is the shell's spelling of an option.

    The parts of an f-string are one text, in which values are `{}`.
    """
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id == "option" and tree.args:
        for text, _ in literals(tree.args[0]):
            yield text, len(tree.args) + len(tree.keywords) > 1 or FLAG.fullmatch(text) is not None
        for part in (tree.func, *tree.args[1:], *tree.keywords):
            yield from literals(part)
        return
    if isinstance(tree, ast.JoinedStr):
        parts = (part.value if isinstance(part, ast.Constant) else "{}" for part in tree.values)
        yield "".join(map(str, parts)), False
        for value in tree.values:
            if isinstance(value, ast.FormattedValue):
                yield from literals(value.value)
        return
    if isinstance(tree, ast.Constant) and isinstance(tree.value, str):
        yield tree.value, False
    for child in ast.iter_child_nodes(tree):
        if not (isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)):  # a docstring
            yield from literals(child)


def misspelt(code: str, flags: set[str], file: str = "") -> list[str]:
    """The texts of a file that name an option with dashes, without `option` and outside a whole command."""
    return [
        text
        for text, shell in literals(ast.parse(code))
        for found in FLAG.finditer(text)
        if not shell
        and text != found.group()[:2]  # an argument of a compiler
        and found.group() in flags
        and not COMMAND.search(text[: found.start()])
        and (file, found.group()) not in OTHERS
    ]


def test_no_text_outside_the_command_line_names_its_options() -> None:
    flags = own_flags()
    assert {"--shape", "--set", "--stride", "--width", "--json", "--view", "--no-cache", "-t"} <= flags
    wrong = {
        str(path.relative_to(SOURCE)): found
        for path in SOURCE.rglob("*.py")
        if path.relative_to(SOURCE).parts[0] != "cli"
        and path.stem != "cli"
        and FLAG.search(code := path.read_text())
        and (found := misspelt(code, flags, str(path.relative_to(SOURCE))))
    }
    assert not wrong


@pytest.mark.parametrize(
    "code",
    [
        'raise InputError("layout", "give --stride n,c,h,w")',
        'text = f"{kind} takes no width; leave --width out of {name}"',
        'text = "give " f"it by --set {key}=1"',
        'raise InputError(option("--set", "with --set"))',
        'raise InputError(option("--set and --width"))',
        "text = f\"{f(value, '--set')}\"",
        'text = "tilewright run does it; give --width"',
        "REMEDY = 'use `explain --width`'",
        "REMEDY = 'choose -t vta'",
    ],
)
def test_an_option_with_dashes_is_found(code: str) -> None:
    assert misspelt(code, {"--stride", "--width", "--set", "-t"})


@pytest.mark.parametrize(
    "code",
    [
        '"""Give --set."""',
        'def f():\n    "Give --set."',
        'raise InputError(option("--set"))',
        'raise InputError(option("give --set and --width", "give `set` and `width`"))',
        'text = "`tilewright run --set a=1 --width 4` does it"',
        'run(["cc", "--no-relax"])',
    ],
)
def test_other_texts_are_not(code: str) -> None:
    assert not misspelt(code, {"--stride", "--width", "--set"})
