"""Compare every result of two commits: `python -m tests.structure.same BASE [NEW] [--quick]`; NEW: the work tree.

Each side is a copy of its `src`, run in processes and with a cache folder of its own. Only commands of `tilewright` are
run, so any two commits can be compared, however their modules are called. Compared are:

- `run --json` (cycles, causes, what-ifs, energy, events of each layer), its page, timeline, saved run and outputs;
- `compile`, every member of the program file (arrays by value, so that the compression does not matter), `disasm`,
  `check`, `exec` and `explain`, as text and as JSON;
- `--quick`: that for the digits on all targets, and `run --json` for kws, ic and ad. Otherwise also all of it for these
  three, the small networks of tests/data/ops, every preset, every timing model, and `conform` on the golden vectors.

Times of the host are left out. Results are kept in build/same (or `--kept DIR`) by the hash of the source, so that BASE
is run once. Golden data is that of ../shared or $TILEWRIGHT_SHARED; what is missing is named and left out.
The exit status is 1 if something differs.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from difflib import unified_diff
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from elftools.elf.elffile import ELFFile

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("TILEWRIGHT_SHARED", ROOT.parent / "shared"))
DIGITS = ROOT / "examples" / "digits" / "digits.tflite"
NETWORKS = {
    "kws": SHARED / "mlperf_tiny" / "models" / "kws_ref_model.tflite",
    "ic": SHARED / "mlperf_tiny" / "models" / "pretrainedResnet_quant.tflite",
    "ad": SHARED / "mlperf_tiny" / "models" / "ad01_int8.tflite",
}
VECTORS = {"vta": ["vta_vectors"], "bm1684x": ["tpu_vectors", "tpu_vectors_new"], "gemmini": ["gemmini_vectors"]}
#: Part of the hash that kept results are found by. Raise it when what a command's result file holds changes.
VERSION = b"2"
#: Times of the host, in JSON (also inside of pages and timelines), in text and in pages.
HOST_TIME = re.compile(r'("(?:host )?seconds": ?|simulated in(?:</dt><dd>|", ?"|\s+))[\d.,e+-]*\d')
#: Where lines of a page, which are long, are broken to be compared.
BREAK = re.compile(r'(,|>)(["<])')
#: Lines printed of the differences of one result.
SHOWN = 12


@dataclass(frozen=True)
class Case:
    """A command that both sides run: those of one folder run in their order, because some read what others wrote."""

    folder: str
    name: str
    command: tuple[str, ...]
    files: tuple[str, ...] = ()

    @property
    def target(self) -> str:
        return self.folder.split("/")[0]


@dataclass(frozen=True)
class Side:
    """One of the two sources, copied to a folder that is named after its contents."""

    name: str
    folder: Path

    def run(self, case: Case) -> None:
        """Write the output of a command, and of the files it writes, unless an earlier comparison has."""
        folder = self.folder / "results" / case.folder
        result = folder / f"{case.name}.result"
        if result.exists():
            return
        folder.mkdir(parents=True, exist_ok=True)
        environment = dict(os.environ)
        environment["PYTHONPATH"] = str(self.folder / "src")
        environment["TILEWRIGHT_CACHE_DIR"] = str(self.folder / "cache")
        command = [sys.executable, "-m", "tilewright", *case.command]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        if done.returncode < 0:
            raise InterruptedError(f"ended by signal {-done.returncode}: tilewright {' '.join(case.command)}")
        for name in case.files:
            path = folder / name
            if path.exists():
                contents = _text(path)
                (folder / f"{case.name}.{name}.result").write_text(contents, encoding="utf-8")
        text = f"exit status {done.returncode}\n{done.stdout}{done.stderr}"
        result.write_text(_without_host_time(text.replace(str(self.folder), "")), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("base", help="a commit")
    parser.add_argument("new", nargs="?", help="a commit [the work tree]")
    parser.add_argument("--quick", action="store_true", help="the digits, and the figures of three networks")
    parser.add_argument("--workers", type=int, default=2, help="processes at a time [2]")
    parser.add_argument("--kept", type=Path, default=ROOT / "build" / "same", help="folder of results [build/same]")
    arguments = parser.parse_args()
    base = _copied(arguments.base, arguments.kept.resolve())
    new = _copied(arguments.new, arguments.kept.resolve())
    cases = list(_cases(_targets(base), arguments.quick))
    _run({base.folder: base, new.folder: new}.values(), cases, arguments.workers)
    sys.exit(_compare(base, new, cases))


def _targets(side: Side) -> list[dict[str, Any]]:
    """The targets of a side, with their presets and timing models."""
    case = Case("targets", "targets", ("targets", "--json"))
    side.run(case)
    text = (side.folder / "results" / "targets" / "targets.result").read_text(encoding="utf-8")
    return json.loads(text.partition("\n")[2])["targets"]


def _cases(targets: list[dict[str, Any]], quick: bool) -> Iterator[Case]:
    networks = {name: path for name, path in NETWORKS.items() if path.is_file()}
    for name in NETWORKS.keys() - networks.keys():
        print(f"{name} left out: {NETWORKS[name]} is missing", file=sys.stderr)
    for target in targets:
        name = target["name"]
        timing = target["timing_models"][0]["name"]
        yield from _commands(name, timing, "digits", DIGITS)
        if quick:
            yield from (_figures(name, network, path) for network, path in networks.items())
            continue
        for network, path in networks.items():
            yield from _commands(name, timing, network, path)
        for path in sorted((ROOT / "tests" / "data" / "ops").glob("*.tflite")):
            yield from _short(name, f"op/{path.stem}", path)
        for preset in target["presets"]:
            yield from _short(name, f"preset/{preset}", DIGITS, "-c", preset)
        for model in target["timing_models"]:
            yield _figures(name, f"timing/{model['name']}", DIGITS, "--timing", model["name"])
        for vectors in VECTORS.get(name, []):
            if (SHARED / vectors).is_dir():
                yield Case(f"{name}/conform", vectors, ("conform", name, str(SHARED / vectors), "--json"))
            else:
                print(f"{vectors} left out: {SHARED / vectors} is missing", file=sys.stderr)


def _figures(target: str, network: str, path: Path, *options: str) -> Case:
    command = ("run", str(path), "-t", target, "--no-cache", "--json", *options)
    return Case(f"{target}/{network}", "figures", command)


def _short(target: str, network: str, path: Path, *options: str) -> Iterator[Case]:
    """The figures and the program of a network."""
    yield _figures(target, network, path, *options)
    command = ("compile", str(path), "-t", target, "--no-cache", "-o", "program.twp", "--json", *options)
    yield Case(f"{target}/{network}", "compile", command, ("program.twp",))


def _commands(target: str, timing: str, network: str, path: Path) -> Iterator[Case]:
    """All results of a network on a target; `explain` also by the timing model."""
    yield from _short(target, network, path)
    folder = f"{target}/{network}"
    files = ("run.twr", "outputs.npz", "page.html", "timeline.json")
    written = ("--save", files[0], "-o", files[1], "--html", files[2], "--trace", files[3])
    yield Case(folder, "run", ("run", str(path), "-t", target, "--no-cache", *written), files)
    for name in ("disasm", "check", "exec"):
        yield Case(folder, name, (name, "program.twp"))
        yield Case(folder, f"{name} json", (name, "program.twp", "--json"))
    explain = ("explain", str(path), "-t", target, "--no-cache")
    yield Case(folder, "explain", explain)
    yield Case(folder, "explain json", (*explain, "--json"))
    yield Case(folder, "explain timing", (*explain, "--timing", timing))


def _run(sides: Iterable[Side], cases: list[Case], workers: int) -> None:
    """Run all cases on both sides: a target's one after the other, as they compile the same loops."""
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(case.target, []).append(case)
    jobs = [(side, group) for group in groups.values() for side in sides]
    jobs.sort(key=lambda job: job[1][0].target != "gemmini")  # its loops take longest to compile

    def work(job: tuple[Side, list[Case]]) -> None:
        side, group = job
        for case in group:
            side.run(case)

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(work, jobs))


def _copied(revision: str | None, kept: Path) -> Side:
    """Copy the source of a commit, or (None) of the work tree, to a folder named by its hash."""
    kept.mkdir(parents=True, exist_ok=True)
    name = revision or "the work tree"
    unpacked = kept / f"unpacked-{os.getpid()}"
    if revision is None:
        shutil.copytree(ROOT / "src", unpacked / "src", ignore=shutil.ignore_patterns("__pycache__"))
    else:
        packed = subprocess.run(["git", "archive", revision, "src"], cwd=ROOT, capture_output=True, check=False)
        if packed.returncode:
            sys.exit(packed.stderr.decode())
        with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
            archive.extractall(unpacked, filter="data")
    digest = hashlib.sha256(VERSION)
    for path in sorted((unpacked / "src").rglob("*")):
        if path.is_file():
            digest.update(str(path.relative_to(unpacked)).encode())
            digest.update(path.read_bytes())
    folder = kept / digest.hexdigest()[:16]
    if folder.exists():
        shutil.rmtree(unpacked)
    else:
        unpacked.rename(folder)
    return Side(name, folder)


def _text(path: Path) -> str:
    """The contents of a file as text that two of them are compared by: those of an archive one by one."""
    if not zipfile.is_zipfile(path):
        return _without_host_time(path.read_text(encoding="utf-8"))
    members: dict[str, Any] = {}
    with zipfile.ZipFile(path) as archive:
        for name in sorted(archive.namelist()):
            contents = archive.read(name)
            if name.endswith(".json"):
                members[name] = json.loads(_without_host_time(contents.decode()))
            elif name.endswith(".npy"):
                array = np.load(io.BytesIO(contents), allow_pickle=False)
                shape = "ELF" if array.tobytes().startswith(b"\x7fELF") else array.shape
                members[name] = f"{array.dtype.str} {shape} {_digest(array.tobytes())}"
            else:
                members[name] = hashlib.sha256(contents).hexdigest()
    return json.dumps(members)


def _digest(contents: bytes) -> str:
    """The hash of an array; of firmware, of what is loaded: its symbols name temporary files of the compiler."""
    if contents.startswith(b"\x7fELF"):
        segments = ELFFile(io.BytesIO(contents)).iter_segments("PT_LOAD")
        contents = b"".join(repr(segment["p_vaddr"]).encode() + segment.data() for segment in segments)
    return hashlib.sha256(contents).hexdigest()


def _without_host_time(text: str) -> str:
    return HOST_TIME.sub(r"\g<1>0", text)


def _compare(base: Side, new: Side, cases: Iterable[Case]) -> int:
    """Print what differs, and return the exit status."""
    count = 0
    failed = 0
    different = 0
    for case in cases:
        for name in (case.name, *(f"{case.name}.{file}" for file in case.files)):
            before, after = (_result(side, case.folder, name) for side in (base, new))
            count += 1
            failed += name == case.name and not before.startswith("exit status 0")
            lines = list(islice(differences(before, after), SHOWN + 1))
            if before == after or (before and after and not lines):  # the order of keys does not count
                continue
            different += 1
            print(f"{case.folder} {name}: differs (tilewright {' '.join(case.command)})")
            print("\n".join(f"  {line[:200]}" for line in lines[:SHOWN]))
            if len(lines) > SHOWN:
                print("  ...")
    print(f"{count - different} of {count} results are the same in {base.name} and {new.name}", end="")
    print(f"; {failed} commands end with a finding or an error in {base.name}")
    return int(different > 0)


def _result(side: Side, folder: str, name: str) -> str:
    path = side.folder / "results" / folder / f"{name}.result"
    return _without_host_time(path.read_text(encoding="utf-8")) if path.exists() else ""


def differences(before: str, after: str) -> Iterator[str]:
    """Yield the values that differ, by their path in JSON; of other text, the lines."""
    values = [_parsed(before), _parsed(after)]
    if None not in values:
        yield from _unequal(values[0], values[1], "")
    else:
        left, right = (BREAK.sub(r"\1\n\2", text).splitlines() for text in (before, after))
        changes = unified_diff(left, right, lineterm="", n=0)
        yield from (line for line in changes if not line.startswith(("---", "+++", "@@")))


def _parsed(text: str) -> Any:
    """The JSON of a result, with its exit status; None: the result is other text."""
    status, _, rest = text.partition("\n") if text.startswith("exit status") else ("", "", text)
    try:
        return {"exit status": status, "": json.loads(rest)}
    except ValueError:
        return None


def _unequal(before: Any, after: Any, path: str) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in before | after:
            yield from _unequal(before.get(key, "(missing)"), after.get(key, "(missing)"), f"{path}/{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (left, right) in enumerate(zip(before, after, strict=True)):
            yield from _unequal(left, right, f"{path}/{index}")
    elif before != after:
        yield f"{path}: {before!r} became {after!r}"


if __name__ == "__main__":
    main()
