"""The examples in C: compiled as their comments say, and what they print."""

from __future__ import annotations

import os
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import ROOT
from tilewright.targets.bm1684x.host import Handle
from tilewright.targets.bm1684x.native.build import LIBRARY, firmware

pytestmark = pytest.mark.gxx
FOLDER = ROOT / "examples" / "bm1684x_c"
PRINTED = """synchronous: 0 wrong
asynchronous: 0 wrong
strides (12, 4, 2, 1): 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 ..
strides (24, 4, 2, 1): 0 1 2 3 4 5 6 7 8 9 10 11 . . . . . . . . . . . . 12 13 14 15 ..
strides (24, 8, 4, 2): 0 . 1 . 2 . 3 . 4 . 5 . 6 . 7 . 8 . 9 . 10 . 11 . 12 . 13 . ..
strides (24, 8, 4, 1): 0 1 . . 2 3 . . 4 5 . . 6 7 . . 8 9 . . 10 11 . . 12 13 . . ..
(2, 3, 4, 5) from lane 0 of 4: 1 channels in a lane
continuous N 60, C 20, H 5, W 1
aligned    N 32, C 32, H 5, W 1
compact    N 20, C 20, H 5, W 1
line       N 128, C 128, H 32, W 1
(2, 3, 4, 5) from lane 2 of 4: 2 channels in a lane
continuous N 60, C 20, H 5, W 1
aligned    N 64, C 32, H 5, W 1
compact    N 40, C 20, H 5, W 1
line       N 256, C 128, H 32, W 1
"""


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Path:
    binary = tmp_path_factory.mktemp("examples") / "bm1684x.bin"
    assert firmware([FOLDER / "device_a.c", FOLDER / "device_b.c"], binary, ["-Wextra", "-Werror"]) == ""
    return binary


def test_the_host_listing_runs(device: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(device.parent))
    flags = LIBRARY.flags()
    host = device.with_name("host")
    command = ["cc", "-Wall", "-Wextra", "-Werror", str(FOLDER / "host.c"), *flags["cflags"], *flags["libs"]]
    subprocess.run([*command, "-o", str(host)], check=True)
    lanes = os.environ | {"TILEWRIGHT_BM1684X_SET": "lanes=4"}
    done = subprocess.run([host, device], env=lanes, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(PRINTED)
    assert "2 x 40, w = 15: shape (2, 3, 1, 15), strides    N 32, C 32, H 15, W 1" in done.stdout
    assert done.stdout.endswith(
        "100 input channels, 3 x 3: 64IC       N 1152, C 1152, H 192, W 64\n"
        "100 input channels, 3 x 3: 32IC       N 1152, C 1152, H 96, W 32\n"
    )


def test_a_host_in_python_launches_them_too(device: Path) -> None:
    x = np.arange(128, dtype=np.float32)
    y = np.zeros_like(x)
    with Handle() as handle:
        handle.load(device, execute=True)
        places = [handle.malloc(x.nbytes) for _ in range(2)]
        handle.s2d(places[0], x)
        handle.launch_sync("func_0_1", struct.pack("<QQi", places[1].address, places[0].address, 128))
        handle.d2s(y, places[1])
    assert np.array_equal(y, x * x)
