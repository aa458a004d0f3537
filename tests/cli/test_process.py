"""The command in a process of its own: Ctrl-C, full disks, unwritable caches, closed and broken streams, odd names."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from tests.conftest import ROOT

DIGITS = str(ROOT / "examples" / "digits" / "digits.tflite")
VARY = ("--vary", "LOG_INP_BUFF_SIZE=13..15", "--vary", "LOG_BUS_WIDTH=6..8")
COMMAND = (sys.executable, "-m", "tilewright")
#: Commands that write DIR or FILE, or nothing.
FOLDERS = {
    "rtl": ("rtl", "zynq", "-o", "DIR"),
    "raw": ("compile", DIGITS, "-t", "vta", "-o", "OTHER.twp", "--raw", "DIR"),
    "new-firmware": ("new-firmware", "DIR"),
    "new-target": ("new-target", "tiny", "-o", "DIR"),
    "examples": ("examples", "copy", "DIR"),
    "explore": ("explore", DIGITS, "-t", "vta", *VARY, "-o", "DIR"),
}
COMMANDS = {
    **FOLDERS,
    "run": ("run", DIGITS, "-t", "vta", "--no-cache", "--html", "FILE.html", "-o", "FILE.npz", "--save", "FILE.twr"),
    "run bm1684x": ("run", DIGITS, "-t", "bm1684x", "--no-cache", "--trace", "FILE.json"),
    "run zynq": ("run", DIGITS, "-t", "zynq", "--no-cache"),
    "explain": ("explain", DIGITS, "-t", "vta", "--no-cache", "--save-schedule", "FILE.json"),
    "workers": ("explore", DIGITS, "-t", "vta", *VARY, "--workers", "2"),
    "sweep": ("sweep", DIGITS, "-t", "vta", *VARY, "--csv", "FILE.csv"),
    "targets": ("targets",),
    "doctor": ("doctor",),
}


def filled(words: tuple[str, ...], folder: Path) -> list[str]:
    """Return a command line that writes to a folder."""
    names = {"DIR": "made", "FILE": "file", "OTHER": "other"}
    return [
        str(folder / word.replace(stem, names[stem])) if (stem := word.split(".")[0]) in names else word
        for word in words
    ]


def running_with(mark: str) -> list[int]:
    """Return the processes that have `mark` in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark.encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def interrupt(words: tuple[str, ...], folder: Path, moment: Callable[[], bool], group: bool) -> None:
    """Start a command, press Ctrl-C when `moment` says so, and check how it ends."""
    mark, temporary, made = uuid.uuid4().hex, folder / "tmp", folder / "made"
    temporary.mkdir(parents=True)
    made.mkdir()
    environment = {**os.environ, "MARK": mark, "TMPDIR": str(temporary)}
    with subprocess.Popen(
        [*COMMAND, *filled(words, made)],
        env=environment,
        cwd=made,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        while process.poll() is None and not moment():
            time.sleep(0.005)
        with suppress(ProcessLookupError):
            (os.killpg if group else os.kill)(process.pid, signal.SIGINT)
        errors = process.communicate(timeout=60)[1]
    if process.returncode == 0 and not errors:  # it was done
        return
    assert (process.returncode, errors) == (130, "tilewright: interrupted\n")
    until = time.monotonic() + 5
    while running_with(mark) and time.monotonic() < until:
        time.sleep(0.02)
    assert not running_with(mark)
    assert not list(temporary.iterdir())
    half = [path.name for path in made.iterdir() if path.name.startswith(".") or path.suffix in (".tmp", ".twp")]
    assert not half


def after(seconds: float) -> Callable[[], bool]:
    """Return a moment: some seconds from now."""
    until = time.monotonic() + seconds
    return lambda: time.monotonic() > until


#: Runs the command with the program that sends SIGINT to it when a module is imported: no clock decides.
AT_IMPORT = """
import os, signal, sys
module, sys.argv[1:] = sys.argv[1], sys.argv[2:]
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)
from tilewright.__main__ import main
sys.meta_path.insert(0, Finder())
sys.exit(main())
"""


@pytest.mark.parametrize(
    "module",
    ["tilewright.cli", "click", "tilewright.errors", "numpy", "numpy.linalg", "tilewright.run", "rich.console"],
)
def test_ctrl_c_while_modules_are_imported(module: str) -> None:
    words = [sys.executable, "-c", AT_IMPORT, module, "run", DIGITS, "-t", "vta"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "tilewright: interrupted\n")


#: The same at Python's end, and in a destructor, from which no exception can leave.
AT_END = """
import atexit, os, signal, sys, time
import tilewright.cli
from tilewright.__main__ import main
class Late:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
def run():
    if sys.argv[1] == "destructor":
        Late()
        time.sleep(5)
    return 0
tilewright.cli.main = run
status = main()
if sys.argv[1] == "end":
    atexit.register(lambda: (os.kill(os.getpid(), signal.SIGINT), time.sleep(5)))
sys.exit(status)
"""


@pytest.mark.parametrize("place", ["destructor", "end"])
def test_ctrl_c_where_python_swallows_it(place: str) -> None:
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", AT_END, place], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "tilewright: interrupted\n")
    assert time.monotonic() - began < 5


def test_ctrl_c_ends_a_study_with_its_workers(tmp_path: Path) -> None:
    interrupt(COMMANDS["workers"], tmp_path, after(1.5), group=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_ctrl_c_at_any_moment(name: str, tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for number, (first, last) in enumerate([(0.2, 0.5), (0.5, 1.5), (1.0, 4.0)] * 2):
        moment = after(rng.uniform(first, last))
        interrupt(COMMANDS[name], tmp_path / str(number), moment, group=rng.random() < 0.5)


@pytest.mark.slow
@pytest.mark.parametrize("group", [False, True])
def test_ctrl_c_while_a_cluster_starts(group: bool, tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    words = ("explore", DIGITS, "-t", "vta", *VARY, "--cluster", "local:2")
    for number, seconds in enumerate([1.0, 1.5, 2.0, 3.0, 5.0]):
        interrupt(words, tmp_path / str(number), after(seconds), group)


def limited(words: list[str], size: int = 1024) -> subprocess.CompletedProcess[str]:
    """Run a command in which no file may be longer than `size` bytes, as if the disk were full."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return subprocess.run(
        [*COMMAND, *words],
        preexec_fn=limit,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("name", ["raw", "new-firmware", "new-target", "examples"])
@pytest.mark.parametrize("exists", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_full_disk_leaves_no_half_folder(name: str, exists: bool, tmp_path: Path) -> None:
    made = tmp_path / "made"
    if exists and name != "new-target":
        made.mkdir()
    if exists and name == "raw":  # other files of the folder stay
        (made / "mine").write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    done = limited(filled(FOLDERS[name], tmp_path))
    assert done.returncode == 2
    where = made / "tilewright_tiny" if name == "new-target" else made
    assert done.stderr == f"tilewright: {where}: cannot be written: File too large\n"
    assert sorted(tmp_path.rglob("*")) == before


def test_a_full_disk_ends_a_study_that_can_be_resumed(tmp_path: Path) -> None:
    done = limited(filled(FOLDERS["explore"], tmp_path), 8192)
    journal = tmp_path / "made" / "trials.jsonl"
    reason = f"tilewright: {journal}: cannot be written: File too large; make room, and resume the study\n"
    assert (done.returncode, done.stderr) == (2, reason)
    resumed = subprocess.run(
        [*COMMAND, "explore", "--resume", str(tmp_path / "made"), "--json"], capture_output=True, text=True, check=True
    )
    assert json.loads(resumed.stdout)["trials"] == 9


@pytest.mark.parametrize("place", ["missing", pytest.param("file", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "target", ["cfu", *(pytest.param(name, marks=pytest.mark.slow) for name in ("vta", "zynq", "bm1684x", "gemmini"))]
)
def test_no_command_needs_a_writable_cache(place: str, target: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    (tmp_path / "home").mkdir()
    cache = {"missing": "/proc/none/cache", "file": tmp_path / "file"}[place]
    words = [*COMMAND, "run", DIGITS, "-t", target]
    environment = {**os.environ, "TILEWRIGHT_CACHE_DIR": str(cache), "HOME": str(tmp_path / "home")}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


#: What a shell does with the streams, and the statuses that may follow beside that of the command.
STREAMS: Mapping[str, tuple[int, ...]] = {
    '"$@" >&-': (),
    '"$@" 2>&-': (),
    '"$@" <&- >&- 2>&-': (),
    '"$@" >/dev/full': (2,),
    '"$@" 2>/dev/full': (),
    '"$@" >/dev/full 2>&1': (2,),
    '"$@" | true; exit ${PIPESTATUS[0]}': (141,),
    '"$@" 2>&1 | true; exit ${PIPESTATUS[0]}': (141,),
}
PRINTING = {
    "targets": (["targets"], 0),
    "run": (["run", DIGITS, "-t", "zynq"], 0),
    "json": (["run", DIGITS, "-t", "zynq", "--json"], 0),
    "refused": (["run", "/none.tflite", "-t", "vta"], 2),
}


@pytest.mark.parametrize("shell", STREAMS)
@pytest.mark.parametrize(
    "name", ["targets", *(pytest.param(name, marks=pytest.mark.slow) for name in list(PRINTING)[1:])]
)
def test_streams_may_be_closed_full_or_unread(shell: str, name: str) -> None:
    words, status = PRINTING[name]
    done = subprocess.run(["bash", "-c", shell, "-", *COMMAND, *words], capture_output=True, text=True, check=False)
    assert done.returncode in (status, *STREAMS[shell]), done.stderr
    assert len(done.stderr.splitlines()) <= 1, done.stderr
    if done.returncode == 2 and "full" in shell and "2>" not in shell and status == 0:
        assert done.stderr == "tilewright: standard output: No space left on device\n"


@pytest.mark.parametrize("encoding", ["ascii", pytest.param("latin-1", marks=pytest.mark.slow), "utf-8"])
@pytest.mark.parametrize("name", [b"\xff\xfe.tflite", "日本.tflite".encode()])
def test_names_outside_the_encoding_are_printed_in_part(encoding: str, name: bytes, tmp_path: Path) -> None:
    path = os.path.join(os.fsencode(tmp_path), name)  # noqa: PTH118
    Path(os.fsdecode(path)).write_bytes(Path(DIGITS).read_bytes())
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "LC_ALL": "C"}
    page = os.fsencode(tmp_path / "page.html")
    words: list[bytes | str] = [*COMMAND, "run", path, "-t", "zynq", "--html", page, "--save", page + b".twr"]
    for extra in ([], ["--json"]):
        done = subprocess.run([*words, *extra], capture_output=True, check=False, env=environment)
        assert (done.returncode, done.stderr) == (0, b""), done.stderr
        done.stdout.decode(encoding)
        if extra:
            json.loads(done.stdout)
