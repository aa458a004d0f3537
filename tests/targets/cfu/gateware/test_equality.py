"""The compiled gateware and the simulator's model: random commands, misuse included, answer by answer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.targets.cfu.gateware.sequences import RAM_BYTES, Command, random_commands, run
from tests.targets.cfu.unit import Unit
from tilewright.errors import MachineError
from tilewright.targets.cfu.config import PRESETS, RAM_BASE, Config
from tilewright.targets.cfu.gateware.cosim import Compared, Gateware
from tilewright.targets.cfu.isa import custom as isa
from tilewright.targets.cfu.isa.custom import CHECK, GET, SET_A, START
from tilewright.targets.cfu.isa.state import FIELDS, Misuse

#: The first ones for every day: small arrays, all words of every key.
MACHINES = {
    "addressed4": Config(array=4, transfer="addressed", buffer_rows=16),
    "counter4, all alternatives": Config(
        array=4, transfer="counter", buffer_rows=32, readout="random", start="blocking", srdhm="single"
    ),
    "counter8": Config(array=8, transfer="counter", buffer_rows=16),
}
LARGE = {
    "addressed8, random": Config(array=8, transfer="addressed", readout="random", buffer_rows=16),
    "counter8, blocking": Config(array=8, transfer="counter", start="blocking", buffer_rows=32),
    "published": Config(),
    "published, wrapping": Config(buffer_rows=16),
    "dot": Config(buffer_rows=16, extensions="resident,dot"),
    "image memory": Config(buffer_rows=16, extensions="resident", srdhm="single"),
    "addressed16, random": Config(transfer="addressed", readout="random", buffer_rows=64),
}
CASES, COMMANDS = 12, 200


def compared(config: Config, seed: int, cases: int = CASES, engine: str = "verilator") -> set[str]:
    """Compare `cases` sequences. Return the kinds of misuse that occurred."""
    kinds = set()
    for case in range(cases):
        rng = np.random.default_rng([seed, case])
        unit = Compared(config, engine)
        unit.attach(rng.integers(0, 256, RAM_BYTES).astype(np.uint8))
        run(unit, random_commands(config, rng, COMMANDS))
        assert unit.differences == [], f"seed {seed}, case {case}"
        kinds |= unit.misuses
    return kinds


@pytest.mark.parametrize("name", MACHINES)
def test_answers_and_cycles_are_the_models(name: str) -> None:
    compared(MACHINES[name], 1)


def test_random_commands_have_every_misuse() -> None:
    kinds = compared(MACHINES["counter8"], 2)
    # Rows of 8 values are transferred whole: half a row is for the larger arrays.
    assert kinds == {kind.name.lower() for kind in Misuse} - {"half_row"}


@pytest.mark.slow
def test_cxxrtl_agrees() -> None:
    compared(MACHINES["counter8"], 3, 3, "cxxrtl")


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_answers_and_cycles_of_larger_arrays_are_the_models(name: str) -> None:
    kinds = compared(LARGE[name], 4)
    assert ("half_row" in kinds) == (LARGE[name].transfer == "paired")


@pytest.mark.slow
def test_an_array_of_32_is_the_models() -> None:
    compared(Config(array=32, buffer_rows=64), 5, 3)


def test_a_read_while_the_array_works_returns_the_row_that_it_writes_next() -> None:
    """In every cycle of two launches, the second of which adds to the first: model and gateware, read for read."""
    config = MACHINES["counter8"]
    rng = np.random.default_rng(6)
    a, b = rng.integers(-128, 128, (9, 3)), rng.integers(-128, 128, (3, 10))
    loaded = Unit(config)
    loaded.load(a, b)
    for first in range(2, 90):
        unit, cycle = Compared(config), 0
        for which, matrix in ((SET_A, a), (SET_A + 1, b.T)):
            for at in range(0, len(matrix), 8):
                for k in range(3):
                    values = np.resize(matrix[at : at + 8, k], 8).astype(np.int8)
                    upper, lower = values.view(">i4").tolist()
                    cycle = unit.execute(which, 0, upper, lower, cycle)[1] + 1
        for accumulate in (0, 1 << 30):
            unit.execute(START, 0, accumulate | 9 << 20 | 10 << 10 | 3, 5, cycle)
            for wait in range(first, first + 8, 2):
                unit.execute(GET, 0, 0, 0, cycle + wait)
            cycle += 120
        assert unit.differences == [], first


def test_the_answer_waits_for_the_cpu_and_no_command_is_taken_before() -> None:
    model = Gateware(MACHINES["counter8"]).model
    model["rsp_ready"] = 0
    model["cmd_valid"], model["cmd_payload_function_id"], model["cmd_payload_inputs_0"] = 1, 7 << 3, 9
    model["cmd_payload_inputs_1"] = 1
    model.step()
    model["cmd_payload_inputs_0"] = 77
    for _ in range(3):
        assert (model["rsp_valid"], model["cmd_ready"], model["rsp_payload_outputs_0"]) == (1, 0, 5)
        model.step()
    model["rsp_ready"] = 1
    model.step()
    assert (model["rsp_valid"], model["cmd_ready"]) == (0, 1)
    model.step()
    assert model["rsp_payload_outputs_0"] == 39


def test_a_command_before_the_cfu_can_take_it_is_an_error() -> None:
    unit = Gateware(MACHINES["counter8"])
    assert unit.execute(CHECK, 0, 0, 0, 4) == (0, 5)
    with pytest.raises(MachineError, match="cycle 5"):
        unit.execute(CHECK, 0, 0, 0, 5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["im2col", "pool", "dma", "burst", "overlap", "stream"])
def test_presets_beyond_the_document_are_the_models(name: str) -> None:
    """Fewer rows than the preset has, so that row numbers wrap; C still has room for the sums of all pixels."""
    kinds = compared(replace(PRESETS[name], buffer_rows=256), 8, 20)
    assert {"write_busy", "read_busy", "start_busy", "empty"} <= kinds


@pytest.mark.slow
@pytest.mark.parametrize("names", ["add,pool", "im2col,dot"])
def test_some_extensions_alone_are_the_models(names: str) -> None:
    config = Config(extensions=names, buffer_rows=64, readout="random", start="blocking", srdhm="single")
    compared(config, 9, 20)


@pytest.mark.slow
def test_weights_are_fetched_while_a_convolution_reads_others() -> None:
    """Two convolutions, of which the second one's weights arrive during the first one, at several distances."""
    config, rng = replace(PRESETS["burst"], buffer_rows=256), np.random.default_rng(11)
    layer = dict.fromkeys(("kernel_h", "kernel_w"), 3) | dict.fromkeys(("pad_h", "pad_w", "stride_h", "stride_w"), 1)
    layer |= {"in_h": 6, "in_w": 5, "in_c": 4, "out_h": 6, "out_w": 5, "out_c": 20}
    layer |= {"input": 0, "output": 1024, "low": -128, "high": 127, "input_offset": 9}
    for wait in (0, 1, 7, 300):
        unit = Compared(config)
        unit.attach(rng.integers(0, 256, 4096).astype(np.uint8))
        words = rng.integers(-(1 << 31), 1 << 31, (40, 2)).tolist()
        commands = [Command(isa.PUSH_IMAGE, 0, a, b, 0) for a, b in words]
        commands += [Command(isa.PUT, 0, FIELDS[name.upper()], value, 0) for name, value in layer.items()]
        for channel in range(20):
            commands += [Command(isa.PUSH_CHANNEL, 0, 50 * channel, 3 << 29, 0), Command(isa.PUSH_SHIFT, 0, -7, 0, 0)]
        commands += [Command(isa.FETCH, 0, RAM_BASE, 16 * 72, 0), Command(isa.START_CONV, 0, 0, 0, 0)]
        commands += [
            Command(isa.PUT, 0, FIELDS["FETCH_ROW"], 72, 0),
            Command(isa.FETCH, 0, RAM_BASE + 8, 16 * 72, wait),
        ]
        commands += [Command(isa.PUT, 0, FIELDS["ROW"], 72, 0), Command(isa.CHECK, 0, 0, 0, 0, True)]
        commands += [Command(isa.START_CONV, 0, 0, 0, 0, True)] + [Command(isa.GET_IMAGE, 0, 0, 0, 0)] * 4
        commands += [Command(isa.PUT, 0, FIELDS["POINTER"], 1024, 0)] + [Command(isa.GET_IMAGE, 0, 0, 0, 0)] * 150
        run(unit, commands)
        assert unit.differences == [] and unit.misuses == set(), wait
