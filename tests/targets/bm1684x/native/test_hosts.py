"""Hosts in C and C++: statuses, firmware of both kinds, handles and processes that share nothing."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.targets.bm1684x.native.build import SCALE, START
from tilewright.cli import main
from tilewright.errors import InputError
from tilewright.targets.bm1684x.host import Firmware
from tilewright.targets.bm1684x.host.serve import settings
from tilewright.targets.bm1684x.native.build import LIBRARY, firmware

pytestmark = pytest.mark.gxx
SOURCE = Path(__file__).with_name("host.c")
PYTHON = """
from tilewright.targets.bm1684x.host import function
from tilewright.targets.bm1684x.values.dtypes import F32

@function("<QQfi")
def scale(tpu, arguments):
    y, x, factor, _ = arguments
    shape = (1, 64, 8, 8)
    a = tpu.local(shape, F32, bank=0)
    tpu.gdma.copy(a, tpu.system(x, shape, F32))
    tpu.bdc.fp_mul(a, a, -factor)
    tpu.gdma.copy(tpu.system(y, shape, F32), a)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with firmware in C and in Python, and hosts in C and C++, linked with a library made there."""
    folder = tmp_path_factory.mktemp("hosts")
    (folder / "kernel.c").write_text(START + SCALE.replace("launches++ > 2", "launches++ < 0"))
    (folder / "kernel.py").write_text(PYTHON)
    firmware([folder / "kernel.c"], folder / "bm1684x.bin")
    Firmware.build([folder / "kernel.py"]).save(folder / "kernel.fw")
    shutil.copy(SOURCE, folder / "host.cc")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILEWRIGHT_CACHE_DIR", str(folder / "cache"))
        flags = LIBRARY.flags()
    given = [*flags["cflags"], *flags["libs"]]
    for compiler, source in (("cc", str(SOURCE)), ("g++", str(folder / "host.cc"))):
        binary = folder / f"host_{compiler}"
        subprocess.run([compiler, "-Wall", "-Wextra", "-Werror", source, *given, "-o", str(binary)], check=True)
    return folder


def run(folder: Path, host: str = "host_cc", **environment: str) -> subprocess.CompletedProcess[str]:
    command = [str(folder / host), str(folder / "bm1684x.bin"), str(folder / "kernel.fw")]
    return subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize("host", ["host_cc", "host_g++"])
def test_the_host_api_keeps_its_promises(folder: Path, host: str) -> None:
    done = run(folder, host)
    assert (done.returncode, done.stdout) == (0, "all is so\n"), done.stderr
    assert "tilewright: race in scale: " in done.stderr and "kernel.c:11)" in done.stderr


def test_hosts_in_several_processes_do_not_meet(folder: Path) -> None:
    command = [str(folder / "host_cc"), str(folder / "bm1684x.bin"), str(folder / "kernel.fw")]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) for _ in range(2)]
    assert [host.communicate(timeout=120)[0] for host in both] == ["all is so\n"] * 2


def test_the_environment_chooses_the_device(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value, reason in (
        ("PLATFORM", "usb", "there is no platform 'usb'"),
        ("SET", "lanes=3", "lanes is 3"),
    ):
        done = run(folder, **{f"TILEWRIGHT_BM1684X_{name}": value})
        assert done.returncode == 1
        assert reason in done.stderr and "has ended" not in done.stderr
    monkeypatch.setenv("TILEWRIGHT_BM1684X_PLATFORM", "soc")
    monkeypatch.setenv("TILEWRIGHT_BM1684X_SET", "lanes=4,banks=8")
    platform, config = settings()
    assert (platform.name, config.lanes, config.banks) == ("soc", 4, 8)


def test_launches_save_timelines(folder: Path, tmp_path: Path) -> None:
    for traces in (tmp_path, tmp_path / "not" / "there"):
        assert run(folder, TILEWRIGHT_BM1684X_TRACE=str(traces)).returncode == 0
        assert "kernel.c:11)" in (traces / "launch0.json").read_text()


def test_a_folder_of_timelines_that_cannot_be_made_is_named(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run(folder, TILEWRIGHT_BM1684X_TRACE=str(tmp_path / "file" / "traces"))
    assert done.returncode == 1
    assert "TILEWRIGHT_BM1684X_TRACE: the folder" in done.stderr and "cannot be made" in done.stderr


def test_a_host_without_python_says_so(folder: Path) -> None:
    done = run(folder, TILEWRIGHT_PYTHON="/no/such/python")
    assert done.returncode == 1
    assert "Python does not start; set TILEWRIGHT_PYTHON to its path" in done.stderr


def test_the_device_ends_with_its_host(folder: Path, tmp_path: Path) -> None:
    source, binary = tmp_path / "ends.c", tmp_path / "ends"
    source.write_text(
        '#include "bmlib_runtime.h"\n#include <unistd.h>\n'
        "int main(void) { bm_handle_t handle; return bm_dev_request(&handle, 0); }\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILEWRIGHT_CACHE_DIR", str(folder / "cache"))
        flags = LIBRARY.flags()
    subprocess.run(["cc", str(source), *flags["cflags"], *flags["libs"], "-o", str(binary)], check=True)
    wrapper = tmp_path / "python"
    wrapper.write_text(f'#!/bin/sh\necho $$ > {tmp_path}/pid\nexec {shlex.quote(sys.executable)} "$@"\n')
    wrapper.chmod(0o755)
    assert (
        subprocess.run([str(binary)], env=os.environ | {"TILEWRIGHT_PYTHON": str(wrapper)}, check=False).returncode == 0
    )
    number = int((tmp_path / "pid").read_text())
    for _ in range(200):
        try:
            os.kill(number, 0)
        except ProcessLookupError:
            return
        if Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.05)
    pytest.fail("the process of the device lives on")


def test_the_command_prints_flags(
    folder: Path, capsys: pytest.CaptureFixture[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(folder / "cache"))
    assert main(["config", "--bm1684x", "--cflags", "--libs"]) == 0
    include, *libs = shlex.split(capsys.readouterr().out)
    assert Path(include.removeprefix("-I"), "bmlib_runtime.h").is_file()
    assert [word[:2] for word in libs] == ["-L", "-W", "-l"]
    assert main(["config", "--bm1684x", "--cflags"]) == 0
    assert shlex.split(capsys.readouterr().out) == [include]
    assert main(["config", "--cfu"]) == 2
    assert main(["config", "--bm1684x", "--set", "lanes=4"]) == 2
    assert "set TILEWRIGHT_BM1684X_SET" in capsys.readouterr().err
    assert main(["config", "--cflags"]) == 2
    assert main(["config", "--bm1684x", "--flags"]) == 2
    assert "give one target" in capsys.readouterr().err


def test_a_library_that_cannot_be_made_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("CC", "false")
    with pytest.raises(InputError, match="does not compile"):
        LIBRARY.flags()
