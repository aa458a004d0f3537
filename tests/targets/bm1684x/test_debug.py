"""The debugger's states and slices of the BM1684X, against commands that run one by one on the device's memories.

A run of a network has other code for memories than a kernel has: each is the reference of the other's debugger.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.targets.vta.networks import MACHINE_KINDS, Builder
from tilewright.array import Array
from tilewright.debug import launches
from tilewright.debug.session import Session
from tilewright.debug.slices import walk_back
from tilewright.graph.ops import Conv2D, Window
from tilewright.program.program import Program
from tilewright.sim.order import random_sequence
from tilewright.sim.walk import Walk
from tilewright.targets.bm1684x import TARGET
from tilewright.targets.bm1684x.config import DDR_BASE, LOCAL_BASE, Config
from tilewright.targets.bm1684x.debug.commands import CommandWalk
from tilewright.targets.bm1684x.debug.network import NetworkWalk
from tilewright.targets.bm1684x.layouts.tensor import Tensor
from tilewright.targets.bm1684x.runtime.device import Device
from tilewright.targets.bm1684x.runtime.kernel import Tpu, kernel
from tilewright.targets.bm1684x.values.dtypes import F32
from tilewright.targets.bm1684x.values.memory import Memories

SEEDS = 5
KINDS = [*MACHINE_KINDS, "mean", "concat", "quantize"]


def random_program(rng: np.random.Generator) -> tuple[Program, dict[str, Array]]:
    """A network of a few layers on a machine of a few lanes, and a sample."""
    while True:
        builder = Builder(rng)
        builder.given((1, int(rng.integers(3, 9)), int(rng.integers(3, 9)), int(rng.integers(1, 9))))
        for _ in range(int(rng.integers(1, 6))):
            builder.grow(str(rng.choice(KINDS)))
        if not builder.nodes:
            continue
        graph, batch = builder.graph(), int(rng.integers(1, 4))
        config = Config(4, 4, 1 << int(rng.integers(11, 14)), static_bytes=1 << 14, l2_bytes=64, batch=batch)
        program = TARGET.compile(graph, config, str(rng.choice(["tflm", "ort"])))
        if program.launches:
            sample = {name: graph.tensors[name] for name in graph.inputs}
            return program, {n: rng.integers(-128, 128, (1, *t.shape)).astype(np.int8) for n, t in sample.items()}


def memories_of(walk: CommandWalk) -> Memories:
    """A device whose memories hold what the launch begins with."""
    memories, state = Memories(walk.config), walk.start()
    end = max(part.end for part in walk.segments) if walk.segments else DDR_BASE + 1
    ddr = memories.new_ddr(DDR_BASE, end - DDR_BASE)
    for part in walk.segments:
        ddr.data[part.address - DDR_BASE : part.end - DDR_BASE] = state.dram(part.address, part.size)
    return memories


def content(memories: Memories, walk: CommandWalk) -> dict[str, Array]:
    local, ddr = memories.regions[0], memories.regions[-1]
    parts = {part.name: ddr.data[part.address - DDR_BASE : part.end - DDR_BASE].copy() for part in walk.segments}
    return {"": local.data.copy(), **parts}


def walks(program: Program, sample: dict[str, Array]) -> list[NetworkWalk]:
    session, sessions = Session(program, sample), []
    for name in session.launches:
        session.launch(name)
        assert isinstance(session.walk, NetworkWalk)
        sessions.append(session.walk)
    return sessions


def check_states(walk: CommandWalk, sequence: Array, rng: np.random.Generator) -> None:
    memories = memories_of(walk)
    expected = [content(memories, walk)]
    for step in sequence.tolist():
        walk.steps[step].command.run(memories)
        expected.append(content(memories, walk))
    states = launches.History(walk, sequence)
    for _ in range(10):
        near = states.position + int(rng.integers(-2, 3)) if rng.integers(2) else int(rng.integers(len(expected)))
        position = min(max(near, 0), len(sequence))
        state = states.move(position)
        np.testing.assert_array_equal(state.memory("local").reshape(-1), expected[position][""])
        np.testing.assert_array_equal(state.dram(LOCAL_BASE + 100, 5000), expected[position][""][100:5100])
        for part in walk.segments:
            held = state.dram(part.address, part.size)
            np.testing.assert_array_equal(held, expected[position][part.name], f"{position} {part.name}")


def check_slice(walk: CommandWalk, sequence: Array, rng: np.random.Generator) -> bool:
    """Every byte that is not in the slice of a byte gets another value: that byte stays the same."""
    memories = memories_of(walk)
    start, ddr = memories.regions[0].data.copy(), memories.regions[-1]
    before = ddr.data.copy()
    for step in sequence.tolist():
        walk.steps[step].command.run(memories)
    after = ddr.data.copy()
    stored = [walk.steps[step].command.results["y"] for step in sequence.tolist()]
    stored = [place for place in stored if not place.storage.is_local]
    seeds = rng.choice(rng.choice(np.array(stored, object)).addresses.reshape(-1), 1)
    visited = walk_back(walk, sequence, [walk.at(seeds)])
    assert set(np.flatnonzero(visited.hit)) <= set(sequence.tolist())
    for region, old, low in ((memories.regions[0], start, LOCAL_BASE), (ddr, before, DDR_BASE)):
        kept = np.zeros(len(old), np.bool_)
        for space, mine, elements in walk.located(low + np.arange(len(old))):
            kept[mine] = visited.left[space][elements] > 0
        region.data[:] = np.where(kept, old, rng.integers(0, 256, len(old)))
    for step in sequence.tolist():
        walk.steps[step].command.run(memories)
    at = seeds - DDR_BASE
    np.testing.assert_array_equal(ddr.data[at], after[at])
    return bool(visited.hit.any())


@pytest.mark.parametrize("seed", range(SEEDS))
def test_states_of_a_network(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    monkeypatch.setattr(launches, "CHECKPOINT_DISTANCE", 4)
    monkeypatch.setattr(launches, "BUDGET", 1 << int(rng.integers(10, 24)))
    for walk in walks(*random_program(rng)):
        for order in (walk.order.sequence, random_sequence(walk.table, walk.order, seed)):
            check_states(walk, order, rng)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_outside_a_slice_of_a_network_changes_the_value(seed: int) -> None:
    rng = np.random.default_rng([7, seed])
    for walk in walks(*random_program(rng)):
        assert check_slice(walk, walk.order.sequence, rng)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_layers_are_compared_where_their_results_are_complete(seed: int) -> None:
    """Each result in local memory has the reference's values at its moment, and no launch differs."""
    program, sample = random_program(np.random.default_rng([3, seed]))
    session = Session(program, sample)
    assert session.differs() is None
    compare_all(session)


def compare_all(session: Session) -> int:
    """Compare all tensors, and parts of tensors, with the reference; return the number of parts."""
    parts = 0
    for name in session.launches:
        session.launch(name)
        for tensor in session.tensors():
            session._move(session._complete(tensor) if tensor.node else 0)
            golden = session._launches.golden[tensor.of][0]
            expected = golden if tensor.part is None else golden[tensor.part]
            np.testing.assert_array_equal(session.read(f"'{tensor.name}'"), expected, tensor.name)
            parts += tensor.part is not None
    return parts


def test_rows_of_results_are_compared_in_a_launch_that_streams_them() -> None:
    builder = Builder(np.random.default_rng(5))
    x = builder.given((1, 25, 9, 4))
    for channels in (7, 8):
        kernel = (channels, 3, 3, builder.tensors[x].shape[3])
        x = builder.linear(Conv2D("relu", Window((3, 3), (1, 1), (1, 1, 1, 1))), x, kernel, 0)
    graph = builder.graph()
    program = TARGET.compile(graph, Config(4, 4, 1 << 10, static_bytes=1 << 14, l2_bytes=64), "tflm")
    sample = np.random.default_rng(6).integers(-128, 128, (1, 1, 25, 9, 4)).astype(np.int8)
    session = Session(program, {graph.inputs[0]: sample[0]})
    assert session.differs() is None
    assert compare_all(session) > 3


def random_kernel(rng: np.random.Generator) -> tuple[Device, Session]:
    """A kernel of random moves, sums, products and transposes on three tensors in local memory and two in DDR."""
    device = Device(Config(4, 4, 1 << 12, static_bytes=1 << 14, l2_bytes=64))
    shape = (1, 4, 4, 4)
    x, y = (device.put(rng.integers(-3, 4, shape).astype(np.float32), F32) for _ in range(2))

    @kernel
    def body(tpu: Tpu, y: Tensor, x: Tensor) -> None:
        held = [tpu.local(shape, F32, bank) for bank in range(3)]
        tpu.gdma.copy(held[0], x)
        for _ in range(int(rng.integers(2, 12))):
            a, b, to = (held[int(rng.integers(3))] for _ in range(3))
            match int(rng.integers(9)):
                case 0:
                    tpu.gdma.copy(a, (x, y)[int(rng.integers(2))])
                case 1:
                    tpu.gdma.copy(y, a)
                case 2:
                    tpu.bdc.fp_add(to, a, b)
                case 3:
                    tpu.bdc.fp_mul(to, a, b[:, :, 1:2].over(*shape))
                case 4:
                    tpu.bdc.fp_mac(to[:, :2], a[:, :2], 2.0, b[:, :2])
                case 5 if to is not a:
                    tpu.bdc.cw_trans(to[:, :, 2:3], a[:, :, 1:2])
                case 6 if to is not a:
                    tpu.gdma.cw_trans(to, a)
                case 7 if to is not a and to is not b:
                    left, right = a[:, :, :1].rows(), b[:, :, :1].rows()
                    tpu.bdc.fp_mm(to[:, :, :1].rows(), left, right, right_transposed=bool(rng.integers(2)))
                case 8:
                    tpu.bdc.max(to, a, 0.0)
        tpu.gdma.copy(y, held[int(rng.integers(3))])

    return device, device.debug(body, y, x)


@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True)])
def test_a_product_depends_on_a_row_and_a_column(turned: tuple[bool, bool]) -> None:
    device = Device(Config(4, 4, 1 << 12, static_bytes=1 << 14, l2_bytes=64))
    rng = np.random.default_rng(1)
    x, w = (device.put(rng.normal(size=(1, 3, 1, 3)).astype(np.float32), F32) for _ in range(2))

    @kernel
    def product(tpu: Tpu, y: Tensor, x: Tensor, w: Tensor) -> None:
        left, right, into = (tpu.local((1, 3, 1, 3), F32, bank) for bank in range(3))
        tpu.gdma.copy(left, x)
        tpu.gdma.copy(right, w)
        turns = {"left_transposed": turned[0], "right_transposed": turned[1]}
        tpu.bdc.fp_mm(into.rows(), left.rows(), right.rows(), **{name: True for name in turns if turns[name]})
        tpu.gdma.copy(y, into)

    session = device.debug(product, device.empty((1, 3, 1, 3), F32), x, w)
    session.end()
    cells = np.arange(9).reshape(3, 3)
    for row in range(3):
        for column in range(3):
            inputs = session.depends(f"y[0,{row},0,{column}]").inputs
            of_left = cells[:, row] if turned[0] else cells[row]
            of_right = cells[column] if turned[1] else cells[:, column]
            expected = {("dram.x", of_left.min() * 4, of_left.max() * 4 + 4, 12)}
            assert set(inputs) == expected | {("dram.w", of_right.min() * 4, of_right.max() * 4 + 4, 12)}


@pytest.mark.parametrize("seed", range(3 * SEEDS))
def test_states_and_slices_of_a_kernel(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng([5, seed])
    monkeypatch.setattr(launches, "CHECKPOINT_DISTANCE", 3)
    monkeypatch.setattr(launches, "BUDGET", 1 << int(rng.integers(10, 24)))
    device, session = random_kernel(rng)
    walk: Walk = session.walk
    assert isinstance(walk, CommandWalk)
    expected = device.memories.regions[0].data.copy()
    session.end()
    np.testing.assert_array_equal(session.read("local").reshape(-1), expected)
    walk.segments = tuple(part for part in walk.segments if part.address >= DDR_BASE)
    check_states(walk, walk.order.sequence, rng)
    check_slice(walk, walk.order.sequence, rng)
