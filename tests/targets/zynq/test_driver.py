"""The PS driver, compiled by the host's C compiler, serves the engine that is stepped cycle by cycle."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from tests.targets.zynq.driver_calls import MOVE, READ, WRITE, Port, build, compiled, constant, ran
from tests.targets.zynq.engine import Engine
from tests.targets.zynq.networks import Chain
from tilewright.array import Array
from tilewright.errors import UnsupportedError
from tilewright.graph import reference
from tilewright.targets.zynq import placement
from tilewright.targets.zynq.config import STORES, Config
from tilewright.targets.zynq.isa.image import LayerImage
from tilewright.targets.zynq.isa.layer import DESCRIPTORS, LAYOUT, Layer
from tilewright.targets.zynq.runtime import driver
from tilewright.targets.zynq.runtime.driver import (
    REGISTERS,
    STATUS_IDLE,
    STATUS_STORE_SHIFT,
    STATUS_WAITING,
    STATUS_WRITE,
)
from tilewright.targets.zynq.timing.service import schedule


class Board:
    """The engine behind registers, as the driver sees it."""

    def __init__(self, config: Config) -> None:
        self.config, self.registers = config, dict[int, int]()
        self.engine: Engine | None = None
        self.engines: list[Engine] = []
        self.port = Port(READ(self.read), WRITE(self.write), MOVE(self.move))

    def read(self, offset: int) -> int:
        assert self.engine is not None
        if offset == REGISTERS["BLOCK"]:
            assert self.engine.request is not None
            return self.engine.request[1]
        assert offset == REGISTERS["STATUS"]
        while not self.engine.request and not self.engine.idle:
            self.engine.tick()
        if self.engine.request is None:
            return STATUS_IDLE
        store, _, writes = self.engine.request
        return STATUS_WAITING | STORES.index(store) << STATUS_STORE_SHIFT | writes * STATUS_WRITE

    def write(self, offset: int, value: int) -> None:
        if offset == REGISTERS["CONTROL"]:
            self._start()
        elif offset == REGISTERS["DONE"]:
            assert self.engine is not None and self.engine.request is not None
            assert STORES[value] == self.engine.request[0]
            self.engine.done()
        else:
            self.registers[offset] = value

    def _words(self, offset: int, count: int) -> Array:
        return np.array([self.registers.pop(offset + 4 * index) for index in range(count)], "<u4")

    def _start(self) -> None:
        code = self._words(REGISTERS["DESCRIPTOR"], LAYOUT.bits // 32).view(np.uint8)[None]
        layer = Layer.of(DESCRIPTORS.decode(code), 0, self.config)
        self.engine = Engine(layer, self._words(REGISTERS["FACTOR"], 2 * layer.channels).view("<f8"))
        self.engines.append(self.engine)
        assert not self.registers

    def move(self, store: int, writes: int, ddr: int, size: int) -> None:
        assert self.engine is not None and self.engine.request is not None
        assert (STORES[store], bool(writes)) == (self.engine.request[0], self.engine.request[2])
        words = self.engine.words[STORES[store]]
        assert words.nbytes == size
        ctypes.memmove(*((ddr, words.ctypes.data) if writes else (words.ctypes.data, ddr)), size)


@pytest.mark.gxx
@pytest.mark.parametrize("layout", ["rows", "chw", "hwc"])
@pytest.mark.parametrize("rounding", ["ort", "tflm"])
def test_the_driver_runs_a_network(layout: str, rounding: str, tmp_path: Path) -> None:
    chain = Chain(3, (12, 8, 3)).conv(4).conv(16).pool().conv(3).flat().dense(7)
    program = compiled(chain, rounding, layout=layout, data_bits=8, result_bits=8)
    library, data = build(program, tmp_path), chain.inputs(1)
    board = Board(Config.read(program.config, {}))
    images = [LayerImage.of(launch, board.config) for launch in program.launches]
    services, output = ran(library, tmp_path, board.port, images, data)
    golden = reference.run(chain.graph(), data, program.rounding)
    np.testing.assert_array_equal(output, next(iter(golden.values())).ravel())
    loads = [schedule(image.layer).loads() for image in images]
    assert all(
        placement.data_blocks(image.layer) > 1 for image in images[:4]
    )  # halos, planes and write-backs are needed
    assert services == sum(sum(counts.values()) for counts in loads)
    for engine, counts in zip(board.engines, loads, strict=True):
        assert {name: count for name, count in engine.served.items() if count} == counts


@pytest.mark.gxx
def test_a_network_that_the_host_interrupts_is_no_chain(tmp_path: Path) -> None:
    program = compiled(Chain(1, (4, 4, 3)).conv(20).conv(16).conv(2), "ort", weight_bits=12)
    assert [type(step).__name__ for step in program.steps] == ["Launch", "HostStep", "Launch"]
    library = build(program, tmp_path)
    assert constant(tmp_path, "ZYNQ_CHAIN") == 0
    assert library.zynq_run(None, None, None, None, None) == -1
    assert library.zynq_run_layer(None, None, 99, None, None) == -1


@pytest.mark.parametrize("changes", [{"fc_batch": 2}, {"outputs": 2, "macs_per_dsp": 2}])
def test_machines_without_gateware_are_refused(changes: dict[str, int]) -> None:
    with pytest.raises(UnsupportedError, match=next(iter(changes))):
        driver.sources(compiled(Chain(1, (4, 4, 3)).conv(3), "ort", **changes))
