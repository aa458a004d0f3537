"""A library of a few lines for hosts in C: what it is made of, when it is made again, and a host that uses it."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.native.device import REQUESTS
from tilewright.native.build import program
from tilewright.native.hosts import HostLibrary

HERE = Path(__file__).parent
pytestmark = pytest.mark.gxx
HOST = """
#include <adder.h>
#include <adder_limits.h>
#include <stdio.h>
int main(void) {
    uint64_t total = 0;
    if (!adder_start()) return 2;
    for (int i = 0; i < ADDER_TIMES; i++) adder_add(2, (uint64_t)1 << 33);
    int status = adder_refuse(4);
    if (adder_total(&total)) return 3;
    printf("%d %llu\\n", status, (unsigned long long)total);
    fflush(stdout);
    return adder_end();
}
"""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HostLibrary:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / 'cache "ä'))
    return HostLibrary(
        "adder",
        server="tests.native.device",
        requests=REQUESTS,
        sources=(HERE / "adder.c",),
        include=HERE / "include",
        config={"size": 3},
        generated={"adder_limits.h": "#define ADDER_TIMES 3\n"},
        links=("-lm",),
    )


def test_a_host_gets_the_answers_of_the_process(library: HostLibrary, tmp_path: Path) -> None:
    source = tmp_path / "host.c"
    source.write_text(HOST)
    flags = library.flags()
    assert flags["libs"][-2:] == ["-ladder", "-lm"]
    program("host", tmp_path / "host", source, flags["cflags"], flags["libs"])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([tmp_path / "host"], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"7 {6 << 33}\n", "tilewright: number 4: is refused\n")
    machine = library.built().parent / "machine.json"  # the process of this test writes there
    assert machine.read_text() == f"ended with {6 << 33} "


def test_it_is_made_once_and_again_when_a_part_changes(library: HostLibrary) -> None:
    path = library.built()
    made = path.stat().st_mtime_ns
    assert (path.parent / "machine.json").read_text() == '{"size": 3}'
    assert library.built() == path
    assert path.stat().st_mtime_ns == made
    changed = (
        replace(library, config={"size": 4}),
        replace(library, requests=(*REQUESTS[1:], REQUESTS[0])),
        replace(library, generated={"adder_limits.h": "#define ADDER_TIMES 4\n"}),
    )
    assert len({path, *(other.built() for other in changed)}) == 4


def test_a_library_without_a_machine_has_no_file_of_it(library: HostLibrary) -> None:
    bare = replace(library, config=None, generated={}, sources=())
    folder = bare.built().parent
    assert [path.name for path in folder.iterdir()] == ["libadder.so"]
    assert bare.flags()["cflags"] == [f"-I{HERE / 'include'}"]
