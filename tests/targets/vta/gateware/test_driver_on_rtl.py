"""The driver in C runs programs on the gateware, compiled from the Verilog that is written for a board."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.hdl import lite
from tests.hdl.written import from_verilog
from tests.targets.vta.streams import small
from tilewright.array import Array
from tilewright.errors import ConfigError, UnsupportedError
from tilewright.graph import reference
from tilewright.model import inputs
from tilewright.program.launch_image import RETURNED
from tilewright.program.program import HostStep, Program
from tilewright.sim.passes import RunOptions
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.gateware.header import MAP
from tilewright.targets.vta.gateware.top import VtaSystem
from tilewright.targets.vta.isa.stream import image_of
from tilewright.targets.vta.launch.pack import pack, unpack
from tilewright.targets.vta.passes import run_passes
from tilewright.targets.vta.runtime import driver

DIGITS = Path(__file__).resolve().parents[4] / "examples" / "digits" / "digits.tflite"
KEYS = {"LOG_BLOCK": 2, "LOG_INP_BUFF_SIZE": 11, "LOG_WGT_BUFF_SIZE": 12, "LOG_ACC_BUFF_SIZE": 13}
OPTIONS = RunOptions(timing="tilewright")
#: Where the machine sees the driver's area.
ADDRESS = 3 << 16
STATUS = next(register.offset for register in MAP if register.name == "status")


class Port(ctypes.Structure):
    _fields_ = (
        ("read", ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_uint32)),
        ("write", ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_uint32)),
        ("flush", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32)),
    )


class Segment(ctypes.Structure):
    _fields_ = (
        ("launch", ctypes.c_uint32),
        ("kind", ctypes.c_uint32),
        ("name", ctypes.c_char_p),
        ("at", ctypes.c_uint32),
        ("bytes", ctypes.c_uint32),
    )


class Board:
    """A driver, compiled by the host's compiler, and the gateware with its DRAM."""

    def __init__(self, program: Program, folder: Path) -> None:
        driver.write(program, folder)
        flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC"]
        subprocess.run(["cc", *flags, "-o", "driver.so", "vta_driver.c"], cwd=folder, check=True)
        self.library = ctypes.CDLL(str(folder / "driver.so"))
        self.library.vta_run.restype, self.library.vta_find.restype = ctypes.c_int64, ctypes.POINTER(Segment)
        self.config = Config.read(program.config, {})
        self.model = from_verilog(VtaSystem(self.config), folder).model()
        content = np.fromfile(folder / "vta_dram.bin", np.uint8)
        self.memory = np.zeros(ADDRESS + content.size, np.uint8)
        self.area = self.memory[ADDRESS:]
        self.area[:] = content
        self.attached = self.model.attach("bus", self.memory, self.config.dram_latency)
        self.flushed = list[tuple[int, int]]()
        kinds = dict(Port._fields_)
        self.port = Port(kinds["read"](self.read), kinds["write"](self.write), kinds["flush"](self.flush))

    def read(self, offset: int) -> int:
        if offset == STATUS:
            self.model.run_until("interrupt", 1_000_000)  # as a driver that sleeps until then
        return lite.read(self.model, offset)

    def write(self, offset: int, value: int) -> None:
        lite.write(self.model, offset, value)

    def flush(self, start: int, size: int) -> None:
        self.flushed.append((start - self.area.ctypes.data, size))

    def segment(self, launch: int, name: str) -> Array:
        """The bytes of a segment, in place."""
        found = self.library.vta_find(launch, name.encode()).contents
        assert found.launch == launch and found.name == name.encode()
        return self.area[found.at : found.at + found.bytes]

    def run(self, launch: int, polls: int = 1) -> int:
        place = ctypes.c_void_p(self.area.ctypes.data)
        return int(self.library.vta_run(ctypes.byref(self.port), place, ADDRESS, launch, polls))


@pytest.mark.gxx
@pytest.mark.parametrize(
    "changes",
    [{}, pytest.param({"stages": 4, "alu": "fused", "LOG_PAR_BUFF_SIZE": 10}, marks=pytest.mark.slow)],
    ids=["three stages", "four stages"],
)
def test_the_driver_runs_a_network_on_the_gateware(changes: Mapping[str, Any], tmp_path: Path) -> None:
    """Bytes that a launch returns, and its cycles, are the simulator's; the network's output is the reference's."""
    program = tw.compile(DIGITS, "vta", None, {key: str(value) for key, value in (KEYS | dict(changes)).items()})
    board, graph = Board(program, tmp_path), program.graph
    assert graph is not None
    values, number, trace = dict(inputs.random(graph).values), -1, None
    for step in program.steps:
        if isinstance(step, HostStep):
            values.update(reference.run_node(graph, step.node, values, program.rounding))
            continue
        number, image, packed = number + 1, image_of(step), dict(pack(step, graph, values))
        for name, data in packed.items():
            board.segment(number, name)[:] = data[0]
        dram = image.dram(packed, 1)
        trace = run_passes(image.insns, board.config, dram, image.bases, 1, OPTIONS).trace
        assert trace is not None
        assert board.run(number) == trace.end[-1], step.name
        for segment in image.segments:
            if segment.kind in RETURNED:
                assert np.array_equal(board.segment(number, segment.name), dram[segment.name][0]), segment.name
        outputs = {name: board.segment(number, name)[None].copy() for name in image.outputs}
        values.update(unpack(step, graph, values, outputs, program.rounding))
        assert len(board.flushed) == 2 * (number + 1)
    assert trace is not None and board.model.faults(board.attached) == 0
    assert number + 1 == len(program.launches) > 1
    golden = reference.run(graph, {name: values[name] for name in graph.inputs}, program.rounding)
    for name, expected in golden.items():
        assert np.array_equal(values[name], expected), name
    assert {board.run(number) for _ in range(40)} == {trace.end[-1]}  # no launch leaves something behind
    assert board.run(number + 1) == board.run(0, polls=0) == -1
    assert not board.library.vta_find(number + 1, b"x")


def test_what_has_no_driver_is_refused() -> None:
    with pytest.raises(ConfigError, match="semantics=fsim is not supported"):
        driver.sources(Program.bare("vta", small(0, 2, semantics="fsim"), []))
    with pytest.raises(UnsupportedError, match="no layer of the program runs"):
        driver.sources(Program.bare("vta", small(0, 2), []))
