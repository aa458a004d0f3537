"""A layer in the debugger: its rows against the stepped engine and closed forms, its states against a straight run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.targets.zynq.cases import FAST, LAYERS, SHAPES, SMALL, WINDOW, Case, case, hash_of
from tests.targets.zynq.engine import Engine
from tilewright.cli import main
from tilewright.debug.launches import History
from tilewright.program.program import Launch, Program
from tilewright.targets.zynq.config import Config
from tilewright.targets.zynq.debug.steps import PageService, Row
from tilewright.targets.zynq.debug.walk import ZynqWalk
from tilewright.targets.zynq.isa.layer import LAYOUT, Kind
from tilewright.targets.zynq.launch import ZynqLaunch
from tilewright.targets.zynq.timing import service
from tilewright.targets.zynq.timing.service import COMPUTE, PAGED
from tilewright.targets.zynq.timing.walk import ConvWalk, FcWalk, refusal

MACHINES = {
    "small": SMALL,
    "chw": {**SMALL, "layout": "chw", "weight_bits": 8},
    "blocking": {**FAST, "oc_blocking": 1, "outputs": 3, "dsp_budget": 1000},
    "fast": FAST,
    "window": WINDOW,
}
CASES = [(machine, name) for machine in MACHINES for name in {**LAYERS, **SHAPES}]


def given_case(machine: str, name: str) -> Case:
    return case(hash_of(name + machine), Config(**MACHINES[machine]), **{**LAYERS, **SHAPES}[name])  # type: ignore[arg-type]


def walk_of(given: Case, timing: str = PAGED) -> ZynqWalk:
    layer, config = given.layer, given.layer.config
    operands = {"weight": given.weights, "data": given.data}
    arrays = {name: np.ascontiguousarray(array).view(np.uint8).ravel() for name, array in operands.items()}
    arrays |= {"insns": LAYOUT.encode_rows([layer.fields]), "bias": given.bias, "factor": given.factor}
    launch = Launch("layer", (), {}, arrays)
    launched = ZynqLaunch(Program.bare("zynq", config, [launch]), launch, config, timing)
    return ZynqWalk(launched, given.data[0] if layer.kind == Kind.FC else given.data)


def possible(machine: str, name: str) -> bool:
    """Whether the layer's sizes fit the machine's small blocks."""
    try:
        return not refusal(given_case(machine, name).layer)
    except AssertionError:
        return False


@pytest.mark.parametrize(("machine", "name"), [each for each in CASES if possible(*each)])
def test_rows_make_the_results_in_the_cycles_of_a_run(machine: str, name: str) -> None:
    given = given_case(machine, name)
    layer, walk = given.layer, walk_of(given)
    rows = [step for step in walk.steps if isinstance(step, Row)]
    assert [row.first for row in rows] == [0, *(row.after for row in rows[:-1])]
    assert rows[-1].after == layer.outputs
    assert walk.order.complete and not walk.order.findings
    trace, plan = walk.trace, service.schedule(layer)
    assert trace is not None and trace.cycles == plan.cycles
    engine = np.array([isinstance(step, Row) for step in walk.steps])
    assert (np.diff(trace.start[engine]) >= 0).all() and (trace.start[engine][1:] >= trace.end[engine][:-1]).all()
    assert int((trace.end - trace.start)[engine].sum()) == plan.engine
    assert int(trace.wait[engine].sum()) == int(plan.waits.wait[plan.waits.at < plan.engine].sum())
    services = [step for step in walk.steps if isinstance(step, PageService)]
    assert len(services) == len(plan.service.cause)
    if layer.channels:  # the cycles of each result, from the form that times its blocks
        span_of = ConvWalk(layer).span if layer.conv else FcWalk(layer).group_span
        late = np.append(0, np.cumsum(plan.waits.wait))
        keys = [(row.row, row.low) for row in rows]
        fresh = [at for at in range(1, len(rows)) if keys[at] != keys[at - 1] and rows[at].first < layer.outputs]
        begin = span_of(np.array([rows[at].first for at in fresh], np.int64))[0]
        began = begin + late[np.searchsorted(plan.waits.at, begin, "right")]
        np.testing.assert_array_equal(trace.start[engine][fresh], began)
        number = np.random.default_rng(hash_of(name)).integers(0, layer.outputs, 50)
        span = span_of(number)
        ready = span[1] + late[np.searchsorted(plan.waits.at, span[1], "left")]
        after = np.array([row.after for row in rows])
        at = np.searchsorted(after, number, "right")
        ends, starts = trace.end[engine][at], trace.start[engine][at]
        inside = (starts <= ready) & (ready <= ends) | (at == len(rows) - 1)
        assert inside.all()


@pytest.mark.parametrize("name", SHAPES)
def test_the_order_of_results_is_the_stepped_engines(name: str) -> None:
    given = given_case("small", name)
    engine, blocks, results = Engine(given.layer, given.factor), given.blocks, dict[int, bytes]()
    while not engine.idle:
        engine.tick()
        if engine.request:
            store, block, writes = engine.request
            if writes:
                results[block] = engine.words[store].tobytes()
            else:
                engine.words[store][:] = blocks[store][block]
            engine.done()
    walk = walk_of(given)
    state = walk.start()
    state.execute(walk.order.sequence)
    written = b"".join(results[index] for index in range(len(results)))[: given.layer.outputs]
    assert state.memory("result").tobytes() == written
    base = walk.base["result"]
    assert state.dram(base, given.layer.outputs).tobytes() == written


@pytest.mark.parametrize(("machine", "name"), [("small", "conv"), ("window", "conv"), ("fast", "pool"), ("chw", "fc")])
def test_a_state_does_not_depend_on_the_way_to_it(machine: str, name: str) -> None:
    walk = walk_of(given_case(machine, name), COMPUTE if machine == "chw" else PAGED)
    rng, state, sequence = np.random.default_rng(hash_of(name)), walk.start(), walk.order.sequence
    expected = [
        (state.dram(0, walk.segments[-1].end).copy(), state.memory("frames").copy(), state.memory("result").copy())
    ]
    for step in sequence.tolist():
        state.execute(np.array([step]))
        held = state.dram(0, walk.segments[-1].end), state.memory("frames"), state.memory("result")
        expected.append(tuple(part.copy() for part in held))  # type: ignore[arg-type]
    states = History(walk, sequence)
    for position in rng.integers(0, len(sequence) + 1, 20).tolist():
        reached = states.move(position)
        held = reached.dram(0, walk.segments[-1].end), reached.memory("frames"), reached.memory("result")
        for part, wanted in zip(held, expected[position], strict=True):
            np.testing.assert_array_equal(part, wanted)


def test_a_session_by_layer_page_and_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "commands.txt"
    script.write_text(
        "layer conv2d_1\nlist 0 3\nuntil result[5]\nwho result[5]\ndepends result[5]\nend\nwho t1[0,0,0,1]\n"
    )
    model = str(ROOT / "examples" / "digits_vgg" / "digits_vgg.tflite")
    samples = str(ROOT / "examples" / "digits" / "samples.npz")
    status = main(["debug", model, "-t", "zynq", "-i", samples, "--script", str(script)])
    told = capsys.readouterr()
    assert status == 0, told.err
    assert "#0 ps: load data block 0" in told.out
    assert "engine: conv_other row 0 of channel 0" in told.out
    assert "dram.data[0:256] (256 of them)" not in told.out and "dram.data[0:" in told.out
    assert told.out.splitlines()[-1].endswith("ps: write result block 0")
