"""Names of files that are hostile to a terminal, a spreadsheet, a compiler or a notebook: none gets through."""

from __future__ import annotations

import ast
import csv
import json
import os
import pty
import re
import sys
import zipfile
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.conftest import ROOT
from tilewright.cli import main, options
from tilewright.errors import LONGEST, HazardError, InputError, plain
from tilewright.explore import results
from tilewright.files import write_outputs
from tilewright.program import driver, words
from tilewright.program.file import load
from tilewright.report import notebook, render
from tilewright.report.table import Grid
from tilewright.run import run
from tilewright.sim.findings import RACE, Finding

DIGITS = ROOT / "examples" / "digits" / "digits.tflite"
SOURCE = ROOT / "src" / "tilewright"
#: Clears the screen, names the window, turns the direction of writing, ends a line for some programs.
HOSTILE = "\x1b[2J\x1b]0;x\x07\x9b2J\u202e\u200f\u2028\x7f\ue000"
#: What rich and prompt_toolkit write themselves: styles and the cursor.
OURS = re.compile(r"\x1b\[[0-9;?]*[mKlhA]")
#: What a stranger may give as a name, for text in other languages than a terminal's.
NAMES = (
    HOSTILE,
    "../../etc/x",
    "/etc/x",
    "..",
    "C:\\x",
    "a\0b",
    "",
    "~root",
    "x" * 5000,
    '"; system("x"); //',
    "\\",
    "*/ int x; /*",
    "??/",
    "@bases@",
    "line\nline",
    "#define x",
    "=1+1",
    "<script>x</script>",
    "\"'><img src=x>",
    "$\\frac",
    "{{x}}",
    "[bold]x",
    "\ud800",
    "\U000e0041",
)


def unprintable(text: str) -> set[str]:
    return {letter for letter in OURS.sub("", text) if not letter.isprintable() and letter not in "\n\t\r"}


def rewritten(path: Path, to: Path) -> Path:
    """A copy of a program or run with hostile text in the names of its layers, launches, tensors and its model."""

    def hostile(value: Any, names: set[str]) -> Any:
        if isinstance(value, dict):
            return {key + HOSTILE if key in names else key: hostile(item, names) for key, item in value.items()}
        if isinstance(value, list):
            return [hostile(item, names) for item in value]
        return value + HOSTILE if isinstance(value, str) and value in names else value

    nodes = [node.name for node in tw.load(str(DIGITS)).nodes]
    names = {"digits", *nodes, *tw.load(str(DIGITS)).tensors}
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(to, "w") as new:
        for member in old.namelist():
            data = old.read(member)
            if not member.endswith(".npy"):
                data = json.dumps(hostile(json.loads(data), names)).encode()
            new.writestr(member, data)
    return to


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a program, a run of it and its text, all with hostile names."""
    folder = tmp_path_factory.mktemp("hostile")
    made, ran = folder / "made.twp", folder / "ran.twr"
    assert main(["compile", str(DIGITS), "-t", "vta", "-o", str(made)]) == 0
    assert main(["exec", str(made), "--save", str(ran)]) == 0
    rewritten(made, folder / "p.twp")
    rewritten(ran, folder / "r.twr")
    (folder / "p.txt").write_text(f".launch a\n.code\n{HOSTILE}{'y' * 9999}\n", encoding="utf-8")
    (folder / "c.json").write_text(json.dumps({HOSTILE: 1}))
    (folder / "d.txt").write_text("where\nlist\nlaunches\ntensors\nstep 9\nunits\nshow\n")
    return folder


COMMANDS = [
    ["exec", "p.twp"],
    ["exec", "p.twp", "--json"],
    ["check", "p.twp"],
    ["disasm", "p.twp"],
    ["compare", "ran.twr", "r.twr"],
    ["debug", "p.twp", "--script", "d.txt"],
    ["debug", "p.twp", "--script", "p.txt"],
    ["asm", "p.txt", "-o", "o.twp"],
    ["targets", HOSTILE],
    ["run", str(DIGITS), "-t", "vta", "-c", "c.json"],
    ["run", HOSTILE, "-t", "vta"],
    [HOSTILE],
    ["exec", "p.twp", f"--{HOSTILE}"],
]


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda arguments: ascii(arguments[0]))
def test_commands_print_printable_text(
    arguments: list[str], hostile: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(hostile)
    status = main(arguments)
    printed, said = capsys.readouterr()
    assert status in (0, 1, 2) and printed + said
    assert not unprintable(printed + said)
    assert all(len(line) <= 3 * LONGEST + 20 for line in said.splitlines())


@pytest.mark.parametrize("arguments", [["asm", "p.txt", "-o", "o.twp"], ["exec", "p.twp"]], ids=lambda words: words[0])
def test_a_terminal_gets_printable_text(arguments: list[str], hostile: Path) -> None:
    """At a pseudo-terminal, where rich draws colours and a bar of the progress."""
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(hostile)
        os.execve(sys.executable, [sys.executable, "-m", "tilewright", *arguments], {**os.environ, "TERM": "xterm"})
    data = b""
    while True:
        try:
            data += (part := os.read(terminal, 1 << 16))
        except OSError:  # the process has ended
            break
        if not part:
            break
    os.waitpid(process, 0)
    os.close(terminal)
    text = data.decode()
    assert "tilewright" in text or "digits" in text
    assert not unprintable(text)


def test_disassembled_text_is_read_back_exactly(hostile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["disasm", str(hostile / "p.twp")]) == 0
    text = capsys.readouterr().out
    assert text.replace("\n", "").isascii() and not unprintable(text)
    (hostile / "again.txt").write_text(text)
    assert main(["asm", str(hostile / "again.txt"), "-t", "vta", "-o", str(hostile / "again.twp")]) == 0
    names = [launch.name for launch in load(str(hostile / "p.twp")).launches]
    assert [launch.name for launch in load(str(hostile / "again.twp")).launches] == names
    assert HOSTILE in names[0]


def test_json_keeps_names_exactly(capsys: pytest.CaptureFixture[str]) -> None:
    options.answer(True, {HOSTILE: "\x7f"})
    assert json.loads(line := capsys.readouterr().out) == {HOSTILE: "\x7f"}
    assert not unprintable(line)


def test_every_unprintable_character_is_replaced() -> None:
    text = "".join(map(chr, range(0x110000)))
    shown = plain(text)
    assert len(shown) == len(text)
    assert not unprintable(shown.replace("\r", ""))
    assert all(letter in "?\n\t" or letter == given for letter, given in zip(shown, text, strict=True))


def test_errors_are_printable_and_short() -> None:
    for error in (InputError(HOSTILE, HOSTILE, HOSTILE), HazardError("x", HOSTILE), InputError(HOSTILE, "y" * 10**6)):
        assert not unprintable(str(error))
        assert len(str(error)) <= 3 * LONGEST
    assert str(InputError("a", "x" * 10**6, "do this")).endswith("; do this")


def test_tables_findings_and_bars_are_printable(capfd: pytest.CaptureFixture[str]) -> None:
    made = Grid(("name", "number"), ("number",))
    made.add_row(HOSTILE, HOSTILE * 1000)
    render.console().print(made)
    render.show_findings([Finding(RACE, HOSTILE * 1000, (1,), launch=HOSTILE)])
    console = render.console(sys.stderr)
    console.print(HOSTILE, markup=False)
    printed, said = capfd.readouterr()
    assert not unprintable(printed + said)
    assert max(map(len, printed.splitlines())) <= 2 * LONGEST


def test_text_is_printed_in_one_place() -> None:
    """A command prints by `say`, or on the console of `render`; nothing else knows click's or rich's way."""
    for path in SOURCE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if path.name != "options.py":
            assert "click.echo" not in text and "click.secho" not in text, path
        assert "rich.print" not in text and (path.name == "render.py" or not re.search(r"\bConsole\(", text)), path


def test_names_in_python_are_printable(hostile: Path) -> None:
    program = load(str(hostile / "p.twp"))
    assert program.graph
    result = run(program, np.zeros((1, 8, 8, 1), np.int8))
    graph = program.graph
    shown = [program, graph, result, *program.launches, *graph.nodes, *graph.tensors.values(), *result.layers]
    assert not unprintable("".join(map(repr, shown)))
    assert not unprintable(result._repr_html_())


@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name)[:20])
def test_hostile_names(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name in a C string, in assembly text, in a notebook, in a spreadsheet, in an archive."""
    literal = driver.string(name)
    assert ast.literal_eval("b" + literal) == name.encode("utf-8", "replace")  # octal escapes are those of C
    assert literal.isascii() and literal.isprintable() and "??" not in literal
    (tmp_path / "t.c").write_text("const char *a = @a@, *b = @b@;")
    filled = driver.filled(tmp_path, ["t.c"], {"a": driver.string(name), "b": driver.string("@a@"), "bases": "wrong"})
    assert filled["t.c"].decode() == f'const char *a = {literal}, *b = "@a@";'

    quoted = words.NAME.show(name)
    assert (quoted.isprintable() and quoted.isascii()) or not name
    assert words.NAME.read(words.Word(quoted, 1, 1)) == name

    parser = Tags()
    parser.feed(f"<p>{notebook._text(name)}</p>")
    assert parser.tags == ["p"] and not unprintable(notebook._text(name))
    assert not re.search(r"(?<!\\)\$", notebook._label(name)) and not unprintable(notebook._label(name))

    write_outputs(
        tmp_path / "o.npz", {"first": np.zeros(2), name: np.ones(2), "outputs": np.ones(1), f"{name} ": np.ones(3)}
    )
    with zipfile.ZipFile(tmp_path / "o.npz") as archive:
        members = archive.namelist()
    assert len(set(members)) == 5 and "outputs.npy" in members
    for member in members:
        assert member.isprintable() and ".." not in member and not re.search(r"[/\\\0]|^[.~]|^[A-Za-z]:", member)
        assert len(member) < 255


class Tags(HTMLParser):
    """The tags of an HTML text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)


@pytest.mark.parametrize(
    "text",
    ["=1+1", "+A1", "-A1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", " =1", "\uff1d1", "-1+1", "=", "-2+cmd|' /C calc'!A0"],
)
def test_no_cell_is_a_formula(text: str, tmp_path: Path) -> None:
    study = study_of([("k", text)], reason=text)
    results.write_csv(study, tmp_path / "t.csv")
    with (tmp_path / "t.csv").open(newline="") as file:
        (_, row) = csv.reader(file)
    assert row[2] == row[4] == f"'{text}".replace("\r", " ")


@pytest.mark.parametrize("text", ["-1", "+1", "-1.5e-3", "1", "a=b", "1+1", "", "x-y", ".5"])
def test_numbers_and_plain_text_stay(text: str, tmp_path: Path) -> None:
    results.write_csv(study_of([("k", text)], reason="", cycles=-3), tmp_path / "t.csv")
    with (tmp_path / "t.csv").open(newline="") as file:
        (heads, row) = csv.reader(file)
    assert (row[heads.index("k")], row[heads.index("cycles")]) == (text, "-3")


def study_of(keys: list[tuple[str, str]], reason: str, **values: int) -> Any:
    """A study with one trial, as far as a table needs it."""
    trial = SimpleNamespace(point=0, status="ok", reason=reason, set=dict(keys), values=values, seconds=0.5)
    axes = [SimpleNamespace(key=key) for key, _ in keys]
    return SimpleNamespace(trials={0: trial}, space=SimpleNamespace(axes=axes), front=lambda: [])
