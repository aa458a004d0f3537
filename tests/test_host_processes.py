"""The process that holds the device of a host in C ends with the host, also in the middle of a request."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tilewright import targets
from tilewright.native.build import program
from tilewright.targets.users import TakesHosts

pytestmark = [
    pytest.mark.gxx,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc"),
]
#: A host of each target, and what it includes and calls so that the device gets a request.
HOSTS = {
    "gemmini": ('"include/gemmini_testutils.h"', "gemmini_flush(0); gemmini_fence();"),
    "vta": (
        "<vta/runtime.h>",
        "VTACommandHandle c = VTATLSCommandHandle(); void *b = VTABufferAlloc(4096);"
        " VTALoadBuffer2D(c, b, 0, 1, 1, 1, 0, 0, 0, 0, 0, 1); VTASynchronize(c, 1000);",
    ),
    "bm1684x": ("<bmlib_runtime.h>", "bm_handle_t h; bm_dev_request(&h, 0); bm_dev_free(h);"),
}
#: A Python whose device hangs in compiled code at its first request, and says so.
HANGS = """#!{python}
import os, sys
code, root, *rest = sys.argv[3:]
hang = '''
import sys
sys.path.insert(0, sys.argv[1])
import ctypes, tilewright.native.serve as serve
def answer(self, kind, payload):
    open({told!r}, "w").close()
    while True:
        ctypes.CDLL(None).usleep(900_000)
serve.Server.answer = answer
'''
os.execv({python!r}, [{python!r}, "-P", "-c", hang + code, root, *rest])
"""


def children(process: int) -> list[int]:
    """Return the processes that a process has started and that are alive."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = folder.joinpath("stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if int(parent) == process and state != "Z":
            found.append(int(folder.name))
    return found


def until(condition: Callable[[], object], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.02)


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture(scope="module", params=list(HOSTS))
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A compiled host."""
    folder = tmp_path_factory.mktemp("host")
    header, body = HOSTS[request.param]
    source = folder / "host.c"
    source.write_text(f"#include {header}\n#include <stdio.h>\nint main(void) {{ {body} return 0; }}\n")
    target = targets.get(request.param)
    assert isinstance(target, TakesHosts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILEWRIGHT_CACHE_DIR", str(folder / "cache"))
        flags = target.host_flags(target.config(None, {}))
    program(str(source), folder / "host", source, [*flags["cflags"]], flags["libs"])
    return folder / "host"


@pytest.fixture
def hanging(host: Path, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A host whose device hangs in its first request, in a session of their own; and the device's process."""
    python, told = tmp_path / "python", tmp_path / "told"
    python.write_text(HANGS.format(python=sys.executable, told=str(told)))
    python.chmod(0o755)
    given = os.environ | {"TILEWRIGHT_PYTHON": str(python)}
    with subprocess.Popen([str(host)], env=given, stderr=subprocess.PIPE, start_new_session=True) as process:
        try:
            until(told.exists)
            (device,) = children(process.pid)
            yield process, device
        finally:
            os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_device_ends_with_its_host(hanging: tuple[subprocess.Popen[bytes], int], number: signal.Signals) -> None:
    process, device = hanging
    os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)  # Ctrl-C: to both
    assert process.wait(20) == -number
    until(lambda: not is_alive(device), 5)
    assert process.stderr is not None and process.stderr.read() == b""


def test_nothing_is_left_after_a_normal_end(host: Path, tmp_path: Path) -> None:
    python, told = tmp_path / "python", tmp_path / "process"
    python.write_text(f'#!/bin/sh\necho $$ > {told}\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    subprocess.run([str(host)], env=os.environ | {"TILEWRIGHT_PYTHON": str(python)}, check=True, timeout=120)
    assert not is_alive(int(told.read_text()))


def test_ctrl_c_while_the_device_starts_prints_nothing(host: Path, tmp_path: Path) -> None:
    python, told = tmp_path / "python", tmp_path / "process"
    python.write_text(f'#!/bin/sh\necho $$ > {told}\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    given = os.environ | {"TILEWRIGHT_PYTHON": str(python)}
    for wait in (0.0, 0.05, 0.15):
        told.unlink(missing_ok=True)
        with subprocess.Popen([str(host)], env=given, stderr=subprocess.PIPE, start_new_session=True) as process:
            until(lambda: told.exists() and told.read_text().strip())
            time.sleep(wait)
            os.killpg(process.pid, signal.SIGINT)
            assert process.wait(20) == -signal.SIGINT
            until(lambda: not is_alive(int(told.read_text())), 10)
            assert process.stderr is not None and process.stderr.read() == b""
