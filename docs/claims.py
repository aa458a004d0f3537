"""Repeat the measured results that README.md and docs/ state, and write docs/claims.md.

    python -m docs.claims                 write docs/claims.md from docs/claims.toml
    python -m docs.claims check           repeat the quick claims, and compare
    python -m docs.claims check NAME ..   repeat these claims
    python -m docs.claims keep NAME ..    repeat them, and keep the value and the commit in docs/claims.toml

A page marks a result by `<!-- claim: NAME -->`, which stands alone before a paragraph or table, or inside it;
`<!-- claim section: NAME -->` marks all that follows up to the next heading. `<!-- not measured -->` marks figures that
only look like results, such as sizes of hardware.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from html import escape
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from time import perf_counter
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
DATA, PAGE = ROOT / "docs" / "claims.toml", ROOT / "docs" / "claims.md"
MARK = re.compile(r"<!-- (claim|not measured)( section)?(?:: ([^>]*?))? -->")
#: Claims that take at most so many minutes are quick.
QUICK = 0.5
#: What a claim may need beside the core package: whether it is here, and what it is.
NEEDS = {
    "golden": ("TILEWRIGHT_SHARED" in os.environ or (ROOT.parent / "shared").is_dir(), "golden data"),
    "onnx": (find_spec("onnxruntime") is not None, "extra onnx"),
    "rtl": (find_spec("amaranth") is not None, "extra rtl"),
    "explore": (find_spec("optuna") is not None, "extra explore"),
    "g++": (which("g++") is not None, "g++"),
    "gcc": (which("riscv64-unknown-elf-gcc") is not None, "RISC-V gcc"),
    "zig": (find_spec("ziglang") is not None, "extra cfu"),
    "chromium": (which("chromium") is not None, "Chromium"),
    "models": ("TILEWRIGHT_MODELS" in os.environ, "public models"),
    "vendor": ("TILEWRIGHT_TPU_MLIR" in os.environ, "tpu_mlir"),
    "cacti": (which("cacti") is not None, "CACTI"),
    "gemmini": ("TILEWRIGHT_GEMMINI_RTL" in os.environ, "generated RTL of Gemmini"),
}
TITLE = """# Claims

Look up here how a measured result of the documentation was found, and repeat it:

    $ make claims NAME=digits-vta     # without NAME, it repeats the quick claims
    equal    digits-vta: cycles of the digits on vta, and the report's lines on them, in 0.1 minutes
      $ tilewright run examples/digits/digits.tflite -t vta -i examples/digits/samples.npz
      stated: 5,329, 43.3%
      found:  5,329, 43.3%

There are {count} claims. For {compared} claims, an expression compares the output; {quick} claims are quick.

Each row is one claim: a figure, or the table that a benchmark prints. *Value* was measured last, at *commit*. Most
values are exact: a different value means that the program has changed. Host times depend on the computer, so a host
time is compared with a stated margin, or is not compared. "By eye" marks commands whose output you must compare
yourself. A claim needs the repository and the parts in the column *needs*; [golden data](golden-data.md) has its own
page.

The outputs in the [tutorials](tutorials/index.md) are claims as well: tests run each command and compare its output. A
test (`tests/documents/test_claims.py`) fails for a result in README.md or docs/ without a claim. In the source of a
page, `<!-- claim: NAME -->` marks a result. `python -m docs.claims` writes this page from `docs/claims.toml`.
"""


class Claim(NamedTuple):
    """A measured result: what is claimed, the command that measures it, and what was measured last.

    `find` is a regular expression whose matches in the command's output, joined by commas, are `value`. Without it, the
    value is compared by eye. `margin` is the percentage by which a value of the host may differ.
    """

    claim: str
    command: str
    minutes: float
    value: str
    commit: str
    needs: Sequence[str] = ()
    find: str = ""
    margin: float = 0

    @property
    def lacks(self) -> list[str]:
        """What this computer lacks to repeat the claim."""
        return [NEEDS[need][1] for need in self.needs if not NEEDS[need][0]]


def read() -> dict[str, Claim]:
    """Return all claims by name."""
    return {name: Claim(**entry) for name, entry in tomllib.loads(DATA.read_text(encoding="utf-8")).items()}


def pages() -> list[Path]:
    """The pages whose results are claims; tests run the commands of tutorials, and compare their outputs."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [path for path in found if path != PAGE and path.parent.name != "tutorials"]


def marks(text: str) -> Iterator[str]:
    """Yield the names of the claims that a page marks."""
    for kind, _, names in MARK.findall(text):
        if kind == "claim":
            yield from (name.strip() for name in names.split(","))


def repeat(claim: Claim) -> tuple[str, bool | None]:
    """Run a claim's command. Return what was found, and whether it is the value; None: to be compared by eye."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = {**os.environ, "PATH": path, "COLUMNS": "100", "NO_COLOR": "1", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", claim.command],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        return f"status {done.returncode}\n{done.stdout[-2000:]}", False
    if not claim.find:
        return done.stdout.strip(), None
    found = [match[1] for match in re.finditer(claim.find, done.stdout, re.M)]
    return ", ".join(found), same(found, claim)


def same(found: Sequence[str], claim: Claim) -> bool:
    """Return whether the values that were found are those of a claim."""
    stated = claim.value.split(", ")
    if not claim.margin or len(found) != len(stated):
        return list(found) == stated
    numbers = ((float(a.replace(",", "")), float(b.replace(",", ""))) for a, b in zip(found, stated, strict=True))
    return all(abs(a - b) <= claim.margin / 100 * b for a, b in numbers)


def check(names: Sequence[str], keep: bool = False) -> int:
    """Repeat claims ([]: the quick ones). Return the number of those whose values differ."""
    claims, differ = read(), 0
    quick = [name for name, claim in claims.items() if claim.find and claim.minutes <= QUICK]
    for name in names or quick:
        claim = claims[name]
        if claim.lacks:
            print(f"SKIPPED  {name}: needs {', '.join(claim.lacks)}")
            continue
        began = perf_counter()
        found, equal = repeat(claim)
        outcome = "by eye" if equal is None else "equal" if equal else "DIFFERS"
        print(f"{outcome:8} {name}: {claim.claim}, in {(perf_counter() - began) / 60:.1f} minutes\n  $ {claim.command}")
        print(f"  stated: {claim.value}\n  found:  {found}", flush=True)
        differ += equal is False
        if keep and equal is not None and not found.startswith("status"):
            _keep(name, found)
    return differ


def _keep(name: str, value: str) -> None:
    """Write a claim's value and the current commit into docs/claims.toml."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short=8", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    ).stdout.strip()
    before, head, rest = DATA.read_text(encoding="utf-8").partition(f"[{name}]\n")
    entry, gap, after = rest.partition("\n[")
    kept = {"value": value, "commit": commit}
    lines = entry.splitlines(keepends=True)
    for index, line in enumerate(lines):
        key = line.partition(" ")[0]
        if key in kept:
            lines[index] = f"{key} = '{kept[key]}'\n"
    DATA.write_text(before + head + "".join(lines) + gap + after, encoding="utf-8")


def page() -> str:
    """Return docs/claims.md: the claims by the page that states them first."""
    claims, stated = read(), dict[str, dict[Path, None]]()
    for path in pages():
        for name in marks(path.read_text(encoding="utf-8")):
            stated.setdefault(name, {})[path] = None
    compared = [claim for claim in claims.values() if claim.find]
    quick = sum(claim.minutes <= QUICK for claim in compared)
    parts = [TITLE.format(count=len(claims), compared=len(compared), quick=quick)]
    for path in pages():
        mine = {name: claim for name, claim in claims.items() if next(iter(stated.get(name, [])), None) == path}
        if mine:
            title = path.relative_to(ROOT).as_posix().removeprefix("docs/")
            parts.append(f"## {title}\n\n| name | claim | command | needs | minutes | value | commit |\n|{'---|' * 7}")
            parts += [_row(name, claim, list(stated[name])) for name, claim in mine.items()]
            parts[-1] += "\n"
    return "\n".join(parts)


def _row(name: str, claim: Claim, paths: Sequence[Path]) -> str:
    links = [f"[{path.stem}]({os.path.relpath(path, PAGE.parent)})" for path in paths]
    needs = ", ".join(NEEDS[need][1] for need in claim.needs) or "-"
    margin = f" (within {claim.margin:g} %)" if claim.margin else "" if claim.find else " (by eye)"
    cells = (
        f"`{name}`",
        f"{claim.claim} ({', '.join(links)})",
        f"<code>{escape(claim.command, quote=False)}</code>" if "|" in claim.command else f"`{claim.command}`",
        needs,
        f"{claim.minutes:g}",
        f"{claim.value}{margin}",
        f"`{claim.commit}`",
    )
    return f"| {' | '.join(_escaped(cell) for cell in cells)} |"


def _escaped(cell: str) -> str:
    return cell.replace("|", "&#124;")


def main(arguments: Sequence[str]) -> int:
    """Do what the command line says; return the exit status."""
    match arguments:
        case []:
            PAGE.write_text(page(), encoding="utf-8")
            return 0
        case ["check" | "keep" as word, *names]:
            if unknown := [name for name in names if name not in read()]:
                print(f"there is no claim {unknown[0]}; docs/claims.md lists them")
                return 2
            return int(check(names, word == "keep") > 0)
    print(__doc__)
    return 2


#: Results in prose: a number with a unit that somebody measured. Fewer than 100 cycles are mostly a rule of a machine.
_NUMBER = r"(?<![\w.])(?!100 ?%)\d[\d,]*(?:\.\d+)?"
_MANY = r" ?(?:k |M |million |thousand )?"
_UNITS = (
    *("s", "seconds", "ms", "us", "minutes", "hours", "%", "dB", "GMAC/s", "GB/s", "MB/s", "MiB/s"),
    *("GiB", "MiB", "GB", "MB", "pJ", "nJ", "uJ", "mJ", "LUTs", "LUT", "FPS"),
)
_CYCLES = r"(?<![\w.])(?:\d{3,}|[\d,]*,\d{3}|\d[\d,.]* ?(?:k|M|million)) ?cycles\b"
_TIMES = r"times (?:as|faster|slower|fewer|more|less|longer|shorter|its|the)\b"
RESULT = re.compile(rf"{_NUMBER}{_MANY}(?:(?:{'|'.join(map(re.escape, _UNITS))})(?![\w/])|{_TIMES})|{_CYCLES}")
#: Words in the heading of a column whose numbers are measured.
COLUMN = re.compile(
    r"\b(cycles|ratio|seconds|s|ms|us|time|speed-?up|MB|MiB|KiB|bytes|LUTs?|BRAM|DSP|nJ|uJ|energy|accuracy|top-1|SNR|dB|"
    r"utilisation|equal|passed|differ\w*|differences|missed|gap)\b|%",
    re.I,
)
CELL = re.compile(r"\|\s*\**~?[\d.,]+")
#: Numbers above 1,000 in two cells, as cycles are written: a table of results, whatever its headings say.
LARGE = re.compile(r"\| [\d,]*\d,\d{3}(?= \|)")


class Part(NamedTuple):
    """A paragraph, list, table or block of code of a page: its first line (from 1) and its text."""

    line: int
    text: str

    @property
    def states(self) -> str:
        """The result that the part states; "" if there is none."""
        if self.text.startswith("|"):
            head, _, rows = self.text.partition("\n")
            found = COLUMN.search(head)
            if found and CELL.search(rows.partition("\n")[2]):
                return f"a table of {found[0]}"
            return "a table of large numbers" if len(LARGE.findall(rows)) > 1 else ""
        plain = re.sub(r"`[^`\n]*`", "", self.text)
        result = RESULT.search(plain)
        return result[0] if result else ""


def split(text: str) -> Iterator[Part]:
    """Yield the parts of a page: lines between blank ones. A heading is a part, and a fenced block is."""
    lines: list[str] = []
    first, fenced = 1, False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        heading = line.startswith("#") and not fenced
        if lines and (heading or not (line.strip() or fenced)):
            yield Part(first, "\n".join(lines))
            lines = []
        if heading:
            yield Part(number, line)
        elif line.strip() or fenced:
            first = first if lines else number
            lines.append(line)
            fenced ^= line.lstrip().startswith("```")


def unmarked(text: str) -> Iterator[Part]:
    """Yield the parts of a page that state a result, and that no marker covers."""
    section = following = False
    for part in split(text):
        found = MARK.findall(part.text)
        if part.text.startswith("#"):
            section = following = False
        if any(whole for _, whole, _ in found):
            section = True
        elif found and not MARK.sub("", part.text).strip():
            following = True
        else:
            if part.states and not (section or following or found):
                yield part
            following = False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
