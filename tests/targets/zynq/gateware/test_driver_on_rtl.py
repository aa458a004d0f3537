"""The PS driver in C runs a network on the gateware, compiled from the Verilog that is written for a board.

It accesses registers on AXI4-Lite, and moves blocks through the other port.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from tests.hdl import lite
from tests.hdl.written import from_verilog
from tests.targets.zynq.driver_calls import MOVE, READ, WRITE, Port, build, compiled, constant, ran
from tests.targets.zynq.gateware.machines import BLOCKS, MACHINES
from tests.targets.zynq.networks import Chain
from tilewright.array import Array
from tilewright.graph import reference
from tilewright.hdl.model import Compiled
from tilewright.program.program import Program
from tilewright.targets.zynq import placement
from tilewright.targets.zynq.config import STORES, Config
from tilewright.targets.zynq.gateware import engine
from tilewright.targets.zynq.gateware.top import ZynqSystem
from tilewright.targets.zynq.isa.image import LayerImage
from tilewright.targets.zynq.runtime.driver import REGISTERS
from tilewright.targets.zynq.timing.service import schedule

pytestmark = pytest.mark.gxx


class Board:
    """The PS's side of the ports: one AXI4-Lite access, or one block, at a time. `folder` takes the Verilog, if any."""

    def __init__(self, config: Config, folder: Path | None) -> None:
        self.config, system = config, ZynqSystem(config)
        self.lines = system.lines
        self.model = (from_verilog(system, folder) if folder else Compiled(system)).model()
        self.port = Port(READ(self.read), WRITE(self.write), MOVE(self.move))
        self.served = dict.fromkeys(STORES, 0)

    def read(self, offset: int) -> int:
        if offset == REGISTERS["STATUS"]:
            self.model.run_until("interrupt", 200_000)  # as a driver that sleeps until then
        return lite.read(self.model, offset)

    def write(self, offset: int, value: int) -> None:
        lite.write(self.model, offset, value)
        self.model.step()

    def move(self, store: int, writes: int, ddr: int, size: int) -> None:
        beat, model = engine.beat_bytes(self.config), self.model
        place = (store << self.lines) + np.arange(size // beat)
        self.served[STORES[store]] += 1
        if writes:
            model.step(engine.drain(self.config))
            moved: Array = model.play({"bram_address": place}, "bram_read_data").ravel()
            ctypes.memmove(ddr, np.ascontiguousarray(moved).ctypes.data, size)
        else:
            words = np.frombuffer(ctypes.string_at(ddr, size), np.uint8).reshape(-1, beat)
            model["bram_enable"] = model["bram_write"] = 1
            model.play({"bram_address": place, "bram_write_data": words})
            model["bram_enable"] = model["bram_write"] = 0


@pytest.mark.parametrize("layout", ["rows", pytest.param("chw", marks=pytest.mark.slow)])
@pytest.mark.parametrize("rounding", ["ort", pytest.param("tflm", marks=pytest.mark.slow)])
def test_the_driver_runs_a_network_on_the_gateware(layout: str, rounding: str, tmp_path: Path) -> None:
    chain = Chain(3, (12, 8, 3)).conv(4).conv(16).pool().conv(3).flat().dense(7)
    program = compiled(chain, rounding, layout=layout, **{**BLOCKS, "data_bits": 8, "result_bits": 8})
    runs(chain, program, tmp_path, Board(config_of(program), tmp_path))


SLOW = (
    "one sweep",
    "two frames, resident",
    "two frames, one sweep",
    "window, one output",
    "window, two outputs",
    "window",
)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["two frames", *SLOW])
def test_the_driver_serves_two_frames_and_orders_results(name: str, tmp_path: Path) -> None:
    """Kernels of several blocks, images of several blocks, pixels that are filled up, a vector of several lines."""
    chain = Chain(4, (16, 12, 3)).conv(4).conv(32).pool().conv(19).pool().flat().dense(40).dense(7)
    program = compiled(chain, "ort", **{**BLOCKS, "weight_bits": 12, **MACHINES[name], "data_bits": 11, "bias_bits": 5})
    assert any(
        placement.data_blocks(LayerImage.of(launch, config_of(program)).layer) > 1 for launch in program.launches
    )
    runs(chain, program, tmp_path, Board(config_of(program), None))


def config_of(program: Program) -> Config:
    return Config.read(program.config, {})


def runs(chain: Chain, program: Program, tmp_path: Path, board: Board) -> None:
    """The driver, in C, runs the network; its output is the reference's, its pages are the simulator's."""
    library, data = build(program, tmp_path), chain.inputs(1)
    assert constant(tmp_path, "ZYNQ_CHAIN") == 1
    images = [LayerImage.of(launch, board.config) for launch in program.launches]
    services, output = ran(library, tmp_path, board.port, images, data)
    golden = reference.run(chain.graph(), data, program.rounding)
    np.testing.assert_array_equal(output, next(iter(golden.values())).ravel())
    loads = [schedule(image.layer).loads() for image in images]
    assert services == sum(board.served.values()) == sum(sum(counts.values()) for counts in loads)
