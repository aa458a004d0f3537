"""Values, cycles and page services of the closed forms against the engine that is stepped cycle by cycle."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest

from tests.targets.zynq.cases import SHAPES, SMALL, Case, case, hash_of
from tests.targets.zynq.engine import Engine
from tilewright.array import Array
from tilewright.targets.zynq.config import Config
from tilewright.targets.zynq.isa.layer import Kind
from tilewright.targets.zynq.timing.service import schedule
from tilewright.targets.zynq.values import machine

MACHINES: dict[str, dict[str, str | int]] = {
    "repaired": {},
    "chw": {"layout": "chw", "weight_bits": 8},
    "hwc": {"layout": "hwc", "weight_bits": 8},
    "fc by 16": {"layout": "chw", "fc_lanes": 16},
    "banked": {"banked": 1, "control": "direct"},
    "no wait": {"lat_use": 0},
}


def serve(engine: Engine, blocks: dict[str, Array], results: dict[int, Array]) -> None:
    """The PS's part of a page service."""
    assert engine.request is not None
    store, block, writes = engine.request
    if writes:
        results[block] = engine.words[store].copy()
    else:
        engine.words[store][:] = blocks[store][block]
    engine.done()


def step_through(given: Case, freeze: Callable[[Engine], None] = lambda engine: None) -> tuple[Array, Engine, int]:
    """Results in the order of writing, the engine, and cycles of page services; `freeze` comes before each cycle."""
    engine, results, blocks, waited = Engine(given.layer, given.factor), dict[int, Array](), given.blocks, 0
    while not engine.idle:
        freeze(engine)
        engine.tick()
        if engine.request:
            waited += given.layer.config.transfer(engine.request[0])
            serve(engine, blocks, results)
    return np.concatenate([results[index] for index in range(len(results))])[: given.layer.outputs], engine, waited


def expected(given: Case) -> Array:
    """The machine's results in the order of writing, channel after channel, as bytes."""
    fc = given.layer.kind == Kind.FC
    codes = machine.run(given.layer, given.data if fc else given.data[None], given.weights, given.bias, given.factor)
    channels = given.layer.outputs if fc else given.layer["oc"] or given.layer["ic"]
    return np.ascontiguousarray(codes.reshape(-1, channels).T).ravel().view(np.uint8)


@pytest.mark.parametrize("machine_name", MACHINES)
@pytest.mark.parametrize("layer_name", SHAPES)
def test_closed_forms_equal_the_stepped_engine(layer_name: str, machine_name: str) -> None:
    given = case(hash_of(layer_name), small(**MACHINES[machine_name]), **SHAPES[layer_name])
    planned = schedule(given.layer)
    results, engine, waited = step_through(given)
    np.testing.assert_array_equal(results, expected(given))
    assert engine.served == {**dict.fromkeys(engine.served, 0), **planned.loads()}
    assert (engine.moved, engine.moved + waited) == (planned.engine, planned.cycles)


@pytest.mark.parametrize("layer_name", ["conv", "pool", "fc remainder 32"])
@pytest.mark.parametrize("seed", range(3))
def test_waiting_freezes_every_register(layer_name: str, seed: int) -> None:
    """At random cycles `waiting` is held for random times: no register moves, and results and cycles are the same."""
    print("seed", seed)
    rng, given = np.random.default_rng(seed), case(seed, small(), **SHAPES[layer_name])
    frozen = 0

    def freeze(engine: Engine) -> None:
        nonlocal frozen
        if rng.random() < 0.02:
            before, words = copy.deepcopy(engine.regs), {name: data.copy() for name, data in engine.words.items()}
            engine.request = ("data", 0, False)
            for _ in range(int(rng.integers(1, 9))):
                engine.tick()
            engine.request = None
            assert engine.regs == before
            assert all(np.array_equal(engine.words[name], data) for name, data in words.items())
            frozen += 1

    results, engine, _ = step_through(given, freeze)
    assert frozen
    np.testing.assert_array_equal(results, expected(given))
    assert engine.moved == schedule(given.layer).engine


@pytest.mark.parametrize("seed", range(5))
def test_what_else_the_ps_does_changes_nothing(seed: int) -> None:
    """Blocks are thrown away at random cycles, so that pages are asked for again, in another order."""
    print("seed", seed)
    rng, given = np.random.default_rng(seed), case(seed, small(layout="chw"), **SHAPES["conv of two groups"])

    def forget(engine: Engine) -> None:
        store = ("data", "weight", "bias")[int(rng.integers(3))]
        if rng.random() < 0.05:
            engine.tag[store] = None
            engine.words[store][:] = 77

    results, engine, _ = step_through(given, forget)
    assert engine.served["data"] > schedule(given.layer).loads()["data"]
    np.testing.assert_array_equal(results, expected(given))


@pytest.mark.parametrize("layer_name", ["conv_1_1", "conv", "fc remainder 64"])
def test_a_consumer_that_does_not_wait_gets_wrong_sums(layer_name: str) -> None:
    """The document's reason for its delay."""
    right, wrong = (case(5, small(lat_use=wait), **SHAPES[layer_name]) for wait in (1, 0))
    assert (step_through(right)[0] != step_through(wrong)[0]).any()
    assert schedule(wrong.layer).engine == schedule(right.layer).engine - right.layer.iterations


def small(**changes: str | int) -> Config:
    return Config.read({**SMALL, "weight_bits": 10, **changes}, {})
