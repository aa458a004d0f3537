"""Builds the PS driver with the host's C compiler, and calls it."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.targets.zynq.cases import SMALL
from tests.targets.zynq.networks import Chain
from tilewright import targets
from tilewright.array import Array
from tilewright.program.program import Program
from tilewright.targets.zynq.config import Config
from tilewright.targets.zynq.isa.image import LayerImage
from tilewright.targets.zynq.runtime import driver

READ = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_uint32)
WRITE = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_uint32)
MOVE = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint32)


class Port(ctypes.Structure):
    _fields_ = (("read", READ), ("write", WRITE), ("move", MOVE))


def build(program: Program, folder: Path) -> ctypes.CDLL:
    """The driver as a shared library."""
    driver.write(program, folder)
    flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC"]
    subprocess.run(["cc", *flags, "-o", "driver.so", "zynq_driver.c"], cwd=folder, check=True)
    library = ctypes.CDLL(str(folder / "driver.so"))
    library.zynq_run.restype = library.zynq_run_layer.restype = ctypes.c_int64
    return library


def constant(folder: Path, name: str) -> int:
    text = (folder / "zynq_driver.h").read_text()
    return int(next(line for line in text.splitlines() if line.startswith(f"#define {name} ")).split()[-1].rstrip("u"))


def compiled(chain: Chain, rounding: str, **changes: int | str) -> Program:
    config = Config.read({**SMALL, "weight_bits": 10, **changes}, {})
    return targets.get("zynq").compile(chain.graph(), config, rounding)


def ran(library: ctypes.CDLL, folder: Path, port: Port, images: Sequence[LayerImage], data: Array) -> tuple[int, Array]:
    """Have the driver run a network; return the page services that it counts, and the output."""
    memory = np.zeros(constant(folder, "ZYNQ_DDR_BYTES"), np.uint8)
    content = np.fromfile(folder / "zynq_ddr.bin", np.uint8)
    memory[: content.size] = content
    output = np.zeros(images[-1].layer.outputs, np.int8)
    scratch = np.zeros(max(image.layer.outputs for image in images), np.uint8)
    given = np.ascontiguousarray(data.ravel())
    arrays = (ctypes.c_void_p(array.ctypes.data) for array in (memory, given, output, scratch))
    return library.zynq_run(ctypes.byref(port), *arrays), output
