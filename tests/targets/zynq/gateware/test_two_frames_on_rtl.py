"""Engines with two frames behind their registers: the PS announces each page in JOB, and moves it when it is ready."""

from __future__ import annotations

import numpy as np
import pytest

from tests.hdl import lite
from tests.targets.zynq.cases import LAYERS, Case, case
from tests.targets.zynq.gateware.machines import machine
from tilewright.array import Array
from tilewright.hdl.model import Compiled
from tilewright.targets.zynq.config import STORES
from tilewright.targets.zynq.gateware import cosim, engine
from tilewright.targets.zynq.gateware.top import ZynqSystem
from tilewright.targets.zynq.isa.layer import LAYOUT
from tilewright.targets.zynq.runtime.driver import REGISTERS, STATUS_IDLE, STATUS_READY
from tilewright.targets.zynq.timing.service import schedule
from tilewright.targets.zynq.timing.walk import uses
from tilewright.targets.zynq.values import machine as values

pytestmark = pytest.mark.gxx


@pytest.mark.parametrize("name", ["window, one output", pytest.param("two frames", marks=pytest.mark.slow)])
def test_layers_run_through_the_registers(name: str) -> None:
    system = ZynqSystem(machine(name))
    compiled = Compiled(system)
    for layer in ("conv_1_1", "fc", "pool"):
        given = case(1, machine(name), **LAYERS[layer])
        codes = values.run(
            given.layer, given.data.reshape(1, *given.layer.input_shape), given.weights, given.bias, given.factor
        )
        np.testing.assert_array_equal(ran(compiled, system, given), cosim.in_order(given.layer, codes))


def ran(compiled: Compiled, system: ZynqSystem, given: Case) -> Array:
    """The results of a layer, in the order of writing: all accesses are of AXI4-Lite and of the block RAM's port."""
    layer, model, config = given.layer, compiled.model(), given.layer.config
    beat = engine.beat_bytes(config)
    for place, word in enumerate(np.broadcast_to(given.factor, layer.channels).astype("<f8").view("<u4").tolist()):
        lite.write(model, REGISTERS["FACTOR"] + 4 * place, word)
    for place, word in enumerate(LAYOUT.encode_rows([layer.fields]).view("<u4")[0].tolist()):
        lite.write(model, REGISTERS["DESCRIPTOR"] + 4 * place, word)
    lite.write(model, REGISTERS["CONTROL"], 1)
    block_uses = uses(layer)
    numbers = {STORES.index(store): iter(of.block.tolist()) for store, of in block_uses.items()}
    results = dict[int, Array]()
    for store in schedule(layer).service.cause.tolist():
        lite.write(model, REGISTERS["JOB"], store)
        model.step()
        model.run_until("interrupt", 1_000_000)
        assert lite.read(model, REGISTERS["STATUS"]) & STATUS_READY
        block = next(numbers[store])
        beats = (store << system.lines) + np.arange(config.block_bytes(STORES[store]) // beat)
        if STORES[store] == "result":
            model.step(engine.drain(config))
            results[block] = model.play({"bram_address": beats}, "bram_read_data").ravel()
        else:
            words = np.ascontiguousarray(given.blocks[STORES[store]][block]).view(np.uint8).reshape(-1, beat)
            model["bram_enable"] = model["bram_write"] = 1
            model.play({"bram_address": beats, "bram_write_data": words})
            model["bram_enable"] = model["bram_write"] = 0
        lite.write(model, REGISTERS["DONE"], store)
        model.step()
    assert lite.read(model, REGISTERS["STATUS"]) & STATUS_IDLE
    left = np.concatenate([results[block] for block in range(len(results))])
    return left[: layer.outputs]
