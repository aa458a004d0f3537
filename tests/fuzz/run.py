"""Run commands on damaged files in a child process, whose address space and time are limited."""

from __future__ import annotations

import io
import os
import resource
import shutil
import signal
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TextIO, cast
from zlib import crc32

import numpy as np

from tests.fuzz.kinds import KINDS, Kind
from tilewright.cli import DEFECT, main
from tilewright.errors import HazardError, TilewrightError

#: Seconds of one command, and bytes by which it may grow the process.
SECONDS, GROWTH = 60, 3 << 30
#: What `MemoryError` says: a file made the program ask for more than GROWTH.
#: An advice for a model that does not hinder a run.
ADVICE = "make it int8: tilewright quantize"
NO_MEMORY = "not enough memory"


@dataclass(frozen=True)
class Result:
    """What became of the damaged files of a kind: how many ended with each status, and what went wrong."""

    statuses: Counter[int]
    failures: tuple[str, ...]


def run(kind: Kind, seed: int, numbers: range, folder: Path) -> Result:
    """Try some cases of a kind; those below 0 are its commands on undamaged files.

    `python -m tests.fuzz NAME --seed SEED --first NUMBER --count 1` tries one case.
    """
    good = folder / "good"
    good.mkdir(parents=True)
    with redirect_stdout(io.StringIO()):
        kind.make(good)
    statuses, failures, start = Counter[int](), list[str](), max(numbers.start, -len(kind.commands))
    while start < numbers.stop:  # a case that ends the child is not tried again
        notes = folder / "notes"
        notes.write_text("")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # fork beside threads, which the child does not use
            child = os.fork()
        if not child:
            _child(kind, seed, range(start, numbers.stop), folder, notes)
        _, ended = os.waitpid(child, 0)
        lines = [line.split(" ", 2) for line in notes.read_text().splitlines()]
        statuses.update(int(status) for _, status, _ in lines if status != "begun")
        failures += [f"{_name(kind, seed, int(number))}: {text}" for number, _, text in lines if text]
        start = numbers.stop
        if ended:
            number = int(lines[-1][0])
            how = signal.Signals(ended & 127).name if ended & 127 else f"status {ended >> 8}"
            failures.append(f"{_name(kind, seed, number)}: ended the process: {how}")
            start = number + 1
    return Result(statuses, tuple(failures))


def _name(kind: Kind, seed: int, number: int) -> str:
    return f"{kind.name}, seed {seed}, case {number}"


def _child(kind: Kind, seed: int, numbers: range, folder: Path, notes: Path) -> None:
    """Try the cases, write a line about each to `notes`, and end the process."""
    status, number = 1, numbers.start
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + GROWTH, used + GROWTH))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.environ |= {"TILEWRIGHT_NO_CACHE": "1", "COLUMNS": "100"}
        with notes.open("a", buffering=1, errors="replace") as told, (folder / "output").open("w+b") as output:
            for descriptor in (1, 2):
                os.dup2(output.fileno(), descriptor)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            sys.stdin, sys.stdout, sys.stderr = map(_stream, range(3))
            for number in numbers:
                told.write(f"{number} begun \n")
                signal.alarm(SECONDS)
                code, wrong = _trial(kind, seed, number, folder, output)
                signal.alarm(0)
                told.write(f"{number} {code} {wrong.replace(chr(10), ' | ')}\n")
        status = 0
    except BaseException:  # of this file, or of a way to damage
        with notes.open("a", errors="replace") as told:
            told.write(f"{number} 1 {traceback.format_exc().replace(chr(10), ' | ')}\n")
    finally:
        os._exit(status)


def _stream(descriptor: int) -> TextIO:
    errors = "backslashreplace" if descriptor == 2 else "strict"
    return cast(TextIO, os.fdopen(descriptor, "w" if descriptor else "r", encoding="utf-8", errors=errors))


def _trial(kind: Kind, seed: int, number: int, folder: Path, output: IO[bytes]) -> tuple[int, str]:
    """Damage a file and run one command on it. Return its status, and what is wrong with how it ended."""
    odd, results = folder / "odd", folder / "results"
    for place in (odd, results):
        shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(folder / "good", odd)
    results.mkdir()
    files = [(path, how) for pattern, how in kind.damage.items() for path in sorted(odd.glob(pattern))]
    rng = np.random.default_rng([seed, crc32(kind.name.encode()), abs(number)])
    path, mutators = files[int(rng.integers(len(files)))]
    command = kind.commands[int(rng.integers(len(kind.commands)))]
    if number < 0:
        command = kind.commands[-1 - number]
    else:
        path.write_bytes(mutators[int(rng.integers(len(mutators)))](path.read_bytes(), rng))
    output.seek(0)
    output.truncate()
    code, said = _called(kind, command, path, odd, results)
    sys.stdout.flush()
    sys.stderr.flush()
    output.seek(0)
    text = output.read().decode("utf-8", "replace")
    if number < 0 and code not in (0, 1):
        return code, f"the undamaged file is refused by `{command}`: {text[-500:]}"
    return code, _wrong(code, said, text)


def _called(kind: Kind, command: str, path: Path, odd: Path, results: Path) -> tuple[int, str]:
    """Run a command line, or the function of a kind without one. Return its status, and the lines of its error."""
    if kind.call is None:
        words = command.format(odd=path, f=odd, out=results).split()
        os.chdir(odd)
        try:
            return main(words), ""
        except Exception:  # where `main` shows an error
            traceback.print_exc()
            return DEFECT, ""
    try:
        kind.call(odd)
        return 0, ""
    except HazardError as error:
        return 1, str(error)
    except TilewrightError as error:
        print(f"tilewright: {error}", file=sys.stderr)
        return 2, str(error)


def _wrong(code: int, said: str, text: str) -> str:
    lines = [line for line in text.splitlines() if line.startswith("tilewright: ") and ADVICE not in line]
    if "Traceback" in text:
        return " ".join(text[text.rindex("  File ") :].replace("^", "").split())[:400]
    if code not in (0, 1, 2):
        return f"status {code}: {text[-500:]}"
    if code == 2 and (len(lines) != 1 or "\n" in said):
        return f"{len(lines)} lines of error: {text[-500:]}"
    if NO_MEMORY in text:
        return f"memory: {text[-500:]}"
    if any(not (character.isprintable() or character in "\n\t\r") for character in "".join(lines)):
        return f"unprintable: {text[-500:]!r}"
    return ""


def cases(names: list[str], seed: int, first: int, count: int, folder: Path) -> Iterator[tuple[Kind, Result]]:
    """Try `count` cases of each named kind, from case `first` on."""
    for name in names:
        place = folder / name
        try:
            yield KINDS[name], run(KINDS[name], seed, range(first, first + count), place)
        finally:
            shutil.rmtree(place, ignore_errors=True)
