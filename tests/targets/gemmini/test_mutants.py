"""Mutants of compiled programs: one that the check does not report leaves the same bytes in every legal order.

Values are those of the plain model, and legal orders those of `schedules`: neither shares code with the target.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from tests.targets.gemmini.programs import BASE, Program, encoded
from tests.targets.gemmini.reference import NOTHING, Fields, Plain
from tests.targets.gemmini.schedules import executed, shuffled, tracked
from tilewright.array import Array
from tilewright.graph.ops.base import Window
from tilewright.targets.gemmini.compiler.convolutions import NO_POOL, Convolution
from tilewright.targets.gemmini.compiler.requantise import RequantisingStore
from tilewright.targets.gemmini.compiler.streams import Stream
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.isa import fields
from tilewright.targets.gemmini.passes import Passes

SMALL = Config(dim=4, spad_rows=64, acc_rows=32, dma_bytes=16)
ROWS, DEPTH, OUTPUTS = 22, 7, 10
ORDERS, MUTANTS = 4, 3
KINDS = "swap", "shift", "drop", "zeros", "aim"
Unit = Program  # a command, or a preload with its compute


def layer() -> Convolution:
    sizes, channels = (1, ROWS), (DEPTH, OUTPUTS)
    return Convolution(1, sizes, channels, channels, Window(), sizes, NO_POOL, sizes, RequantisingStore(0.02))


def decoded(commands: Array) -> Program:
    program: Program = []
    for command, code in zip(commands, fields.codes(commands).tolist(), strict=True):
        values: Fields = {name: int(column[0]) for name, column in fields.fields(command[None], code).items()}
        if "scale" in values:
            values["scale_value"] = float(np.uint32(values["scale"]).view(np.float32))
        program.append((fields.FORMATS[code].name, values))
    return program


def units(commands: Program) -> list[Unit]:
    parts: list[Unit] = []
    for command in commands:
        if command[0].startswith("compute"):
            parts[-1] = [*parts[-1], command]
        else:
            parts.append([command])
    return parts


def mutant(parts: list[Unit], kind: str, rng: np.random.Generator) -> list[Unit]:
    """Return the units with a change: two neighbours swapped, an operand moved by some rows, a command left out, zeros
    instead of data, or a store to where a load reads."""
    result = [[(name, dict(values)) for name, values in unit] for unit in parts]
    moves = [at for at, unit in enumerate(result) if not unit[0][0].startswith(("config", "fence"))]
    at = int(rng.choice(moves[:-1]))
    if kind == "swap":
        result[at : at + 2] = reversed(result[at : at + 2])
    elif kind == "drop":
        del result[at]
    elif kind in ("zeros", "aim"):
        loads, stores = ([unit[0][1] for unit in result if unit[0][0].startswith(of)] for of in ("mvin", "mvout"))
        load, store = loads[int(rng.integers(len(loads)))], stores[int(rng.integers(len(stores)))]
        changed, address = (load, 0) if kind == "zeros" else (store, load["dram"])
        changed["dram"] = address
    else:
        name, values = result[at][int(rng.integers(len(result[at])))]
        key = {"preload": "c"}.get(name, "a" if name.startswith("compute") else "local")
        if values[key] != NOTHING:
            values[key] += int(rng.integers(1, SMALL.dim + 1))
    return result


@pytest.fixture(scope="module")
def compiled() -> tuple[Program, Array, int]:
    """A compiled product, DRAM before it, and where its result begins."""
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((ROWS, DEPTH), (OUTPUTS, DEPTH)))
    form = next(Stream(layer(), SMALL).tilings(SMALL))
    data = x, form.weights(w, SMALL), rng.integers(-99, 99, OUTPUTS).astype("<i4")
    places = [0, *np.cumsum([-(-array.nbytes // 16) * 16 for array in data]).tolist()]
    memory = np.zeros(places[-1] + ROWS * OUTPUTS, np.uint8)
    for place, array in zip(places, data, strict=False):
        memory[place : place + array.nbytes] = array.reshape(-1).view(np.uint8)
    commands = decoded(form.emit(SMALL, *(BASE + place for place in places)).array)
    sums = x.astype(np.int64) @ w.T.astype(np.int64) + data[2]
    golden = np.clip(np.rint(sums.astype(np.float32) * np.float32(0.02)), -128, 127).astype(np.int8)
    assert results(commands, memory, rng) == {bytes(memory[: places[-1]]) + golden.tobytes()}
    assert not Passes(encoded(commands), SMALL).hazards.findings
    return commands, memory, places[-1]


def results(commands: Program, memory: Array, rng: np.random.Generator) -> set[bytes]:
    """Return what DRAM holds after several legal orders."""
    memories, bank = set[bytes](), SMALL.acc_rows // SMALL.acc_banks
    for _ in range(ORDERS):
        dram = memory.copy()
        model = Plain(SMALL.dim, SMALL.all_spad_rows, SMALL.acc_rows, dram, BASE)
        memories.add(executed(shuffled(commands, SMALL.dim, bank, rng), commands, model, dram).tobytes())
    return memories


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 100))])
def test_mutants(seed: int, compiled: tuple[Program, Array, int]) -> None:
    commands, memory, _ = compiled
    rng, verdicts = np.random.default_rng(seed), Counter[str]()
    print(f"seed {seed}")
    for kind in KINDS:
        for _ in range(MUTANTS):
            changed = [command for unit in mutant(units(commands), kind, rng) for command in unit]
            if Passes(encoded(changed), SMALL).hazards.findings:
                verdicts["reported"] += 1
                continue
            outcomes = results(changed, memory, rng)
            assert len(outcomes) == 1, f"{kind}: {len(outcomes)} outcomes, and nothing is reported"
            verdicts["harmless"] += 1
    assert verdicts["harmless"]


def test_some_mutants_are_reported(compiled: tuple[Program, Array, int]) -> None:
    commands, _, _ = compiled
    assert len(tracked(commands, SMALL.dim, SMALL.acc_rows // SMALL.acc_banks)) == len(commands)
    rng = np.random.default_rng(1)
    changed = [[command for unit in mutant(units(commands), "aim", rng) for command in unit] for _ in range(20)]
    assert any(Passes(encoded(command), SMALL).hazards.findings for command in changed)
